"""Churn: which schedules are possible, and that events happen when and to whom the schedule says."""

import asyncio
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.world.churn.schedule import (
    ChurnEvent,
    Kind,
    absent_at_start,
    eligible_clients,
    schedule_callbacks,
    validate_schedule,
)
from tests.virtual_time import run_virtual

KINDS: tuple[Kind, ...] = get_args(Kind)


def event(time_s: float, kind: Kind, *clients: int) -> ChurnEvent:
    return ChurnEvent(time_s, kind, clients)


def test_a_possible_schedule_passes() -> None:
    validate_schedule(
        [
            event(60.0, "rejoin", 0, 2),  # in any order: time counts
            event(10.0, "join", 3),
            event(20.0, "crash", 0),
            event(20.0, "leave", 2, 3),
            event(90.0, "crash", 0),
            event(95.0, "rejoin", 3),
        ],
        count=4,
    )
    validate_schedule([], count=1)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([event(5, "crash", 4)], "there is no client 4; allowed: 0 to 3"),
        (
            [event(9, "join", 3), event(5, "leave", 3)],
            "client 3 cannot leave at 5 s: it has not joined yet; allowed: join",
        ),
        (
            [event(5, "join", 3), event(9, "join", 3)],
            "client 3 cannot join at 9 s: it is up since 5 s; allowed: leave, crash",
        ),
        (
            [event(5, "leave", 0), event(9, "crash", 0)],
            "client 0 cannot crash at 9 s: it has left (since 5 s); allowed: rejoin",
        ),
        (
            [event(5, "rejoin", 1)],
            "client 1 cannot rejoin at 5 s: it is up from the start; allowed: leave, crash",
        ),
        (
            [event(5, "crash", 1), event(5, "rejoin", 1)],
            "client 1 has two events at 5 s; must have at most one",
        ),
        (
            [
                event(1, "crash", 1),
                ChurnEvent(2.0, "rejoin", (1,), "stale", 60.0),
                event(3, "leave", 1),
                ChurnEvent(4.0, "rejoin", (1,), "stale", 10.0),
            ],
            "client 1 makes a backup every 60 s for one rejoin, and every 10 s for the rejoin "
            "at 4 s; set the same backup_every for both",
        ),
    ],
)
def test_an_impossible_schedule_is_refused_with_the_reason(events: list[ChurnEvent], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        validate_schedule(events, count=4)
    assert str(refusal.value) == message


def test_clients_that_join_are_absent_at_the_start() -> None:
    events = [
        event(5.0, "join", 7, 2),
        event(1.0, "crash", 0),
        event(9.0, "rejoin", 0),
        event(6.0, "join", 5),
    ]
    assert absent_at_start(events) == (2, 5, 7)
    assert absent_at_start([]) == ()


events_of_three_clients = st.lists(
    st.builds(event, st.integers(0, 6), st.sampled_from(KINDS), st.integers(0, 2)), max_size=8
)


@given(events_of_three_clients)
def test_a_schedule_passes_exactly_if_it_can_be_played(events: list[ChurnEvent]) -> None:
    up = {client: client not in absent_at_start(events) for client in range(3)}
    joined = dict(up)
    possible = len({(event.time_s, event.clients) for event in events}) == len(events)
    for happening in sorted(events, key=lambda event: event.time_s):
        (client,) = happening.clients
        match happening.kind:
            case "join":
                possible &= not joined[client]
                joined[client] = up[client] = True
            case "rejoin":
                possible &= joined[client] and not up[client]
                up[client] = True
            case "leave" | "crash":
                possible &= up[client]
                up[client] = False
    try:
        validate_schedule(events, count=3)
    except ValueError:
        assert not possible
    else:
        assert possible


def test_events_happen_at_their_times_to_their_clients_in_order() -> None:
    async def scenario() -> list[tuple[float, str, int, str]]:
        loop = asyncio.get_running_loop()
        log: list[tuple[float, str, int, str]] = []

        def note(client: int, event: ChurnEvent) -> None:
            log.append((loop.time(), event.kind, client, event.state))

        events = [
            ChurnEvent(8.0, "rejoin", (2,), "fresh"),
            event(2.0, "leave", 3, 1),
            event(2.0, "crash", 2),
            event(4.5, "join", 0),
        ]
        schedule_callbacks(loop, events, dict.fromkeys(KINDS, note))
        assert log == []
        await asyncio.sleep(10.0)
        return log

    assert run_virtual(scenario()) == [
        (2.0, "leave", 3, "keep"),
        (2.0, "leave", 1, "keep"),
        (2.0, "crash", 2, "keep"),
        (4.5, "join", 0, "keep"),
        (8.0, "rejoin", 2, "fresh"),
    ]


def test_what_is_still_to_come_can_be_cancelled() -> None:
    async def scenario() -> list[int]:
        log: list[int] = []
        timers = schedule_callbacks(
            asyncio.get_running_loop(),
            [event(1.0, "crash", 0), event(2.0, "crash", 1)],
            {"crash": lambda client, _: log.append(client)},
        )
        await asyncio.sleep(1.5)
        for timer in timers:
            timer.cancel()
        await asyncio.sleep(3.0)
        return log

    assert run_virtual(scenario()) == [0]


def test_whoever_is_already_to_go_later_is_not_chosen_again() -> None:
    spread = [ChurnEvent(17.0, "crash", (0,)), ChurnEvent(12.0, "crash", (1,))]
    assert eligible_clients("crash", 15.0, range(4), spread) == [2, 3]
    assert eligible_clients("rejoin", 15.0, range(4), spread) == [1]
