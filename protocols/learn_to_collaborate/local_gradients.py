"""Gradients and losses that a client computes for the coordinator, optionally with its own head."""

import asyncio

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.vectors import Vector
from protocols.learn_to_collaborate.messages import GradientFound, GradientWanted, HeadStepWanted
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings


class LocalGradients(Component):
    """Gradients of one client at the models of the Pareto front.

    head: the client's own head for these models; None if they include heads.
    """

    def __init__(self, client: Client, settings: LearnToCollaborateSettings) -> None:
        super().__init__(client)
        self.settings = settings
        self.head: Vector | None = None
        if settings.heads == "own":
            self.head = client.part(client.compute.initial(), "head")

    def common(self, model: Vector) -> Vector:
        """Return the part of a model, or of its gradient, that the front contains: all, or the backbone."""
        return model if self.head is None else self.client.part(model, "backbone")

    def whole(self, common: Vector) -> Vector:
        """Return this client's model with the part `common` from the front."""
        if self.head is None:
            return common
        client = self.client
        model = client.with_part(client.compute.initial(), "backbone", common)
        return client.with_part(model, "head", self.head)

    async def at(self, wanted: GradientWanted) -> GradientFound:
        """Return this client's gradient at the requested parameters; on validation samples also the loss.

        `HeadStepWanted` also makes a step of the client's own head.
        """
        client, at = self.client, self.whole(wanted.params)
        if wanted.on == "batch":
            gradient = await client.gradient(at)
            if self.head is not None and isinstance(wanted, HeadStepWanted):
                rate = self.settings.head_learning_rate * wanted.share
                self.head = self.head - rate * client.part(gradient, "head")
            return GradientFound(self.common(gradient))
        # Together, so that no training comes between them on the device.
        gradient, loss = await asyncio.gather(
            client.gradient(at, on="validation"), client.loss(at, on="validation")
        )
        return GradientFound(self.common(gradient), loss)
