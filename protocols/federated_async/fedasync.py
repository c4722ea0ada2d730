"""FedAsync: a server mixes each arriving model into its own model, with less weight for stale models.

Xie, Koyejo and Gupta, "Asynchronous federated optimization" (2019), algorithm 1, with staleness u: the number
of changes to the server's model x since it gave x_tau to the client:

    a client:   x_new <- local epochs of SGD on F_i(x) + mu/2 ||x - x_tau||^2, from x_tau
    the server: x <- (1 - alpha s(u)) x + alpha s(u) x_new            whenever a model arrives

    s(u) = 1 (constant),  (1 + u)^-a (polynomial),  1 if u <= b, else 1/(a (u - b) + 1) (hinge)

Differences from the paper: all clients train all the time, while the paper's scheduler triggers some at
random times. u is 0 if the server's model has not changed meanwhile. A client is evaluated by the last x
that it was given.
"""

from typing import Literal

from actors.settings.quantities import CountOrZero, PositiveWeight, ShareAboveZero, Weight
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.async_server import AsyncClient, AsyncServer, AsyncSettings


class FedAsyncSettings(AsyncSettings):
    """Mix each arriving model into the server's model."""

    changing = (*AsyncSettings.changing, "mixing", "mu")

    mixing: ShareAboveZero = 0.6
    """Weight alpha of a model that was trained from the server's latest model."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """Function s(u), the factor of a model's weight if the server's model has changed u times meanwhile."""
    exponent: Weight = 0.5
    """Exponent a of the polynomial (1 + u)^-a."""
    slope: PositiveWeight = 10.0
    """Slope a of the hinge 1/(a (u - b) + 1)."""
    grace: CountOrZero = 4
    """Threshold b of the hinge: a model counts in full up to this number of changes."""
    mu: Weight = 0.005
    """Strength of the proximal term towards the model that the server sent."""


def freshness(staleness: int, settings: FedAsyncSettings) -> float:
    """Return s(u), the factor of the mixing weight for a model with staleness u."""
    if settings.staleness == "polynomial":
        return float((1.0 + staleness) ** -settings.exponent)
    beyond = staleness - settings.grace
    return 1.0 if settings.staleness == "constant" or beyond <= 0 else 1.0 / (settings.slope * beyond + 1.0)


class FedAsyncServer(AsyncServer):
    """Server that mixes models."""

    settings: FedAsyncSettings

    def arrived(self, work: Vector, client: str, staleness: int) -> None:
        share = self.settings.mixing * freshness(staleness, self.settings)
        self.params = mix([(1 - share, self.params), (share, work)])


class FedAsync(AsyncClient):
    """Client that trains with a pull towards the model that the server sent."""

    Settings = FedAsyncSettings
    search_space = SearchSpace(
        "around coterie's defaults, 0.6 and 0.5; the paper's text was not available",
        {
            "mixing": Range(0.1, 0.9),
            "exponent": OneOf((0.0, 0.5, 1.0)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FedAsyncSettings
    server = FedAsyncServer

    async def work(self, start: Vector) -> object:
        mu = self.settings.mu
        return await self.trained(start, [(mu, start)] if mu else ())
