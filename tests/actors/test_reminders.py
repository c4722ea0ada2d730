"""When peers are asked for a message that is overdue, and what is learned of how long that takes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

from actors.delivery.reminders import Reminders
from actors.delivery.round_trips import PROMPT, RoundTrips
from actors.message import Envelope, RoundMark
from tests.virtual_time import run_virtual


@dataclass(frozen=True)
class News:
    """What is waited for."""


def told(peer: str, repeat: int | None = None, delayed_s: float = 0.0) -> Envelope:
    return Envelope(peer, "me", News(), RoundMark(0, True, repeat, delayed_s))


Requests = list[tuple[float, str, int]]


def play(
    script: Callable[[Reminders, RoundTrips], Awaitable[object]],
    *,
    lossy: bool = True,
    late_s: float | None = 0.25,
    answer_s: float | None = None,
    initial_s: float = 1.0,
) -> tuple[Requests, RoundTrips]:
    """Reminders for the peers a and b, of whom it is known how late they are and how soon they answer."""
    requests: Requests = []
    trips = RoundTrips()
    trips.lossy, trips.initial_s = lossy, initial_s

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seconds, kind in ((late_s, News), (answer_s, Reminders)):
            for peer in "ab" if seconds is not None else "":
                for _ in range(100):  # so often that the deviation is gone
                    trips.of(peer, kind).measured(seconds)

        def request(peer: str, attempt: int) -> None:
            requests.append((round(loop.time(), 6), peer, attempt))

        reminders = Reminders(request, trips, News)
        reminders.start("ab")
        await script(reminders, trips)
        reminders.end()

    run_virtual(main())
    return requests, trips


def times(requests: Requests) -> list[float]:
    return [when for when, peer, _ in requests if peer == "a"]


async def a_minute(reminders: Reminders, trips: RoundTrips) -> None:
    reminders.arrived(told("b"))
    await asyncio.sleep(60.0)


def test_the_time_between_doubles_while_nothing_is_known_of_answers() -> None:
    requests, _ = play(a_minute)
    assert times(requests) == [0.251, 1.251, 3.251, 7.251, 15.251, 31.251]
    assert [attempt for _, _, attempt in requests] == [1, 2, 3, 4, 5, 6]


def test_eight_come_a_round_trip_apart_where_that_is_known_and_then_it_doubles() -> None:
    requests, _ = play(a_minute, late_s=0.25, answer_s=0.499)
    at_first = [0.251 + 0.5 * number for number in range(PROMPT + 1)]
    assert times(requests) == pytest.approx(
        [*at_first, *[at_first[-1] + 1.0 * (2**k - 1) for k in range(1, 6)]]
    )


def test_whoever_is_silent_for_long_is_still_asked_once_in_a_minute() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(600.0)

    waits = [later - sooner for sooner, later in pairwise(times(play(script)[0]))]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, *[60] * 8])


def test_as_long_as_nothing_was_lost_nobody_is_reminded_within_a_second() -> None:
    assert times(play(a_minute, lossy=False)[0])[0] == 1.0
    assert times(play(a_minute, lossy=False, late_s=4.999)[0])[0] == 5.0


def test_strangers_are_given_three_times_what_the_first_one_took() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        trips.initial_s = 10.0
        await asyncio.sleep(0.5)
        reminders.arrived(told("b"))
        await asyncio.sleep(1.5)

    assert times(play(script, late_s=None)[0]) == [1.5]


def test_to_hear_of_a_peer_ends_the_doubling() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(4.0)
        reminders.peer_active("a")
        await asyncio.sleep(2.0)

    # The next one would have come at 7.251 s. A second after the last one is at 4.251 s.
    assert times(play(script)[0]) == [0.251, 1.251, 3.251, 4.251]


@pytest.mark.parametrize(("lossy", "asked"), [(True, [1.0]), (False, [])])
def test_who_is_heard_where_messages_are_lost_is_not_waited_for_like_a_first_model(
    lossy: bool, asked: list[float]
) -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(0.5)
        trips.lossy = lossy
        reminders.peer_active("a")
        await asyncio.sleep(1.0)

    requests, _ = play(script, lossy=False, late_s=None, initial_s=15.0)
    assert times(requests) == asked
    assert [peer for _, peer, _ in requests] == ["a"] * len(asked)


@pytest.mark.parametrize(("repeat", "took_s"), [(1, 1.25), (2, 0.25), (0, None), (3, None)])
def test_an_answer_measures_the_request_that_it_names(repeat: int, took_s: float | None) -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(1.501)  # asked at 0.251 and 1.251 s
        reminders.arrived(told("a", repeat))

    _, trips = play(script)
    trip = trips.of("a", Reminders)
    assert trip.known == (took_s is not None)
    assert took_s is None or trip.smoothed_s == pytest.approx(took_s)
    assert trips.of("a", News).smoothed_s == pytest.approx(0.25), "a repetition does not tell how late it is"


def test_what_others_cost_a_peer_is_not_its_own_time() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(3.0)
        reminders.arrived(told("a", delayed_s=2.5))
        reminders.arrived(told("b", delayed_s=5.0))

    _, trips = play(script, late_s=None)
    assert [trips.of(peer, News).smoothed_s for peer in "ab"] == [0.5, 0.0]
