"""The rules of a run: how long it lasts, what is measured of it, and what changes while it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from actors.settings.quantities import Span
from protocols.framework.requirements import ProtocolSettings
from sim.core.budget import ClientBudget
from sim.core.convergence import Convergence


@dataclass(frozen=True, kw_only=True)
class RunRules:
    """What a simulation needs to know beside its clients, its network, and its engine.

    Times are in virtual seconds. A run ends at `duration_s`, after `iterations` of every client, when all
    clients have spent their `budget`, or when it has `converged`, whichever comes first; None: never.
    """

    settings: ProtocolSettings
    """The settings of the method."""
    evaluate_every: Span
    """Time, or iterations of every client, between two evaluations."""
    task: str = "classification"
    """The task of the data: classification, regression, language, or quadratic."""
    metrics: Sequence[str] = ("accuracy", "loss")
    """Names of the metrics that an evaluation measures. Models are judged by the first."""
    seed: int = 0
    duration_s: float | None = None
    iterations: int | None = None
    budget: ClientBudget | None = None
    converged: Convergence | None = None
    evaluate_share: float = 1.0
    """Share of the clients that an evaluation measures."""
    keep_messages: bool = True
    """Whether the trace keeps each message, not only their counts and its hash."""
    on_failure: Literal["stop", "restart"] = "stop"
    """What happens to an actor whose code fails."""
    max_restarts: int = 3
    learning_rates: Sequence[tuple[float, float]] = ()
    """Times at which the learning rate changes, each with the new rate."""
    later_settings: Sequence[tuple[float, ProtocolSettings]] = ()
    """Times at which the settings of the method change, each with the new settings."""
