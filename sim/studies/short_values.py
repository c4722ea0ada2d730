"""Short values of axes for lists of tables, such as `churn`: the entries that not all runs have."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from actors.settings.units import DURATION
from sim.errors import one_line
from sim.results import text
from sim.studies.index import Value

_LONG = 40  # characters; shorter values are shown as they are
_SHOWN_MAX = 80  # characters of the entries of one run


def short_values(values: Sequence[Value]) -> list[Value]:
    """Return a short value for the key of each run; different values stay different.

    A list of tables, written as JSON, becomes the entries that not all runs have, "unchanged" without one.
    """
    lists = [_entries(value) for value in values]
    if all(each is None for each in lists) or max(len(str(value)) for value in values) <= _LONG:
        return list(values)
    of_all = set.intersection(*[{json.dumps(entry) for entry in each} for each in lists if each is not None])
    found: dict[Value, Value] = {}
    for value, entries in zip(values, lists, strict=True):
        if entries is None:
            found[value] = value
            continue
        own = [entry for entry in entries if json.dumps(entry) not in of_all]
        short = one_line("; ".join(", ".join(_words(entry)) for entry in own) or "unchanged", _SHOWN_MAX)
        numbered = itertools.chain([short], (f"{short} ({number})" for number in itertools.count(2)))
        if value not in found:
            found[value] = next(each for each in numbered if each not in found.values())
    return [found[value] for value in values]


def _entries(value: Value) -> list[Any] | None:
    """Return a list of tables that is written as JSON, or None."""
    if not isinstance(value, str) or not value.startswith("[{"):
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(each, dict) for each in found) else None


def _words(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of an entry: what happens to which clients, then when, or else all its keys."""
    if not {"event", "clients", "at"} <= entry.keys():
        yield from (f"{key} {_shown(value)}" for key, value in entry.items())
        return
    clients = entry["clients"]
    named = ", ".join(map(str, clients)) if isinstance(clients, list) else str(clients)
    yield f"{entry['event']} of {named} at {_shown(entry['at'])}"


def _shown(value: Any) -> str:
    """Format a value; times are rounded to three digits."""
    try:
        shown = text.duration(DURATION.parse(value)) if isinstance(value, str) else str(value)
        return shown.replace("\N{NO-BREAK SPACE}", " ")
    except ValueError:
        return str(value)
