"""Messages of rounds: whatever is lost or copied, each round has its own, and what is answered is done once.

A message takes 0.25 s, so that a request for one and its answer take 0.5 s.
"""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.actor import Actor
from actors.delivery.reminders import Reminders
from actors.delivery.round_messages import RoundMessages
from actors.message import Envelope, RepeatRequest, RoundMark
from actors.supervisor import Supervisor
from tests.actors.test_asking import Lossy
from tests.virtual_time import run_virtual

ROUNDS = 4
PATIENCE_S = 900.0


@dataclass(frozen=True)
class Model:
    """What both tell each other in a round."""

    number: int


@dataclass(frozen=True)
class Query:
    """A question of a round, which `on_message` answers by a `Reply` of that round."""

    number: int


@dataclass(frozen=True)
class Reply:
    number: int


class Both(Actor):
    """Tells the other its model, waits for the other's, asks it something, and waits for the answer."""

    collected = (Model, Reply)
    other = ""
    pause_s = 0.0
    """How long each round's work takes."""

    def begin(self) -> None:
        self.rounds = RoundMessages(self)
        self.models: list[int] = []
        self.replies: list[int] = []
        self.handled: list[int] = []
        self.ended_s: list[float] = []

    async def run(self) -> None:
        for number in range(ROUNDS):
            self.rounds.number, self.rounds.awaited = number, (self.other,)
            await self.sleep(self.pause_s)
            self.rounds.tell_all([self.other], Model(number))
            models = await self.rounds.collect(Model, [self.other], PATIENCE_S)
            self.rounds.discard(Model)
            self.models += [each.message.number for each in models.values()]  # type: ignore[union-attr]
            self.rounds.tell(self.other, Query(number))
            replies = await self.rounds.collect(Reply, [self.other], PATIENCE_S, after=Query)
            self.rounds.discard(Reply)
            self.replies += [each.message.number for each in replies.values()]  # type: ignore[union-attr]
            self.ended_s.append(self.now)

    async def on_message(self, message: object, sender: str) -> None:
        assert isinstance(message, Query)
        self.handled.append(message.number)
        self.rounds.tell(sender, Reply(message.number), message.number, after=Query)


def play(
    lost: frozenset[int] = frozenset(), copied: frozenset[int] = frozenset(), pause_s: float = 0.0
) -> tuple[Both, Both, Lossy]:
    """Two of them, of which the second takes `pause_s` for a round, until all is quiet."""

    async def main() -> tuple[Both, Both, Lossy]:
        # Within the round and the next one, as what is told again comes: only these are remembered.
        transport = Lossy(lost=lost, copied=copied, copy_later=1)
        supervisor = Supervisor(transport)
        one, two = Both("one", transport), Both("two", transport)
        one.other, two.other, two.pause_s = "two", "one", pause_s
        for each in (one, two):
            each.begin()
            supervisor.start(each)
        await asyncio.sleep(5_000.0)
        return one, two, transport

    return run_virtual(main())


def requests(transport: Lossy) -> list[float]:
    return [when for when, _, what in transport.sent if what == "RepeatRequest"]


def test_calm_rounds_need_no_requests() -> None:
    one, two, transport = play()
    assert one.ended_s == two.ended_s == [0.75, 1.5, 2.25, 3.0]
    assert requests(transport) == []


@given(st.sets(st.integers(0, 40), max_size=10), st.sets(st.integers(0, 40)), st.floats(0.0, 3.0))
@example({0, 1}, set(), 0.0)
@example({2, 3, 4, 5}, {6, 7}, 1.0)
def test_whatever_is_lost_or_copied_each_round_has_its_messages_and_work_is_done_once(
    lost: set[int], copied: set[int], pause_s: float
) -> None:
    one, two, _ = play(frozenset(lost), frozenset(copied), pause_s)
    for each in (one, two):
        assert each.models == each.replies == each.handled == list(range(ROUNDS))


def test_a_lost_message_is_asked_for_after_a_second_and_told_again() -> None:
    one, two, transport = play(frozenset({0}))  # the first model of one
    assert requests(transport)[0] == 1.0
    assert (one.ended_s[0], two.ended_s[0]) == (0.75, 2.0)
    trip = two.round_trips.of("one", Reminders)
    assert trip.smoothed_s == 0.5, "the request's round trip"
    assert two.round_trips.lossy


@pytest.mark.parametrize("to_all", [False, True])
def test_an_answer_that_is_asked_for_may_only_have_been_slow(to_all: bool) -> None:
    """It is told once its question has been handled; who announces to all has done so when a round begins."""

    async def main() -> bool:
        one = Both("one", Lossy())
        one.begin()
        if to_all:
            one.rounds.tell_all(["two"], Reply(0))
        else:
            one.rounds.tell("two", Reply(0))
        one.rounds.requested("two", RepeatRequest("Reply", 0, 1))
        return one.round_trips.lossy

    assert run_virtual(main()) == to_all


@pytest.mark.parametrize("delayed_s", [0.0, 0.5])
def test_whom_losses_have_delayed_tells_that_there_are_any(delayed_s: float) -> None:
    async def main() -> bool:
        one = Both("one", Lossy())
        one.begin()
        one.rounds.arrived(Envelope("two", "one", Model(1), RoundMark(1, delayed_s=delayed_s)))
        return one.round_trips.lossy

    assert run_virtual(main()) == (delayed_s > 0.0)


def test_a_lost_question_is_asked_for_by_whom_it_was_meant_for() -> None:
    one, two, transport = play(frozenset({2}))  # the first query of two
    # Its answer is overdue a second after 0.25 s; one then asks for the question, which it has never got.
    assert [(when, sender) for when, sender, what in transport.sent if what == "RepeatRequest"][:2] == [
        (1.25, "two"),
        (1.5, "one"),
    ]
    assert two.ended_s[0] == 2.25
    assert one.handled == two.handled == list(range(ROUNDS))
    trip = two.round_trips.of("one", Reply)
    assert trip.smoothed_s < 0.5, "the late answer, after 2 s, says nothing of how long one takes"


def test_who_is_slow_is_asked_no_more_once_that_is_known() -> None:
    _, _, transport = play(pause_s=20.0)
    assert len([when for when in requests(transport) if when > 45.0]) == 0


def test_a_mark_says_who_is_waited_for_and_what_was_told_again() -> None:
    marks: list[tuple[str, RoundMark]] = []

    class Silent(Actor):
        async def on_message(self, message: object, sender: str) -> None: ...

    class Noting(RoundMessages):
        def round_message_received(self, sender: str, kind: type, mark: RoundMark) -> None:
            marks.append((kind.__name__, mark))

    async def main() -> None:
        transport = Lossy()
        supervisor = Supervisor(transport)
        one, two = Silent("one", transport), Silent("two", transport)
        rounds, _ = RoundMessages(one), Noting(two)
        supervisor.start(one)
        supervisor.start(two)
        await asyncio.sleep(1.0)
        rounds.number, rounds.awaited = 3, ("two",)
        rounds.tell_all(["two"], Model(3))
        await asyncio.sleep(1.0)
        assert rounds.tell_again("two", "Model", 3, attempt=2)
        assert not rounds.tell_again("two", "Model", 4), "that is yet to come"
        rounds.tell_for("two", Model(9), 9)
        await asyncio.sleep(1.0)

    run_virtual(main())
    assert marks == [
        ("Model", RoundMark(3, True, None)),
        ("Model", RoundMark(3, True, 2)),
        ("Model", RoundMark(9, False, None)),
    ]
