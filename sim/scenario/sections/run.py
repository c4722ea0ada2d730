"""What is run, how long, and how much each client may train."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, WithJsonSchema, model_validator

from actors.settings.base import SettingError, Settings, at_most_one
from actors.settings.quantities import (
    PositiveDuration,
    PositiveWeight,
    ShareAboveZero,
    Span,
    Within,
    span,
)
from actors.settings.units import DURATION, SIZE
from sim.core.rules import ClientBudget, Convergence
from sim.results.measures import MEASURES

_TIES = "true, false, or a whole number from 0 to 1,000,000"


def _ties(value: Any) -> bool | int:
    if isinstance(value, bool) or (type(value) is int and 0 <= value <= 1_000_000):
        return value
    raise ValueError(f"must be {_TIES}")


_whole = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_Ties = Annotated[
    bool | int,
    BeforeValidator(_ties),
    WithJsonSchema({"x-allowed": _TIES, "anyOf": [{"type": "boolean"}, _whole]}),
]


if TYPE_CHECKING:
    _Every = Span
    _Metric = str
else:
    _Every = span("iteration")
    _Metric = Literal[tuple(measure.name for measure in MEASURES)]


NAME_BYTES_MAX = 180
"""File systems allow 255 for a directory's name, in which seed and hash stand as well."""


def _name(value: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", value):
        raise ValueError(f"must be {_NAME_ALLOWED}, and begin with none of . and -")
    if len(value.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"must have at most {NAME_BYTES_MAX} bytes, this has {len(value.encode()):,}")
    return value


_NAME_ALLOWED = "letters, digits, and . _ -"
_Name = Annotated[
    str,
    AfterValidator(_name),
    # Letters of all scripts: JavaScript's \w is ASCII only, so that this lists what is not allowed.
    WithJsonSchema({"type": "string", "x-allowed": _NAME_ALLOWED, "pattern": r"^[^ -,/:-@\[-^`{-~]+$"}),
]


class Run(Settings):
    """What is run, how long, and what is recorded."""

    name: _Name | None = None
    """Name in results; by default the file's name without its ending, with "-" for spaces and other signs."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random number of the run."""
    duration: PositiveDuration | None = None
    """Virtual time after which the run ends."""
    iterations: Annotated[PositiveInt, Within(1, 1_000_000_000)] | None = None
    """The run ends once every running client has done so many iterations."""
    budget: ClientBudget | None = None
    """How much each client may train, for comparisons of methods; the run ends once all have spent it who are
    up or will come."""
    converged: Convergence | None = None
    """The run ends early, with the evaluation at which training has converged."""
    evaluate_every: _Every
    """Time between two evaluations by the observer, which cost no virtual time."""
    evaluate_share: ShareAboveZero = 1.0
    """Share of the clients that are up of which an evaluation measures the models, drawn anew for each; the
    last one measures all. It changes nothing that clients do."""
    metrics: Annotated[tuple[_Metric, ...], Field(min_length=1)] | None = None
    """What is measured of each client's model on its own test samples, by scikit-learn but for the losses;
    models are judged by the first. By default the accuracy and the loss of classes, the perplexity and the
    loss of texts, or the loss of a regression, the squared error, and of a method with an objective of its
    own that, too. "precision", "recall", "f1" and "auc" are means over the classes that are there; targets of
    a regression that are 0 or 1 each count as tags, of which a sample has those with an output above 0. A
    client of one class has no "auc", which the run's warnings say. "train_loss" is the loss of its training
    samples, "validation_loss" of those that it holds back: the summary then also has what the clients are
    judged by as of the evaluation at which each had the least of it."""
    compare_alone: bool = False
    """Also train each client alone, for as many steps as it took, to know who is better off than alone; see
    `protocol.alone` for what a run of its own tells."""
    shuffle_ties: _Ties = False
    """Order events of the same time at random, not first come, first served: exposes hidden dependence. true
    draws the order by `run.seed`; a number draws it by that number, so that all other draws stay."""
    keep_messages: bool = True
    """Keep each message in events.parquet; otherwise only counts, totals and the trace hash."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Mean accuracy for which the time and the bytes needed are reported."""
    target: PositiveWeight | None = None
    """The same of what clients are judged by, if that is something else: at most so much of a perplexity."""
    settled_iterations: PositiveInt | None = None
    """Iterations in its present life from which on a client counts as settled, where clients come during the
    run; by default a tenth of the median of those that were there all along."""

    @model_validator(mode="after")
    def _ends(self) -> "Run":
        at_most_one(self, "target_accuracy", "target")
        if self.duration is None and self.iterations is None:
            if self.budget is None:
                problem = "state 'duration', 'iterations', 'budget' or several (the first one ends the run)"
                raise SettingError("duration", None, problem)
            if self.budget.bytes is not None:
                problem = "needs 'duration' or 'iterations' beside it, as who sends nothing never spends it"
                raise SettingError("budget.bytes", SIZE.format(self.budget.bytes), problem)
        if self.converged is not None and self.evaluate_share < 1:
            problem = "must be 1 with run.converged, which looks at every client at each evaluation"
            raise SettingError("evaluate_share", self.evaluate_share, problem)
        every = self.evaluate_every.seconds
        if self.duration is not None and every is not None and every > self.duration:
            raise SettingError(
                "evaluate_every",
                str(self.evaluate_every),
                f"must be at most the duration ({DURATION.format(self.duration)})",
            )
        return self
