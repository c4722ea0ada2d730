"""Settings of CoBo, and the frequency of updates of a pair's weight."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import model_validator

from actors.settings.base import SettingError, default
from actors.settings.quantities import Count, PositiveDuration, PositiveWeight, Share, Weight
from protocols.framework.requirements import ProtocolSettings


class CoBoSettings(ProtocolSettings):
    """Train near the peers' models, with weights that are learned from the alignment of gradients."""

    changing = ("local_steps", "rho", "gamma")

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """Rounds with all neighbors, or the form without rounds, in which no client waits for another."""
    rho: Weight = 0.05
    """Strength of the proximal terms."""
    gamma: PositiveWeight = 0.01
    """Step size of the weights."""
    domain: Literal["box", "simplex"] = "box"
    """Each weight in [0, 1], or each client's weights on the simplex (remark 1)."""
    sampling: Literal["constant", "time-dependent", "mixed", "none"] = "constant"
    """Probability that a pair updates its weight in an iteration. "constant": `sampling_scale`/n
    for n clients. "time-dependent": `decay`. "mixed": constant for `constant_iterations`, then
    time-dependent. "none": 1."""
    sampling_scale: PositiveWeight = 1.0
    """Expected number of pair updates of a client in an iteration, while their probability is constant."""
    constant_iterations: Count = 80
    """Iterations before the decay starts, for "mixed"."""
    decay: Literal["1/t", "1/sqrt(t)"] = "1/t"
    """Probability of a pair's update in iteration t while it decays; t counts all iterations."""
    exchange: Literal["all", "sampled"] = "all"
    """Receivers of models in the asynchronous form: all peers after each iteration (as in the paper), or only
    the peer of an updated pair (which bounds the traffic of a client for any number of clients)."""
    local_steps: Count = 1
    """Training steps in an iteration."""
    fading: bool = True
    """Fade old models in the asynchronous form: the k-th proximal term in a row with the same model of a peer
    has weight 1/k."""
    evidence: Weight = 2.0
    """Speed at which a pair's weight takes effect, in the asynchronous form. After u updates of the pair and
    m exchanges of gradients, the weight is multiplied by the smallest of 1, `evidence` times u/e, and m/2,
    where e is the number of updates expected from the iterations of the slower client. The factor is 1 as
    long as e is at most `evidence`. 0: full weight from the start, as in rounds."""
    share_for_peers: Share = 1 / 3
    """Maximum share of device time for the gradients for pairs, in the asynchronous form, for a client that
    is less than half as fast as its peers (median)."""
    patience: PositiveDuration = default("1 min")
    """Silence after which a peer is suspected; lost messages are repeated long before."""

    @model_validator(mode="after")
    def _exchange_fits_mode(self) -> CoBoSettings:
        if self.mode == "synchronous" and self.exchange == "sampled":
            problem = 'must be "all": with mode = "synchronous", clients send models to all peers'
            raise SettingError("exchange", self.exchange, problem)
        return self


def pair_probability(settings: CoBoSettings, iteration: int, clients: int) -> float:
    """Return the probability that a pair updates its weight in `iteration` (from 1)."""
    decaying = settings.sampling == "time-dependent" or (
        settings.sampling == "mixed" and iteration > settings.constant_iterations
    )
    if settings.sampling == "none":
        return 1.0
    if decaying:
        return 1.0 / (iteration if settings.decay == "1/t" else math.sqrt(iteration))
    return min(1.0, settings.sampling_scale / clients)


def expected_updates(settings: CoBoSettings, iterations: int, clients: int) -> float:
    """Return the expected number of a pair's updates in `iterations`, by integrals of `pair_probability`."""

    def decayed(after: int) -> float:
        start, end = after + 0.5, max(iterations, after) + 0.5
        return math.log(end / start) if settings.decay == "1/t" else 2 * (math.sqrt(end) - math.sqrt(start))

    share = min(1.0, settings.sampling_scale / clients)
    match settings.sampling:
        case "none":
            return float(iterations)
        case "constant":
            return share * iterations
        case "time-dependent":
            return decayed(0)
        case "mixed":
            return share * min(iterations, settings.constant_iterations) + decayed(
                settings.constant_iterations
            )
