"""State of each client over time: training, waiting, down, or finished, and the event that ended a wait."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from sim.results.view import RunView

WAITS, TRAINS, DOWN, FINISHED = range(4)
"""States: up without a job, up with a job, not up, up with an exhausted budget."""
STATES = ("waits", "trains", "down", "finished")
TIMER, CUT_SHORT, UNKNOWN = -1, -2, -3
"""Ends of waits without a known message: a time limit or pause; a departure or the end of the run; a run
that kept no messages."""


class StateInterval(NamedTuple):
    """Time in which a client has one state: from `start_s` to the start of its next interval.

    sender, type: the message that ended a wait; without a message, `sender` is TIMER, CUT_SHORT or UNKNOWN.
    """

    start_s: float
    state: int
    sender: str | int = CUT_SHORT
    type: str = ""


def client_states(view: RunView) -> list[list[StateInterval]]:
    """Return the state intervals of each client, in order, from time 0 to the end of the run.

    At the time of a change, the new state applies. Without intervals of devices, a client that is up counts
    as waiting.
    """
    clients = range(len(view.clients))
    recorded = view.intervals("busy", clients) or [np.empty((0, 2))] * len(clients)
    busy = [[tuple(span) for span in spans.tolist()] for spans in recorded]
    spent_s = np.nan_to_num(view.spent_s, nan=np.inf).tolist()
    found = [list(_stretches(view, each, busy[each], spent_s[each])) for each in clients]
    ended = [np.array([end_s for _, end_s in _waits_before_work(each)], dtype=np.float64) for each in found]
    arrivals = view.last_arrivals(clients, ended)
    if arrivals is None:
        return [[_with_waking_message(each, UNKNOWN) for each in stretches] for stretches in found]
    return [_with_waking_messages(*pair) for pair in zip(found, arrivals, strict=True)]


def state_at(stretches: Sequence[StateInterval], time_s: float) -> StateInterval:
    """Return the state interval of a client at a time, after all events of that time."""
    starts = [each.start_s for each in stretches]
    return stretches[max(0, int(np.searchsorted(starts, time_s, side="right")) - 1)]


def _stretches(
    view: RunView, client: int, busy: Sequence[tuple[float, float]], spent_s: float
) -> Iterator[StateInterval]:
    """Yield the state intervals of a client; none is empty, and successive ones differ in state."""
    last: StateInterval | None = None
    for start_s, end_s, state in _pieces(view, client, busy, spent_s):
        if start_s >= end_s:
            continue
        if last is None or last.state != state:
            last = StateInterval(0.0 if last is None else start_s, state)
            yield last
    if last is None:
        yield StateInterval(0.0, DOWN)


def _pieces(
    view: RunView, client: int, busy: Sequence[tuple[float, float]], spent_s: float
) -> Iterator[tuple[float, float, int]]:
    """Yield adjacent (start_s, end_s, state) from 0 to the end; some are empty."""
    now_s, number = 0.0, 0
    for up_s, gone_s in view.presence[client]:
        yield now_s, up_s, DOWN
        now_s, until_s = up_s, min(gone_s, spent_s)
        while number < len(busy) and busy[number][0] < until_s:
            start_s, end_s = busy[number]
            yield now_s, start_s, WAITS
            yield max(now_s, start_s), min(end_s, until_s), TRAINS
            now_s = max(now_s, min(end_s, until_s))
            if end_s > until_s:
                break
            number += 1
        yield now_s, until_s, WAITS
        yield max(now_s, until_s), gone_s, FINISHED
        now_s = max(now_s, gone_s)
        while number < len(busy) and busy[number][1] <= now_s:
            number += 1
    yield now_s, view.end_s, DOWN


def _waits_before_work(stretches: Sequence[StateInterval]) -> list[tuple[int, float]]:
    """Return (position, end_s) of the waits that training follows."""
    pairs = enumerate(pairwise(stretches))
    return [(n, after.start_s) for n, (each, after) in pairs if (each.state, after.state) == (WAITS, TRAINS)]


def _with_waking_messages(stretches: list[StateInterval], arrivals: pl.DataFrame) -> list[StateInterval]:
    """Add to the waits of a client the messages that ended them."""
    by_time = {time_s: (actor, kind) for time_s, actor, kind in arrivals["time", "actor", "type"].iter_rows()}
    found = list(stretches)
    for position, end_s in _waits_before_work(stretches):
        sender, kind = by_time.get(end_s, (None, None))
        found[position] = _with_waking_message(
            stretches[position], TIMER if sender is None else sender, kind or ""
        )
    return found


def _with_waking_message(stretch: StateInterval, sender: str | int, kind: str = "") -> StateInterval:
    return stretch._replace(sender=sender, type=kind) if stretch.state == WAITS else stretch
