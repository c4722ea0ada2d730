"""Tables of the report: folded where they are long, and sorted and searched in the browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from sim.results import text

MOST_ROWS = 5_000  # of a table: bounds the size of the report
MOST_OPEN_ROWS = 15
_SEARCHED_ROWS = 10  # from so many on


@dataclass(frozen=True)
class Cell:
    """A number as it is shown, and its value, by which it is sorted: infinite is last, None unknown."""

    shown: str
    value: float | None


def plain_table(rows: Sequence[Sequence[str]]) -> str:
    """Names and numbers in two columns, without heads."""
    body = "".join(
        f"<tr><td>{escape(name)}</td><td class=number>{escape(number)}</td></tr>" for name, number in rows
    )
    return f'<div class="scroll"><table><tbody>{body}</tbody></table></div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str | Cell]], what: str, order: str = "") -> str:
    """A table that a click on a head sorts; long ones are folded, named by `what`, and can be searched.

    Cells are numbers, strings are words, which are escaped. order: what the given order is, if anything.
    """
    kept = rows[:MOST_ROWS]
    numeric = [all(isinstance(row[column], Cell) for row in kept) for column in range(len(heads))]
    head = "".join(
        f'<th scope="col"{" class=number" if is_number else ""}><button>{escape(name)}</button></th>'
        for name, is_number in zip(heads, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in kept)
    content = (
        f'<div class="scroll{" tall" if len(kept) > MOST_OPEN_ROWS else ""}"><table class="sortable">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )
    if len(rows) > MOST_ROWS:
        content += f"<p>The first {MOST_ROWS:,} of {len(rows):,} {escape(what)}.</p>"
    if len(kept) >= _SEARCHED_ROWS:
        content = f'<div class="find"><input type="search" placeholder="Search {escape(what)}" ' + (
            f'aria-label="Search {escape(what)}"><output></output></div>{content}'
        )
    state = " open" if len(rows) <= MOST_OPEN_ROWS else ""
    label = f"Table of the {len(rows):,} {escape(what)}" + (f", {order}" if order else "")
    return f"<details{state}><summary>{label}</summary>{content}</details>"


def number(value: float | None) -> Cell:
    """A count or a measurement."""
    return Cell(text.number(value), value)


def share(value: float | None) -> Cell:
    """A share of 1, in percent."""
    return Cell(text.share(value), value)


def points(value: float | None) -> Cell:
    """A difference of two shares, with its sign."""
    return Cell(text.points(value), value)


def seconds(value: float | None) -> Cell:
    """A stretch of virtual time."""
    return Cell(text.duration(value), value)


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    value = "" if cell.value is None else f" data-v={cell.value:.6g}".replace("inf", "Infinity")
    return f"<td class=number{value}>{escape(cell.shown)}</td>"
