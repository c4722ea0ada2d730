"""Building blocks of the report, which `templates/blocks.html` renders as HTML."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.results import text
from sim.results.measures import Measure
from sim.results.report.figure import Figure

MOST_ROWS = 5_000  # of a table: bounds the size of the report
MOST_OPEN_ROWS = 15
_SEARCHED_ROWS = 10  # a table with this many rows has a search field


class Block:
    """A part of a section."""

    @property
    def kind(self) -> str:
        """Name of the block's class, which the templates use."""
        return type(self).__name__


@dataclass(frozen=True)
class Paragraph(Block):
    text: str


@dataclass(frozen=True)
class Heading(Block):
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Picture(Block):
    """A figure under a fixed name, so that the same run gives the same page.

    least_px: minimum width; on a smaller screen the picture scrolls.
    """

    name: str
    figure: Figure
    least_px: int = 0


@dataclass(frozen=True)
class Legend(Block):
    """The legend of a figure, outside of the figure, for small screens where the figure scrolls."""

    figure: Figure


@dataclass(frozen=True)
class Choice(Block):
    """A list to select a client. The page shows the traces with the selected name as `meta`."""

    names: Sequence[str]
    chosen: str


@dataclass(frozen=True)
class SideBySide(Block):
    """Columns side by side, or below each other on a narrow page."""

    columns: Sequence[Sequence[Block]]


@dataclass(frozen=True)
class Numbers(Block):
    """Lists of names and numbers, each as (title, rows)."""

    lists: Sequence[tuple[str, Sequence[tuple[str, str]]]]


@dataclass(frozen=True)
class Code(Block):
    """A collapsed verbatim text."""

    summary: str
    text: str


@dataclass(frozen=True)
class Cell:
    """A number as text, and its value for sorting: infinite values are last, None is unknown."""

    shown: str
    value: float | None

    @property
    def sorted_by(self) -> str:
        """Value as text for JavaScript."""
        return "" if self.value is None else f"{self.value:.6g}".replace("inf", "Infinity")


@dataclass(frozen=True)
class Table(Block):
    """A table sorted by a click on a column head; long tables are collapsed and searchable.

    Cells are numbers, strings are words. what: noun for the rows. order: description of the order, if any.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    what: str
    order: str = ""

    @property
    def kept(self) -> Sequence[Sequence[str | Cell]]:
        """Rows that the page contains."""
        return self.rows[:MOST_ROWS]

    @property
    def numeric(self) -> list[bool]:
        """For each column, whether all its cells are numbers."""
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


def number_cell(value: float | None, shown: Callable[[float | None], str] = text.number) -> Cell:
    """Return a cell with the number formatted by `shown`; None and NaN are unknown."""
    known = None if value is None or math.isnan(value) else value
    return Cell(shown(known), known)


def difference_cell(value: float, measure: Measure) -> Cell:
    """Return a cell with the difference of two values of a measure, for shares in percentage points."""
    return number_cell(value, text.percentage_points if measure.is_share else text.number)


def drop_cell(value: float | None, measure: Measure) -> Cell:
    """Return a cell with a drop of a measure, for shares in percentage points."""
    return number_cell(value, text.points if measure.is_share else text.number)


def time_reached_cell(after_s: float | None) -> Cell:
    """Return a cell with the time until an event; None or infinite: not reached."""
    never = after_s is None or math.isinf(after_s)
    return Cell("not reached", math.inf) if never else number_cell(after_s, text.duration)
