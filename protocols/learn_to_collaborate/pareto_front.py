"""The Pareto front that a coordinator learns: the hypernetwork HN(d), and who has which of its inputs.

"Learning to collaborate", section 4.2 and appendix B.1, after Navon et al., "Learning the Pareto front with
hypernetworks" (2020). From weights d of the clients' losses HN makes the parameters of one model for them;
trained on sum_i d_i l_i(HN(d)) for random d on the simplex, it holds the whole Pareto front of these losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from protocols.framework.vectors import Vector, mix
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings
from protocols.shared.hypernetwork import Floats, begun, generated, initial, pulled_back, size, slope, widened

if TYPE_CHECKING:
    from protocols.framework.client import Client

LEAKS = {"none": None, "relu": 0.0, "leaky-relu": 0.01}
"""Slopes of the activations below 0, by name; "none" has none."""


class ParetoFront:
    """Models for weights of the clients' losses, on the device of `owner`, to which it is charged.

    Weights are given by name; whoever is not named has none. start: a model, or the part of one that the
    clients have in common, near which all begin.
    """

    def __init__(
        self, owner: Client, settings: LearnToCollaborateSettings, clients: Iterable[str], start: Vector
    ) -> None:
        self._owner = owner
        self._settings = settings
        self.clients = list(clients)
        self._widths: tuple[int, ...] = (len(self.clients), *settings.hidden, *start.shape)
        first = owner.vector(initial(self._widths, owner.rng, settings.spread))
        self._weights: Vector = owner.apply(begun, first, start)
        self._velocity: Vector | None = None

    @property
    def _form(self) -> dict[str, Any]:
        return {"widths": self._widths, "leak": LEAKS[self._settings.activation]}

    @property
    def _flops(self) -> float:
        """The cost of a pass through the hypernetwork, forward or backward to its inputs: two per number."""
        return 2.0 * size(self._widths)

    def admit(self, client: str) -> None:
        """One more input. The optimizer forgets what it was about to do."""
        self._weights = self._owner.apply(widened, self._weights, widths=self._widths)
        self._velocity = None
        self.clients.append(client)
        self._widths = (len(self.clients), *self._widths[1:])

    def _input(self, shares: Mapping[str, float]) -> Floats:
        return np.array([shares.get(client, 0.0) for client in self.clients])

    async def model(self, shares: Mapping[str, float]) -> Vector:
        """HN(d)."""
        d = self._input(shares)
        return await self._owner.apply(generated, self._weights, d, flops=self._flops, **self._form)

    async def slope(self, shares: Mapping[str, float], gradient: Vector) -> dict[str, float]:
        """The derivative by the weight of each client in `shares` of a loss, of which `gradient` is that by
        the model there."""
        d = self._input(shares)
        found = await self._owner.apply(
            slope, self._weights, d, gradient, flops=2 * self._flops, **self._form
        )
        by_client = dict(zip(self.clients, found.numpy().tolist(), strict=True))
        return {client: by_client[client] for client in shares}

    async def learn(self, found: Iterable[tuple[Mapping[str, float], Vector]]) -> None:
        """One step of SGD with momentum: `found` are weights d, each with a gradient by the model HN(d)."""
        terms: list[tuple[float, Vector]] = []
        for shares, gradient in found:
            d, flops = self._input(shares), 2 * self._flops
            of_weights, _ = await self._owner.apply(
                pulled_back, self._weights, d, gradient, flops=flops, **self._form
            )
            terms.append((1.0, of_weights))
        if self._velocity is not None:
            terms.append((self._settings.hypernetwork_momentum, self._velocity))
        self._velocity = mix(terms)
        self._weights = self._weights - self._settings.hypernetwork_learning_rate * self._velocity
