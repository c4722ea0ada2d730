"""Waiting times of each client's device by peer, found in the trace.

Handling a message takes no virtual time. If a device starts to compute at the time at which its client
received a message, it waited for that message, or for the last one of several. A wait that ends at any
other time was ended by a timer: a time limit or a pause of the protocol.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results.view import RunView


@dataclass
class Waits:
    """Virtual seconds that a client waited before its device computed again.

    by_sender: waits ended by a message, by its sender. kinds: types of these messages, by sender.
    by_clock_s: waits ended by a timer.
    """

    by_sender: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    by_clock_s: float = 0.0


def find_waits(view: RunView, clients: Sequence[int]) -> list[Waits] | None:
    """Return the waits of each of `clients`; None if messages or device intervals were not kept."""
    if (busy_of_each := view.intervals("busy", clients)) is None:
        return None
    spans = [
        _idle(busy, np.array([start for start, _ in view.presence[client]]))
        for client, busy in zip(clients, busy_of_each, strict=True)
    ]
    arrivals = view.last_arrivals(clients, [ended for _, ended in spans])
    if arrivals is None:
        return None
    return [_attributed(*span, last) for span, last in zip(spans, arrivals, strict=True)]


def kept_waiting_s(view: RunView) -> dict[str, float] | None:
    """Return the total time that clients waited for each client or server; None if unknown."""
    waits_of_all = find_waits(view, range(len(view.clients)))
    if waits_of_all is None:
        return None
    total_s: dict[str, float] = defaultdict(float)
    for waits in waits_of_all:
        for sender, seconds in waits.by_sender.items():
            total_s[sender] += seconds
    return total_s


def _idle(
    busy: NDArray[np.float64], joined_s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return starts [K] and ends [K] of the waits before the spans of work [B, 2].

    joined_s: times at which the client joined, ascending; no wait starts earlier.
    """
    if not len(busy) or not len(joined_s):
        return np.empty(0), np.empty(0)
    last_join = joined_s[np.searchsorted(joined_s, busy[:, 0], side="right").clip(1) - 1]
    started = np.maximum(np.concatenate([last_join[:1], busy[:-1, 1]]), last_join)
    waited = busy[:, 0] > started
    return started[waited], busy[waited, 0]


def _attributed(started: NDArray[np.float64], ended: NDArray[np.float64], arrivals: pl.DataFrame) -> Waits:
    waits, times = Waits(), arrivals["time"].to_numpy()
    senders, kinds = arrivals["actor"].to_list(), arrivals["type"].to_list()
    last = np.searchsorted(times, ended, side="right") - 1
    by_message = (last >= 0) & (times[last] == ended) if len(times) else np.zeros(len(ended), bool)
    seconds = ended - started
    waits.by_clock_s = float(seconds[~by_message].sum())
    for row, took_s in zip(last[by_message].tolist(), seconds[by_message].tolist(), strict=True):
        waits.by_sender[senders[row]] += took_s
        waits.kinds[senders[row]][kinds[row]] = None
    return waits
