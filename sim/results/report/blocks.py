"""The parts that the report is made of; `templates/blocks.html` says how each becomes HTML."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.results import text
from sim.results.measures import Measure
from sim.results.report.figure import Figure

MOST_ROWS = 5_000  # of a table: bounds the size of the report
MOST_OPEN_ROWS = 15
_SEARCHED_ROWS = 10  # from so many on


class Block:
    """A part of a section."""

    @property
    def kind(self) -> str:
        """The name under which the templates know it."""
        return type(self).__name__


@dataclass(frozen=True)
class Paragraph(Block):
    text: str


@dataclass(frozen=True)
class Heading(Block):
    """A heading of what follows within a section."""

    text: str


@dataclass(frozen=True)
class Picture(Block):
    """A figure under a fixed name, so that the same run gives the same page.

    least_px: its least width; on a smaller screen it scrolls by itself.
    """

    name: str
    figure: Figure
    least_px: int = 0


@dataclass(frozen=True)
class Legend(Block):
    """The legend of a figure, outside of it: shown on a small screen, where the figure scrolls."""

    figure: Figure


@dataclass(frozen=True)
class Choice(Block):
    """A list to choose a client from. It shows the traces that have the chosen name as `meta`."""

    names: Sequence[str]
    chosen: str


@dataclass(frozen=True)
class SideBySide(Block):
    """Columns beside each other where there is room."""

    columns: Sequence[Sequence[Block]]


@dataclass(frozen=True)
class Numbers(Block):
    """Lists of names and numbers, (title, rows) each."""

    lists: Sequence[tuple[str, Sequence[tuple[str, str]]]]


@dataclass(frozen=True)
class Code(Block):
    """A folded text, word for word."""

    summary: str
    text: str


@dataclass(frozen=True)
class Cell:
    """A number as it is shown, and its value, by which it is sorted: infinite is last, None unknown."""

    shown: str
    value: float | None

    @property
    def sorted_by(self) -> str:
        """The value for JavaScript."""
        return "" if self.value is None else f"{self.value:.6g}".replace("inf", "Infinity")


@dataclass(frozen=True)
class Table(Block):
    """A table that a click on a head sorts; long ones are folded, named by `what`, and can be searched.

    Cells are numbers, strings are words. order: what the given order is, if anything.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    what: str
    order: str = ""

    @property
    def kept(self) -> Sequence[Sequence[str | Cell]]:
        """The rows that are in the page."""
        return self.rows[:MOST_ROWS]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers alone."""
        return [all(isinstance(row[column], Cell) for row in self.kept) for column in range(len(self.heads))]

    @property
    def is_long(self) -> bool:
        return len(self.rows) > MOST_OPEN_ROWS

    @property
    def is_searched(self) -> bool:
        return len(self.kept) >= _SEARCHED_ROWS


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]


def cell(value: float | None, shown: Callable[[float | None], str] = text.number) -> Cell:
    """A number as `shown` has it, by default a count or a measurement; None and NaN: unknown."""
    known = None if value is None or math.isnan(value) else value
    return Cell(shown(known), known)


def difference(value: float, measure: Measure) -> Cell:
    """A difference of two values of a measure; of shares in percentage points."""
    return cell(value, text.points if measure.is_share else text.number)


def reached(after_s: float | None) -> Cell:
    """How long it took until something was reached; None or infinite if it never was."""
    never = after_s is None or math.isinf(after_s)
    return Cell("not reached", math.inf) if never else cell(after_s, text.duration)
