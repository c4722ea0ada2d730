"""The gradients and losses that a client computes for the coordinator, perhaps with a head of its own."""

import asyncio

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.vectors import Vector
from protocols.learn_to_collaborate.messages import GradientFound, GradientWanted, HeadStepWanted
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings


class LocalGradients(Component):
    """One client's gradients at the models of the Pareto front.

    head: with which it sees these models; None where they have theirs.
    """

    def __init__(self, client: Client, settings: LearnToCollaborateSettings) -> None:
        super().__init__(client)
        self.settings = settings
        self.head: Vector | None = None
        if settings.heads == "own":
            self.head = client.part(client.compute.initial(), "head")

    def common(self, model: Vector) -> Vector:
        """The part of a model, or of its gradient, that the front holds: all of it, or the backbone."""
        return model if self.head is None else self.client.part(model, "backbone")

    def whole(self, common: Vector) -> Vector:
        """This client's model with that part from the front."""
        if self.head is None:
            return common
        client = self.client
        model = client.with_part(client.compute.initial(), "backbone", common)
        return client.with_part(model, "head", self.head)

    async def at(self, wanted: GradientWanted) -> GradientFound:
        """This client's own gradient, and its validation loss."""
        client, at = self.client, self.whole(wanted.params)
        if wanted.on == "batch":
            gradient = await client.gradient(at)
            if self.head is not None and isinstance(wanted, HeadStepWanted):
                rate = self.settings.head_learning_rate * wanted.share
                self.head = self.head - rate * client.part(gradient, "head")
            return GradientFound(self.common(gradient))
        # Both at once, so that no training comes between them on the device.
        gradient, loss = await asyncio.gather(
            client.gradient(at, on="validation"), client.loss(at, on="validation")
        )
        return GradientFound(self.common(gradient), loss)
