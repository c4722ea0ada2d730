"""First difference between two runs that share a past, such as a run and its fork."""

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl
import pyarrow.parquet as pq

from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import EVENTS_COLUMNS, MESSAGE_EVENTS
from sim.scenario.shared_prefix import LATER

_COLUMNS = [name for name, *_ in EVENTS_COLUMNS]
_PASS = "pass a run and its fork, or two forks of one run"
_ROWS = 1 << 18  # rows of each run in memory at a time


class Difference(NamedTuple):
    """First event that only one of two runs has, or in which both differ.

    time_s: the time of the earlier of the two events. events: the event of each run in words. actor: name of
    the client or server of the earlier event.
    """

    time_s: float
    events: tuple[str, str]
    actor: str


def first_difference(one: RunDirectory, other: RunDirectory) -> Difference | None:
    """Return the first difference of two runs; None if all of their events are equal.

    If one of the runs kept no messages, only other events are compared. Raises UserError if the runs share no
    past: their scenarios differ from the start, or their events differ at time 0.
    """
    both, named = (one, other), f"{one.path} and {other.path} share no past"
    if key := _first_other_key(one, other):
        raise UserError(f"{named}: {key} differs; {_PASS}")
    with_messages = all(_kept_messages(each) for each in both)
    kept = [pq.read_schema(each.table_path("events")).names for each in both]
    columns = [name for name in _COLUMNS if all(name in names for names in kept)]  # older runs lack some
    found = _first_difference(columns, *(_events(each, with_messages) for each in both))
    if found is not None and not found.time_s > 0:
        events = " / ".join(found.events)
        raise UserError(f"{named}: their events differ at 0 s ({events}); {_PASS}")
    return found


def _first_other_key(one: RunDirectory, other: RunDirectory) -> str | None:
    """Return the first key of a scenario that cannot differ in a fork and differs; None without any."""
    tables = [dict(_leaves(_table(each))) for each in (one, other)]
    for key in dict.fromkeys([*tables[0], *tables[1]]):
        if tables[0].get(key) != tables[1].get(key) and not f"{key}.".startswith(_MAY_DIFFER):
            return key
    return None


_MAY_DIFFER = (*(f"{key}." for key in LATER), "run.name.", "run.question.")


def _table(run: RunDirectory) -> dict[str, Any]:
    try:
        return tomllib.loads(run.scenario_text())
    except tomllib.TOMLDecodeError:
        raise UserError(f"{run.path}: scenario.toml is damaged") from None


def _leaves(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _kept_messages(directory: RunDirectory) -> bool:
    messages = directory.scan("events").filter(pl.col("event").is_in(MESSAGE_EVENTS))
    return not messages.head(1).collect().is_empty()


def _events(directory: RunDirectory, with_messages: bool) -> pl.LazyFrame:
    events = directory.scan("events").select(_COLUMNS)
    return events if with_messages else events.filter(~pl.col("event").is_in(MESSAGE_EVENTS))


def _first_difference(columns: Sequence[str], one: pl.LazyFrame, other: pl.LazyFrame) -> Difference | None:
    """Return the first rows that differ in these columns."""
    start = 0
    while True:
        parts = [each.slice(start, _ROWS).collect() for each in (one, other)]
        count = min(map(len, parts))
        left, right = (part.head(count) for part in parts)
        unequal = [pl.Series(left[name].ne_missing(right[name])) for name in columns]
        places = pl.DataFrame(unequal).select(pl.any_horizontal(pl.all())).to_series().arg_true()
        place = int(places[0]) if len(places) else count
        rows = [part.row(place, named=True) if place < len(part) else None for part in parts]
        if any(row is not None for row in rows):
            return _difference(rows)
        if count < _ROWS:
            return None
        start += _ROWS


def _difference(rows: list[dict[str, Any] | None]) -> Difference:
    """Return the difference of two rows, at least one of which exists."""
    known = [row for row in rows if row is not None]
    earlier = min(known, key=lambda row: float(row["time"] or 0.0))
    one, other = ("none, the run has ended" if row is None else _event_text(row) for row in rows)
    return Difference(float(earlier["time"] or 0.0), (one, other), str(earlier["actor"] or ""))


def _event_text(row: dict[str, Any]) -> str:
    """Return an event in words."""
    event, actor, kind = row["event"], row["actor"], row["type"]
    detail = f" ({row['detail']})" if row["detail"] and event != "checksum" else ""
    if event in MESSAGE_EVENTS:
        return f"{kind} from {actor} to {row['peer']} is {event} at {row['time']:g} s{detail}"
    if event == "checksum":
        return f"evaluation of {actor} at {row['time']:g} s (checksum {row['detail']})"
    return f"{event} of {actor} at {row['time']:g} s{detail}"
