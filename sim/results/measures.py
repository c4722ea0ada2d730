"""Names and properties of the measures of models; `sim.learning.metrics` computes them."""

from collections.abc import Iterable
from dataclasses import dataclass

from sim.results import text

VALIDATION_LOSS = "validation_loss"
ALONE = "_alone"  # suffix for measures of models trained alone
TOTALS = ("training_steps", "gradients", "samples_seen")  # of a client over all sessions, at the end
OWN_METRICS = frozenset(("alive", "bytes_sent", "messages_sent", "steps_taken", "flops", *TOTALS))
"""Names reserved for the observer, besides measures."""
CAUGHT_UP_SHARE = 0.9
"""Share of the incumbents' mean at which a newcomer has caught up; 1 / share if smaller is better."""
_LABELLED = ("classification", "regression")
_ALL_BUT_QUADRATIC = (*_LABELLED, "language")
_OF_CLASSES = "mean over the classes that occur"


@dataclass(frozen=True)
class Measure:
    """A quantity that measures the models of clients.

    tells_moves: whether catch-up and recovery are defined, as shares of the measured values. is_of_one:
    whether the values are shares, from 0 to 1. undefined_if: property of a client's test samples for which
    the quantity is undefined, for a warning. about: text that the description of `run.metrics` adds to the
    label.
    """

    name: str
    label: str
    higher_is_better: bool
    is_share: bool = False
    is_of_one: bool = False
    tasks: tuple[str, ...] = _LABELLED
    tells_moves: bool = False
    undefined_if: str = ""
    about: str = ""

    def text(self, value: float | None) -> str:
        """Format a value."""
        return text.share(value) if self.is_share else text.number(value)

    def difference(self, value: float) -> str:
        """Format a difference of two values, with sign; differences of shares are in percentage points."""
        return f"{text.percentage_points(value)} points" if self.is_share else f"{value:+,.4g}"

    def loss(self, value: float) -> str:
        """Format a loss, a number above 0; losses of shares are in percentage points."""
        return text.drop_in_points(value) if self.is_share else text.number(value)

    @property
    def worsened(self) -> str:
        """Verb for a change to the worse."""
        return "fell" if self.higher_is_better else "rose"

    @property
    def caught_up(self) -> str:
        """Share of other clients' measure at which a newcomer has caught up, as text."""
        return f"{CAUGHT_UP_SHARE if self.higher_is_better else 1 / CAUGHT_UP_SHARE:.0%}"

    @property
    def y(self) -> str:
        """Template for the y of a point in plotly's tooltips."""
        return "%{y:.1%}" if self.is_share else "%{y:.4~g}"


MEASURES = [
    Measure(
        "accuracy",
        "test accuracy",
        higher_is_better=True,
        is_share=True,
        tasks=_ALL_BUT_QUADRATIC,
        tells_moves=True,
    ),
    Measure("perplexity", "test perplexity", higher_is_better=False, tasks=("language",), tells_moves=True),
    Measure("distance", "distance to the local optimum", higher_is_better=False, tasks=("quadratic",)),
    Measure(
        "loss",
        "test loss",
        higher_is_better=False,
        tasks=_ALL_BUT_QUADRATIC,
        about="in a regression the squared error",
    ),
    Measure("objective", "objective on test data", higher_is_better=False, tasks=_ALL_BUT_QUADRATIC),
    Measure("f1", "F1 score", higher_is_better=True, is_of_one=True, about=_OF_CLASSES),
    Measure(
        "auc",
        "area under the ROC curve",
        higher_is_better=True,
        is_of_one=True,
        undefined_if="are all of one class",
        about=_OF_CLASSES,
    ),
    Measure("precision", "precision", higher_is_better=True, is_of_one=True, about=_OF_CLASSES),
    Measure("recall", "recall", higher_is_better=True, is_of_one=True, about=_OF_CLASSES),
    Measure("mae", "mean absolute error", higher_is_better=False, tasks=("regression",)),
    Measure(
        "r2",
        "coefficient of determination",
        higher_is_better=True,
        tasks=("regression",),
        undefined_if="are fewer than two",
    ),
    Measure("train_loss", "training loss", higher_is_better=False, tasks=_ALL_BUT_QUADRATIC),
    Measure(
        VALIDATION_LOSS,
        "validation loss",
        higher_is_better=False,
        tasks=_ALL_BUT_QUADRATIC,
        about="of the samples held out; the summary also lists the quality at each client's lowest",
    ),
    Measure(
        "validation_accuracy",
        "validation accuracy",
        higher_is_better=True,
        is_share=True,
        tasks=("classification",),
    ),
]
"""Measures of coterie, and those of the user's functions that `add_measure` added."""
OF_COTERIE = frozenset(measure.name for measure in MEASURES)


def add_measure(measure: Measure) -> None:
    """Add a measure of the user's function, of a scenario or of earlier results; the latest one applies."""
    if measure.name not in OF_COTERIE:
        MEASURES[:] = [*[each for each in MEASURES if each.name != measure.name], measure]


def own_measures(names: Iterable[str]) -> list[Measure]:
    """Return the named measures that are not coterie's."""
    return [measure_called(name) for name in names if name not in OF_COTERIE]


def model_metric_name(metric: str, model: str) -> str:
    """Return the name of a metric of one model, for clients that have several."""
    return f"{metric}_of_{model}"


def base_metric_name(metric: str) -> str:
    """Return the name of the quantity of which a metric is a variant, or the metric itself.

    The variants of "accuracy" are "accuracy_alone", "accuracy_of_shared", and values such as
    "accuracy.worst_decile". The measure "accuracy" has the properties of all of them.
    """
    return metric.partition(".")[0].removesuffix(ALONE).partition("_of_")[0]


def measure_called(name: str) -> Measure:
    """Return a measure by name; of unknown ones, as of a run that is not finished, higher is better."""
    known = (measure for measure in MEASURES if measure.name == name)
    return next(known, Measure(name, name.replace("_", " "), higher_is_better=True))
