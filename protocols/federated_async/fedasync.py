"""FedAsync: a server mixes each model that arrives into its own, the less the older what it was trained from.

Xie, Koyejo and Gupta, "Asynchronous federated optimization" (2019), algorithm 1, with staleness u: how often
the server's model x has changed since it gave x_tau to the client:

    a client:   x_new <- local epochs of SGD on F_i(x) + mu/2 ||x - x_tau||^2, from x_tau
    the server: x <- (1 - alpha s(u)) x + alpha s(u) x_new            whenever a model arrives

    s(u) = 1 (constant),  (1 + u)^-a (polynomial),  1 if u <= b, else 1/(a (u - b) + 1) (hinge)

Differences to the paper: all clients train all the time, where its scheduler triggers some at random times.
u is 0 for a model that nothing has come between. A client is judged by the last x that it was given.
"""

from typing import Literal

from actors.settings.quantities import CountOrZero, PositiveWeight, ShareAboveZero, Weight
from protocols.framework.vectors import Vector, mix
from protocols.shared.async_server import AsyncClient, AsyncServer, AsyncSettings


class FedAsyncSettings(AsyncSettings):
    """A server mixes each model that arrives into its own."""

    changing = (*AsyncSettings.changing, "mixing", "mu")

    mixing: ShareAboveZero = 0.6
    """alpha: how much a model counts that was trained from the server's latest."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """s: how the weight of a model falls with the changes u that came in between."""
    exponent: Weight = 0.5
    """a of the polynomial (1 + u)^-a."""
    slope: PositiveWeight = 10.0
    """a of the hinge 1/(a (u - b) + 1)."""
    grace: CountOrZero = 4
    """b of the hinge: up to so many changes a model counts in full."""
    mu: Weight = 0.005
    """Strength of the proximal term, towards the model that a client was given."""


def freshness(staleness: int, settings: FedAsyncSettings) -> float:
    """s(u)."""
    if settings.staleness == "polynomial":
        return float((1.0 + staleness) ** -settings.exponent)
    beyond = staleness - settings.grace
    return 1.0 if settings.staleness == "constant" or beyond <= 0 else 1.0 / (settings.slope * beyond + 1.0)


class FedAsyncServer(AsyncServer):
    """Mixes models."""

    settings: FedAsyncSettings

    def arrived(self, work: Vector, client: str, staleness: int) -> None:
        share = self.settings.mixing * freshness(staleness, self.settings)
        self.params = mix([(1 - share, self.params), (share, work)])


class FedAsync(AsyncClient):
    """A client that trains without moving far from what it was given."""

    Settings = FedAsyncSettings
    settings: FedAsyncSettings
    server = FedAsyncServer

    async def work(self, start: Vector) -> object:
        mu = self.settings.mu
        return await self.trained(start, [(mu, start)] if mu else ())
