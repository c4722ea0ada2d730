"""The rules of a run: how long it lasts, what is measured of it, and what changes while it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import PositiveInt, model_validator

from actors.settings.base import Settings, exactly_one
from actors.settings.quantities import PositiveDuration, Size, Weight, Within
from protocols.framework.requirements import ProtocolSettings

Kind = Literal["steps", "samples", "time", "bytes"]


class ClientBudget(Settings):
    """What each client may spend over all its lives; then it trains no more and only serves the others.
    State exactly one key."""

    steps: Annotated[PositiveInt, Within(1, 1_000_000_000)] | None = None
    """Training steps; the last training is shortened, so that nobody takes more."""
    samples: Annotated[PositiveInt, Within(1, 1_000_000_000_000)] | None = None
    """Samples seen in training and in gradients, each view counted. Training ends with the last whole batch
    that fits."""
    time: PositiveDuration | None = None
    """Virtual time for which the client is up; training that has begun by then is finished."""
    bytes: Size | None = None
    """Bytes that the client sends; training that has begun by then is finished."""

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
        """The value of the stated key: a number of steps or samples, seconds, or bytes."""
        limit: float = getattr(self, self.kind)
        return limit


class Convergence(Settings):
    """When training has converged: nobody gets better any more."""

    patience: PositiveDuration
    """For how long no client that is up has become better, by what clients are judged by; a client is looked
    at at each evaluation."""
    tolerance: Weight = 0.001
    """By how much a client must beat its best to have become better."""


@dataclass(frozen=True, kw_only=True)
class RunRules:
    """What a simulation needs to know beside its clients, its network, and its engine.

    Times are in virtual seconds. A run ends at `duration_s`, after `iterations` of every client, when all
    clients have spent their `budget`, or when it has `converged`, whichever comes first; None: never.
    """

    settings: ProtocolSettings
    """The settings of the method."""
    evaluate_every_s: float | None = None
    """Time between two evaluations. Without it, and without iterations, only the start and the end are."""
    evaluate_every_iterations: int | None = None
    """Iterations of every client between two evaluations."""
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
