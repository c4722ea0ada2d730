"""Churn schedule: joins, departures, crashes and rejoins of clients, with their times."""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.kernel.clock import VirtualLoop

Kind = Literal["join", "leave", "crash", "rejoin"]
State = Literal["keep", "stale", "fresh"]
Presence = Literal["absent", "up", "left", "crashed"]

# presence of a client -> possible events -> presence after the event
_NEXT: dict[Presence, dict[Kind, Presence]] = {
    "absent": {"join": "up"},
    "up": {"leave": "left", "crash": "crashed"},
    "left": {"rejoin": "up"},
    "crashed": {"rejoin": "up"},
}


@dataclass(frozen=True, slots=True)
class ChurnEvent:
    """An event at `time_s` (virtual seconds) of all `clients` (numbers from 0), in this order.

    kind: "join": a client that was absent from the start joins. "leave": an announced departure. "crash": an
    unannounced one. "rejoin": a client that left or crashed comes back.
    state: the state after a rejoin: the state before the departure ("keep"), the model of the last backup
    ("stale"), or none ("fresh"). A client makes a backup every `backup_every_s` while it is up.
    """

    time_s: float
    kind: Kind
    clients: tuple[int, ...]
    state: State = "keep"
    backup_every_s: float = 60.0


def absent_at_start(events: Iterable[ChurnEvent]) -> tuple[int, ...]:
    """Return the clients that join later, in ascending order. All other clients are up at time 0."""
    return tuple(sorted({client for event in events if event.kind == "join" for client in event.clients}))


def rejoins(events: Iterable[ChurnEvent]) -> dict[int, list[ChurnEvent]]:
    """Return the rejoins of each client that rejoins, by time."""
    found: dict[int, list[ChurnEvent]] = {}
    for event in sorted(events, key=lambda event: event.time_s):
        if event.kind == "rejoin":
            for client in event.clients:
                found.setdefault(client, []).append(event)
    return found


def departures_with_rejoins(
    events: Iterable[ChurnEvent], after_s: float, within_s: float, clients: Container[int] | None = None
) -> set[tuple[int, float]]:
    """Return (client, time) of departures in (after_s, after_s + within_s], and of the rejoins that follow.

    A departure without a later rejoin is included, too. Without these events, the clients stay up.
    clients: the clients to consider; None: all.
    """
    kept: set[tuple[int, float]] = set()
    away: set[int] = set()  # departure found, rejoin not yet found
    for event in sorted(events, key=lambda event: event.time_s):
        now = after_s < event.time_s <= after_s + within_s
        for client in event.clients:
            if event.kind == "rejoin" and client in away:
                away.discard(client)
            elif now and event.kind in ("leave", "crash") and (clients is None or client in clients):
                away.add(client)
            else:
                continue
            kept.add((client, event.time_s))
    return kept


def eligible_clients(
    kind: Kind, time_s: float, clients: Iterable[int], events: Iterable[ChurnEvent]
) -> list[int]:
    """Return the clients among `clients` to which `kind` can happen at `time_s`, given the earlier events.

    Clients with an event at `time_s` or later are omitted, since an event of this `kind` might make the later
    one impossible. A join is possible for clients without any event.
    """
    everything = sorted(events, key=lambda event: event.time_s)
    presence: dict[int, Presence] = dict.fromkeys(absent_at_start(everything), "absent")
    if kind == "join":
        named = {client for event in everything for client in event.clients}
        return [client for client in clients if client not in named]
    for event in everything:
        if event.time_s < time_s:
            for client in event.clients:
                presence[client] = _NEXT[presence.get(client, "up")].get(event.kind, "up")
    busy = {client for event in everything if event.time_s >= time_s for client in event.clients}
    return [client for client in clients if kind in _NEXT[presence.get(client, "up")] and client not in busy]


def validate_schedule(events: Sequence[ChurnEvent], count: int) -> None:
    """Raise ValueError for the first event in time that is impossible among `count` clients.

    Two events of one client at the same time are rejected, as their order would be accidental. Two different
    values of `backup_every_s` for one client are rejected, too.
    """
    presence: dict[int, Presence] = dict.fromkeys(absent_at_start(events), "absent")
    changed_s: dict[int, float] = {}
    backups_s: dict[int, float] = {}
    for event in sorted(events, key=lambda event: event.time_s):
        when = f"at {event.time_s:g} s"
        for client in event.clients:
            if not 0 <= client < count:
                raise ValueError(f"there is no client {client}; allowed: 0 to {count - 1}")
            if changed_s.get(client) == event.time_s:
                raise ValueError(f"client {client} has two events {when}; must have at most one")
            before = presence.get(client, "up")
            if event.kind not in _NEXT[before]:
                why = _describe(before, changed_s.get(client))
                allowed = ", ".join(_NEXT[before])
                raise ValueError(f"client {client} cannot {event.kind} {when}: {why}; allowed: {allowed}")
            every_s = event.backup_every_s
            if event.state == "stale" and backups_s.setdefault(client, every_s) != every_s:
                raise ValueError(
                    f"client {client} makes a backup every {backups_s[client]:g} s for one rejoin, and "
                    f"every {every_s:g} s for the rejoin {when}; set the same backup_every for both"
                )
            presence[client] = _NEXT[before][event.kind]
            changed_s[client] = event.time_s


def _describe(presence: Presence, since_s: float | None) -> str:
    if presence == "absent":
        return "it has not joined yet"
    since = "from the start" if since_s is None else f"since {since_s:g} s"
    return f"it is up {since}" if presence == "up" else f"it has {presence} ({since})"


def schedule_callbacks(
    loop: VirtualLoop,
    events: Iterable[ChurnEvent],
    callbacks: Mapping[Kind, Callable[[int, ChurnEvent], object]],
    but: Container[tuple[int, float]] = (),
) -> list[asyncio.TimerHandle]:
    """Call `callbacks[event.kind](client, event)` at each event's time, for each of its clients in order.

    but: (client, time) of events that do not happen. They keep their timers, so that the order of all other
    events stays the same. Returns the timers, so that you can cancel them.
    """

    def happen(event: ChurnEvent, callback: Callable[[int, ChurnEvent], object]) -> None:
        for client in event.clients:
            if (client, event.time_s) not in but:
                callback(client, event)

    return [loop.call_at_named(event.time_s, event, happen, event, callbacks[event.kind]) for event in events]
