"""For which peers each client's device waited, found in the trace.

Handling a message takes no virtual time. So a device that begins to compute at the instant at which its
client got a message had waited for that message; of several messages in one instant, for the last. A wait
that ends at any other instant was ended by a timer: a time limit, or a pause of the protocol.
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
    """Virtual seconds that a client waited before its device began to compute again.

    by_sender: waits that a message ended, by its sender. kinds: by sender the types of these messages.
    by_clock_s: waits that a timer ended.
    """

    by_sender: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    by_clock_s: float = 0.0


def waits_of(view: RunView, clients: Sequence[int]) -> list[Waits] | None:
    """What each of `clients` waited for; None where no message, or no device's work, was kept."""
    if not view.has_intervals or not view.has_messages:
        return None
    spans = [
        _idle(busy, np.array([start for start, _ in view.presence[client]]))
        for client, busy in zip(clients, view.intervals("busy", clients), strict=True)
    ]
    arrivals = view.last_arrivals(clients, [ended for _, ended in spans])
    return [_attributed(*span, last) for span, last in zip(spans, arrivals, strict=True)]


def kept_waiting_s(view: RunView) -> dict[str, float] | None:
    """For how long others waited for each client, all of them together; None where that is not known."""
    everybody = waits_of(view, range(len(view.clients)))
    if everybody is None:
        return None
    total_s: dict[str, float] = defaultdict(float)
    for waits in everybody:
        for sender, seconds in waits.by_sender.items():
            total_s[sender] += seconds
    return total_s


def _idle(
    busy: NDArray[np.float64], came_s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When each wait that work ended began and ended, [K] each, by the spans of work [B, 2].

    came_s: when the client came, each time, ascending; no wait began before.
    """
    if not len(busy) or not len(came_s):
        return np.empty(0), np.empty(0)
    came_last = came_s[np.searchsorted(came_s, busy[:, 0], side="right").clip(1) - 1]
    begun = np.maximum(np.concatenate([came_last[:1], busy[:-1, 1]]), came_last)
    waited = busy[:, 0] > begun
    return begun[waited], busy[waited, 0]


def _attributed(begun: NDArray[np.float64], ended: NDArray[np.float64], arrivals: pl.DataFrame) -> Waits:
    waits, times = Waits(), arrivals["time"].to_numpy()
    senders, kinds = arrivals["actor"].to_list(), arrivals["type"].to_list()
    last = np.searchsorted(times, ended, side="right") - 1
    by_message = (last >= 0) & (times[last] == ended) if len(times) else np.zeros(len(ended), bool)
    seconds = ended - begun
    waits.by_clock_s = float(seconds[~by_message].sum())
    for place, took_s in zip(last[by_message].tolist(), seconds[by_message].tolist(), strict=True):
        waits.by_sender[senders[place]] += took_s
        waits.kinds[senders[place]][kinds[place]] = None
    return waits
