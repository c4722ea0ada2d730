"""When peers are reminded of a message that is overdue, and what is learned of how long that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from actors.reminders import PROMPT, Reminders
from actors.round_trips import RoundTrips
from tests.virtual_time import run_virtual


@dataclass(frozen=True)
class News:
    repeated: bool = False
    attempt: int = 0
    delayed: float = 0.0


@dataclass(frozen=True)
class Wanted:
    attempt: int = 0


@dataclass(frozen=True)
class Plain:
    """A reminder without a number."""


Told = list[tuple[float, str, Any]]


def play(
    script: Callable[[Reminders, RoundTrips], Awaitable[object]],
    reminder: object = None,
    *,
    lossy: bool = True,
    late_s: float | None = 0.25,
    answer_s: float | None = None,
) -> tuple[Told, RoundTrips]:
    """Reminders for the peers a and b, of whom it is known how late they are and how soon they answer."""
    told: Told = []
    trips = RoundTrips()
    trips.lossy = lossy

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seconds, kind in ((late_s, News), (answer_s, Reminders)):
            for peer in "ab" if seconds is not None else "":
                for _ in range(100):  # so often that the deviation is gone
                    trips.of(peer, kind).measured(seconds)

        def tell(peer: str, message: object) -> None:
            told.append((round(loop.time(), 6), peer, message))

        reminders = Reminders(tell, trips, News, reminder or Wanted())
        reminders.begin("ab")
        await script(reminders, trips)
        reminders.end()

    run_virtual(main())
    return told, trips


def times(told: Told) -> list[float]:
    return [when for when, peer, _ in told if peer == "a"]


async def a_minute(reminders: Reminders, trips: RoundTrips) -> None:
    reminders.arrived("b", News())
    await asyncio.sleep(60.0)


def test_the_time_between_doubles_while_nothing_is_known_of_answers() -> None:
    told, _ = play(a_minute)
    assert times(told) == [0.251, 1.251, 3.251, 7.251, 15.251, 31.251]
    assert [message.attempt for _, _, message in told] == [1, 2, 3, 4, 5, 6]


def test_eight_come_a_round_trip_apart_where_that_is_known_and_then_it_doubles() -> None:
    told, _ = play(a_minute, late_s=0.25, answer_s=0.499)
    at_first = [0.251 + 0.5 * number for number in range(PROMPT + 1)]
    assert times(told) == pytest.approx([*at_first, *[at_first[-1] + 1.0 * (2**k - 1) for k in range(1, 6)]])


def test_as_long_as_nothing_was_lost_nobody_is_reminded_within_a_second() -> None:
    assert times(play(a_minute, lossy=False)[0])[0] == 1.0
    assert times(play(a_minute, lossy=False, late_s=4.999)[0])[0] == 5.0


def test_strangers_are_given_three_times_what_the_first_one_took() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        trips.initial_s = 10.0
        await asyncio.sleep(0.5)
        reminders.arrived("b", News())
        await asyncio.sleep(1.5)

    assert times(play(script, late_s=None)[0]) == [1.5]


def test_to_hear_of_a_peer_ends_the_doubling() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(4.0)
        reminders.heard("a")
        await asyncio.sleep(2.0)

    # The next one would have come at 7.251 s. A second after the last one is at 4.251 s.
    assert times(play(script)[0]) == [0.251, 1.251, 3.251, 4.251]


@pytest.mark.parametrize(
    ("reminder", "answer", "took_s"),
    [(Wanted(), News(True, 1), 1.25), (Wanted(), News(True, 2), 0.25), (Wanted(), News(True), None)],
)
def test_an_answer_measures_the_reminder_that_it_names(
    reminder: object, answer: News, took_s: float | None
) -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(1.501)  # reminded at 0.251 and 1.251 s
        reminders.arrived("a", answer)

    _, trips = play(script, reminder)
    trip = trips.of("a", Reminders)
    assert trip.known == (took_s is not None)
    assert took_s is None or trip.smoothed_s == pytest.approx(took_s)
    assert trips.of("a", News).smoothed_s == pytest.approx(0.25), "a repetition does not tell how late it is"


@pytest.mark.parametrize(("after_s", "known"), [(1.0, True), (1.5, False)])
def test_without_numbers_only_the_answer_to_a_single_reminder_measures(after_s: float, known: bool) -> None:
    @dataclass(frozen=True)
    class Repeated:
        repeated: bool = True

    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(after_s)
        reminders.arrived("a", Repeated())

    _, trips = play(script, Plain())
    assert trips.of("a", Reminders).known == known


def test_what_others_cost_a_peer_is_not_its_own_time() -> None:
    async def script(reminders: Reminders, trips: RoundTrips) -> None:
        await asyncio.sleep(3.0)
        reminders.arrived("a", News(delayed=2.5))
        reminders.arrived("b", News(delayed=5.0))

    _, trips = play(script, late_s=None)
    assert [trips.of(peer, News).smoothed_s for peer in "ab"] == [0.5, 0.0]
