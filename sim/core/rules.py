"""Rules of a run: duration, measurements, and changes of settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import PositiveInt, model_validator

from actors.settings.base import Settings, exactly_one
from actors.settings.quantities import Energy, PositiveDuration, Size, Weight, Within
from protocols.framework.requirements import ProtocolSettings

if TYPE_CHECKING:
    from sim.learning.metrics import Metric

Kind = Literal["steps", "samples", "time", "bytes", "energy"]


class ClientBudget(Settings):
    """Budget of each client over all its sessions. A client that has exhausted its budget stops training and
    only answers its peers. Set exactly one key."""

    steps: Annotated[PositiveInt, Within(1, 1_000_000_000)] | None = None
    """Training steps. The last training job is shortened to fit."""
    samples: Annotated[PositiveInt, Within(1, 1_000_000_000_000)] | None = None
    """Samples of training and gradients; each view counts. Training ends with the last batch that fits."""
    time: PositiveDuration | None = None
    """Virtual time during which the client is up. A training job that has started is finished."""
    bytes: Size | None = None
    """Bytes that the client sends. A training job that has started is finished."""
    energy: Energy | None = None
    """Energy of the client's device and messages, by `devices.power` and `network.energy_per_byte`. A
    training job that has started is finished, but the run ends at the moment at which the last client
    exhausts its budget."""

    @model_validator(mode="after")
    def _one_of_them(self) -> "ClientBudget":
        exactly_one(self, *get_args(Kind))
        return self

    @property
    def kind(self) -> Kind:
        kinds: tuple[Kind, ...] = get_args(Kind)
        return next(kind for kind in kinds if getattr(self, kind) is not None)

    @property
    def limit(self) -> float:
        """Value of the key that is set: steps, samples, seconds, bytes, or joules."""
        limit: float = getattr(self, self.kind)
        return limit


class Convergence(Settings):
    """End of a run at convergence, which means that no client improves any more."""

    patience: PositiveDuration
    """Time without an improvement of any client that is up. The first metric of the run is compared."""
    tolerance: Weight = 0.001
    """Least change of the metric beyond the client's best value that counts as an improvement."""


@dataclass(frozen=True, kw_only=True)
class RunRules:
    """Rules of a simulation, in addition to its clients, network, and engine.

    Times are in virtual seconds. A run ends at `duration_s`, after `iterations` of every client, when all
    clients have exhausted their `budget`, or when it has `converged`. The first of these ends applies; None
    disables a rule.
    """

    settings: ProtocolSettings
    """Settings of the method."""
    evaluate_every_s: float | None = None
    """Time between evaluations. By default, only the start and the end are evaluated."""
    evaluate_every_iterations: int | None = None
    """Iterations of every client between evaluations."""
    task: str = "classification"
    """Task of the data: classification, regression, language, or quadratic."""
    metrics: Sequence[str] = ("accuracy", "loss")
    """Names of the measured metrics. Results compare models by the first."""
    own_metrics: "Sequence[Metric]" = ()
    """Metrics that functions of the user compute; `metrics` also names them."""
    seed: int = 0
    duration_s: float | None = None
    iterations: int | None = None
    budget: ClientBudget | None = None
    converged: Convergence | None = None
    evaluate_share: float = 1.0
    """Share of the clients that an evaluation measures."""
    keep_messages: bool = True
    """True to keep each message in the trace, in addition to counts and the trace hash."""
    on_failure: Literal["stop", "restart"] = "stop"
    """Reaction to an error in the code of an actor."""
    max_restarts: int = 3
    learning_rates: Sequence[tuple[float, float]] = ()
    """Changes of the learning rate: pairs (time, new rate)."""
    later_settings: Sequence[tuple[float, ProtocolSettings]] = ()
    """Changes of the method's settings: pairs (time, new settings)."""
