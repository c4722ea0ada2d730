"""Pareto front that a coordinator learns: the hypernetwork HN(d), and the assignment of its inputs.

"Learning to collaborate", section 4.2 and appendix B.1, after Navon et al., "Learning the Pareto front with
hypernetworks" (2020). From weights d of the clients' losses HN generates the parameters of one model; trained
on sum_i d_i l_i(HN(d)) for random d on the simplex, it represents the whole Pareto front of these losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from protocols.framework.vectors import Vector, mix
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings
from protocols.shared.hypernetwork import (
    Floats,
    add_input,
    append_start_model,
    backpropagate,
    generated,
    initial,
    input_gradient,
    size,
)

if TYPE_CHECKING:
    from protocols.framework.client import Client

LEAKS = {"none": None, "relu": 0.0, "leaky-relu": 0.01}
"""Slopes of the activations below 0, by name; None for no activation."""


class ParetoFront:
    """Models for weights of the clients' losses, computed on the device of `owner` at its cost.

    Weights are given by name; clients without a weight have 0. start: a model, or the common part of the
    clients' models, near which all models start.
    """

    def __init__(
        self, owner: Client, settings: LearnToCollaborateSettings, clients: Iterable[str], start: Vector
    ) -> None:
        self._owner = owner
        self._settings = settings
        self.clients = list(clients)
        self._widths: tuple[int, ...] = (len(self.clients), *settings.hidden, *start.shape)
        first = owner.vector(initial(self._widths, owner.rng, settings.spread))
        self._weights: Vector = owner.apply(append_start_model, first, start)
        self._velocity: Vector | None = None

    @property
    def _form(self) -> dict[str, Any]:
        return {"widths": self._widths, "leak": LEAKS[self._settings.activation]}

    @property
    def _flops(self) -> float:
        """Floating-point operations of a pass, forward or backward to the inputs: two for each parameter."""
        return 2.0 * size(self._widths)

    def admit(self, client: str) -> None:
        """Add an input for a client. The optimizer's velocity is reset."""
        self._weights = self._owner.apply(add_input, self._weights, widths=self._widths)
        self._velocity = None
        self.clients.append(client)
        self._widths = (len(self.clients), *self._widths[1:])

    def _input(self, shares: Mapping[str, float]) -> Floats:
        return np.array([shares.get(client, 0.0) for client in self.clients])

    async def model(self, shares: Mapping[str, float]) -> Vector:
        """Return the model HN(shares)."""
        d = self._input(shares)
        return await self._owner.apply(generated, self._weights, d, flops=self._flops, **self._form)

    async def slope(self, shares: Mapping[str, float], gradient: Vector) -> dict[str, float]:
        """Return the derivative of a loss with respect to the weight of each client in `shares`.

        gradient: the gradient of the loss with respect to the model HN(shares).
        """
        d = self._input(shares)
        found = await self._owner.apply(
            input_gradient, self._weights, d, gradient, flops=2 * self._flops, **self._form
        )
        by_client = dict(zip(self.clients, found.numpy().tolist(), strict=True))
        return {client: by_client[client] for client in shares}

    async def learn(self, found: Iterable[tuple[Mapping[str, float], Vector]]) -> None:
        """Take one step of SGD with momentum. found: pairs (d, gradient with respect to the model HN(d))."""
        terms: list[tuple[float, Vector]] = []
        for shares, gradient in found:
            d, flops = self._input(shares), 2 * self._flops
            of_weights, _ = await self._owner.apply(
                backpropagate, self._weights, d, gradient, flops=flops, **self._form
            )
            terms.append((1.0, of_weights))
        if self._velocity is not None:
            terms.append((self._settings.hypernetwork_momentum, self._velocity))
        self._velocity = mix(terms)
        self._weights = self._weights - self._settings.hypernetwork_learning_rate * self._velocity
