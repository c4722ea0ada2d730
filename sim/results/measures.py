"""What clients' models are measured by, in words; how, `sim.learning.metrics` knows."""

from dataclasses import dataclass

from sim.results import text

VALIDATION_LOSS = "validation_loss"
CAUGHT_UP_SHARE = 0.9
"""A newcomer has caught up at this share of the incumbents' mean, or where less is better at 1 / so much."""
_LABELLED = ("classification", "regression")
_ALL_BUT_QUADRATIC = (*_LABELLED, "language")


@dataclass(frozen=True)
class Measure:
    """A quantity by which clients are judged, for data of these tasks.

    tells_moves: whether it tells how newcomers and survivors fare, who are held against parts of it.
    """

    name: str
    label: str
    higher_is_better: bool
    is_share: bool = False
    tasks: tuple[str, ...] = _LABELLED
    tells_moves: bool = False

    def text(self, value: float | None) -> str:
        """A value for people."""
        return text.share(value) if self.is_share else text.number(value)

    def difference(self, value: float) -> str:
        """A difference of two values for people: with its sign, of shares in percentage points."""
        return f"{text.points(value)} points" if self.is_share else f"{value:+,.4g}"

    def loss(self, value: float) -> str:
        """By how much it became worse, above 0, for people: of shares in percentage points."""
        return text.depth(value) if self.is_share else text.number(value)

    @property
    def worsened(self) -> str:
        """The verb for what became worse."""
        return "fell" if self.higher_is_better else "rose"

    @property
    def caught_up(self) -> str:
        """What of the others' measure is enough to have caught up with them."""
        return f"{CAUGHT_UP_SHARE if self.higher_is_better else 1 / CAUGHT_UP_SHARE:.0%}".replace("%", " %")

    @property
    def y(self) -> str:
        """The y of a point in a tooltip, in plotly's words."""
        return "%{y:.1%}" if self.is_share else "%{y:.4~g}"


MEASURES = (
    Measure(
        "accuracy",
        "test accuracy",
        higher_is_better=True,
        is_share=True,
        tasks=_ALL_BUT_QUADRATIC,
        tells_moves=True,
    ),
    Measure("perplexity", "test perplexity", higher_is_better=False, tasks=("language",), tells_moves=True),
    Measure("distance", "distance to the own optimum", higher_is_better=False, tasks=("quadratic",)),
    Measure("loss", "test loss", higher_is_better=False, tasks=_ALL_BUT_QUADRATIC),
    Measure("objective", "own objective on test data", higher_is_better=False, tasks=_ALL_BUT_QUADRATIC),
    Measure("f1", "F1 score", higher_is_better=True),
    Measure("auc", "area under the ROC curve", higher_is_better=True),
    Measure("precision", "precision", higher_is_better=True),
    Measure("recall", "recall", higher_is_better=True),
    Measure("mae", "mean absolute error", higher_is_better=False, tasks=("regression",)),
    Measure("r2", "coefficient of determination", higher_is_better=True, tasks=("regression",)),
    Measure("train_loss", "training loss", higher_is_better=False, tasks=_ALL_BUT_QUADRATIC),
    Measure(VALIDATION_LOSS, "validation loss", higher_is_better=False, tasks=_ALL_BUT_QUADRATIC),
)


def measure_called(name: str) -> Measure:
    return next(measure for measure in MEASURES if measure.name == name)
