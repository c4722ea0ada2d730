"""Parts of a scenario that do not fit into a run that an option has shortened."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from actors.settings.units import DURATION
from sim.scenario.key_path import set_value_at, value_at
from sim.scenario.overrides import overlap

_DURATION, _EVERY = "run.duration", "run.evaluate_every"
_STARTS = {
    "churn": "at",
    "change": "at",
    "server.crash": "at",
    "network.partition": "start",
    "devices.slowdown": "start",
}
"""Lists of events, and the key of each event's start."""


def fit_to_duration(raw: dict[str, Any], stated: Collection[str]) -> list[str]:
    """Change the contents of a file to fit a run.duration from an option. Returns a line for each change.

    Events of the file that do not start before the end of the run are left out, and the time between
    evaluations becomes at most the duration. stated: the keys that options set; their values do not change,
    and are rejected later if they do not fit.
    """
    end_s = _seconds(value_at(raw, _DURATION)) if _DURATION in stated else math.nan
    lines = []
    if _seconds(value_at(raw, _EVERY)) > end_s and not _is_stated(_EVERY, stated):
        set_value_at(raw, _EVERY, value_at(raw, _DURATION))
        lines.append(f"{_EVERY} is longer than the run, and is now {DURATION.format(end_s)}")
    for key, start in _STARTS.items():
        events = value_at(raw, key)
        if not isinstance(events, list) or _is_stated(key, stated):
            continue
        kept = [each for each in events if not _start_of(each, start) >= end_s]
        if left_out := len(events) - len(kept):
            set_value_at(raw, key, kept)
            lines.append(
                f"left out of {key}: entries that do not start before the end of the run "
                f"({left_out:,} of {len(events):,})"
            )
    return lines


def _is_stated(key: str, stated: Collection[str]) -> bool:
    return any(overlap(key, other) for other in stated)


def _start_of(event: Any, key: str) -> float:
    return _seconds(event.get(key)) if isinstance(event, Mapping) else math.nan


def _seconds(value: Any) -> float:
    """Return a duration in seconds; NaN for other values, which are rejected later."""
    try:
        return DURATION.parse(value) if isinstance(value, str) else math.nan
    except ValueError:
        return math.nan
