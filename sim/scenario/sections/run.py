"""Name, duration, budgets and recording of a run."""

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
from sim.learning.default_metrics import DEFAULT_METRICS
from sim.plugins.point import PluginPoint
from sim.results.measures import MEASURES
from sim.scenario.sections.measures import OwnMeasure

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
"""Limit of a run's name in bytes: the folder's name, with seed and hash, may have 255 in file systems."""


def _name(value: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", value):
        raise ValueError(f"must be {_NAME_ALLOWED}, and must not begin with . or -")
    if len(value.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"must have at most {NAME_BYTES_MAX} bytes, but has {len(value.encode()):,}")
    return value


_NAME_ALLOWED = "letters, digits, and . _ -"
_Name = Annotated[
    str,
    AfterValidator(_name),
    # Letters of all scripts: JavaScript's \w is ASCII only, so this pattern lists the forbidden characters.
    WithJsonSchema({"type": "string", "x-allowed": _NAME_ALLOWED, "pattern": r"^[^ -,/:-@\[-^`{-~]+$"}),
]


def _about_metrics() -> str:
    """Return the text of `run.metrics`: all metrics, the defaults of each task, and undefined values."""
    metrics = []
    for each in MEASURES:
        notes = [text for text in (each.label, each.about) if text not in ("", each.name)]
        metrics.append(f'"{each.name}"' + (f" ({'; '.join(notes)})" if notes else ""))
    defaults = [f"{' and '.join(names)} ({task})" for task, names in DEFAULT_METRICS.items()]
    undefined = [f'"{each.name}" if they {each.undefined_if}' for each in MEASURES if each.undefined_if]
    return (
        "Metrics of each client's model on its test samples, computed by scikit-learn except for the losses: "
        f"{', '.join(metrics)}. The first metric is the quality in reports. By default: "
        f"{', '.join(defaults)}, and the objective of a method that has one. Regression targets that are all "
        "0 or 1 count as tags, like classes, and a sample has the tags with an output above 0. Test samples "
        f"may leave a metric undefined, {' and '.join(undefined)}; a warning of the run reports this."
    )


class Run(Settings):
    """Name, duration, budgets and recording of a run."""

    name: _Name | None = None
    """Name in results; by default the file's name without its extension, with "-" for other characters."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random number of the run."""
    duration: PositiveDuration | None = None
    """Virtual time after which the run ends."""
    iterations: Annotated[PositiveInt, Within(1, 1_000_000_000)] | None = None
    """Iterations of every running client after which the run ends."""
    budget: ClientBudget | None = None
    """Budget of training, time or sent bytes of each client, for comparisons of methods. The run ends when
    all clients that are up or will join have used it."""
    converged: Convergence | None = None
    """Criterion of convergence; the run ends at the evaluation that meets it."""
    evaluate_every: _Every
    """Time between two evaluations, which cost no virtual time."""
    evaluate_share: ShareAboveZero = 1.0
    """Share of the clients that are up whose models an evaluation measures, drawn again for each evaluation;
    the last evaluation measures all. This key does not change the clients' actions."""
    metrics: Annotated[
        Annotated[tuple[_Metric, ...], Field(min_length=1)] | None, Field(description=_about_metrics())
    ] = None
    measures: tuple[Annotated[OwnMeasure, PluginPoint(OwnMeasure)], ...] | None = None
    """Your own functions that measure models, each with its direction, in addition to `metrics`. The first
    one is the quality in reports."""
    compare_alone: bool = False
    """Also train each client alone, for the same number of steps, to find the clients that benefit from
    collaboration; with `protocol.alone`, a separate run trains the clients alone."""
    shuffle_ties: _Ties = False
    """Order events of the same time at random instead of first come, first served: this exposes results that
    depend on this order. true draws the order by `run.seed`; a number draws it by that number, so that all
    other draws stay the same."""
    keep_messages: bool = True
    """Keep each message in events.parquet; otherwise only counts, totals and the trace hash."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Target of the mean accuracy; the run reports the time and the bytes needed to reach it."""
    target: PositiveWeight | None = None
    """Target for a quality other than accuracy, such as the highest perplexity that is good enough."""
    settled_iterations: PositiveInt | None = None
    """Iterations in its current session after which a client counts as settled, if clients join during the
    run; by default a tenth of the median iterations of the clients that were up during the whole run."""

    @model_validator(mode="after")
    def _ends(self) -> "Run":
        at_most_one(self, "target_accuracy", "target")
        if self.duration is None and self.iterations is None:
            if self.budget is None:
                problem = (
                    "set 'duration', 'iterations', 'budget' or several of these (the first one that is "
                    "reached "
                    "ends the run)"
                )
                raise SettingError("duration", None, problem)
            if self.budget.bytes is not None:
                problem = (
                    "also needs 'duration' or 'iterations': a client that sends nothing never uses this "
                    "budget"
                )
                raise SettingError("budget.bytes", SIZE.format(self.budget.bytes), problem)
        if self.converged is not None and self.evaluate_share < 1:
            problem = "must be 1 with run.converged, which needs every client at each evaluation"
            raise SettingError("evaluate_share", self.evaluate_share, problem)
        every = self.evaluate_every.seconds
        if self.duration is not None and every is not None and every > self.duration:
            raise SettingError(
                "evaluate_every",
                str(self.evaluate_every),
                f"must be at most the duration ({DURATION.format(self.duration)})",
            )
        return self
