"""Questions that are asked again: whatever is lost, the peer handles each once, and its answer arrives."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.actor import Actor
from actors.delivery.asking import GivenAnswers
from actors.delivery.round_trips import PROMPT
from actors.message import Envelope, PeerUnavailable, Question
from actors.status import ActorStatus
from actors.supervisor import Supervisor
from actors.transport import Deliver, Transport
from tests.virtual_time import run_virtual

LATENCY_S = 0.25


@dataclass(frozen=True)
class Work:
    seconds: float


@dataclass(frozen=True)
class Done:
    number: int


@dataclass
class Lossy(Transport):
    """A latency of .25 s; the messages with the given numbers, in order of sending, are lost."""

    lost: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()
    copy_later: int = 10  # latencies
    sent: list[tuple[float, str, str]] = field(default_factory=list)
    attached: dict[str, Deliver] = field(default_factory=dict)

    def attach(self, name: str, deliver: Deliver) -> None:
        self.attached[name] = deliver

    def detach(self, name: str) -> None:
        self.attached.pop(name, None)

    def send(self, envelope: Envelope) -> None:
        number = len(self.sent)
        self.sent.append((self.now(), envelope.sender, type(envelope.message).__name__))
        loop = asyncio.get_running_loop()
        for copy in range(0 if number in self.lost else 2 if number in self.copied else 1):
            loop.call_later(LATENCY_S * (1 + self.copy_later * copy), self._arrive, envelope)

    def _arrive(self, envelope: Envelope) -> None:
        if envelope.receiver in self.attached:
            self.attached[envelope.receiver](envelope)


class Worker(Actor):
    """Answers each piece of work with its number."""

    handled = 0

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Work(seconds):
                self.handled += 1
                number = self.handled
                await self.sleep(seconds)
                return Done(number)
        return None


class Asker(Actor):
    """Does what a test gives it to do."""

    script: Callable[[Asker], Coroutine[Any, Any, object]]
    result: object = None

    async def run(self) -> None:
        self.result = await self.script(self)

    async def on_message(self, message: object, sender: str) -> None: ...


Script = Callable[[Asker], Coroutine[Any, Any, object]]


def play(script: Script, **options: Any) -> tuple[Lossy, Asker, Worker]:
    """An asker with a script beside a worker, until all is quiet."""

    async def main() -> tuple[Lossy, Asker, Worker]:
        transport = Lossy(**options)
        supervisor = Supervisor(transport)
        worker = supervisor.start(lambda: Worker("worker", transport))
        supervisor.start(lambda: Worker("other", transport))

        def asking() -> Asker:
            asker = Asker("asker", transport)
            asker.script = script
            return asker

        asker = supervisor.start(asking)
        await asyncio.sleep(1_000)
        assert not supervisor.failures
        assert isinstance(asker, Asker)
        assert isinstance(worker, Worker)
        return transport, asker, worker

    return run_virtual(main())


def asks(seconds: float, **options: Any) -> Script:
    async def script(asker: Asker) -> object:
        try:
            return (await asker.ask("worker", Work(seconds), **options)).number, asker.now
        except PeerUnavailable as error:
            return str(error), asker.now

    return script


def test_a_lost_question_is_asked_again_when_its_answer_is_overdue() -> None:
    transport, asker, worker = play(asks(0.0, timeout=60, attempts=3), lost=frozenset({0}))
    assert transport.sent == [(0.0, "asker", "Work"), (1.0, "asker", "Work"), (1.25, "worker", "Done")]
    assert asker.result == (1, 1.5)
    assert worker.handled == 1


def test_a_lost_answer_is_given_again_without_doing_the_work_again() -> None:
    transport, asker, worker = play(asks(0.0, timeout=60, attempts=3), lost=frozenset({1}))
    assert [what for _, _, what in transport.sent] == ["Work", "Done", "Work", "Done"]
    assert asker.result == (1, 1.5)
    assert worker.handled == 1


def test_a_repetition_during_the_work_does_nothing() -> None:
    transport, asker, worker = play(asks(10.0, timeout=60, attempts=5))
    # Asked at 0, after 1 s, and after 2 and 4 more; done at 10.25 s.
    assert transport.sent[:-1] == [(when, "asker", "Work") for when in (0.0, 1.0, 3.0, 7.0)]
    assert transport.sent[-1] == (10.25, "worker", "Done")
    assert asker.result == (1, 10.5)
    assert worker.handled == 1
    # The answer is to the first attempt, so that it tells how long the work takes.
    assert asker.round_trips.of("worker", Work).smoothed_s == 10.5


def test_who_is_busy_with_a_lasting_question_says_so_and_is_left_in_peace() -> None:
    transport, asker, worker = play(asks(10.0, timeout=60, attempts=None))
    # Asked at 0 and after 1 s; then 1, 2 and 4 s after each word from the worker.
    asked = [when for when, _, what in transport.sent if what == "Work"]
    assert asked == [0.0, 1.0, 2.5, 5.0, 9.5]
    assert [when for when, _, what in transport.sent if what == "InProgress"] == [1.25, 2.75, 5.25, 9.75]
    assert asker.result == (1, 10.5)
    assert worker.handled == 1
    # The answer is to the first attempt, so that it tells how long the work takes.
    assert asker.round_trips.of("worker", Work).smoothed_s == 10.5


@pytest.mark.parametrize("lost", [range(4, 15), range(5, 26, 2)], ids=["questions", "answers"])
def test_silence_is_a_loss_once_the_round_trip_is_known(lost: range) -> None:
    """Of two pieces of work: during the first it is learned, and of the second eleven messages are lost."""

    async def script(asker: Asker) -> object:
        asker.round_trips.initial_s = 1.5
        await asker.ask("worker", Work(2.75), timeout=900, attempts=None)
        return asker.now, (await asker.ask("worker", Work(0.0), timeout=900, attempts=None)).number

    transport, asker, worker = play(script, lost=frozenset(lost))
    assert asker.result == (3.25, 2) and worker.handled == 2
    asked = [when for when, _, what in transport.sent if what == "Work" and when >= 3.25]
    # The work is overdue after 3.25 + 4 * 1.625 s, and what tells of the way after 0.5 + 4 * 0.25 s.
    waits = [later - before for before, later in itertools.pairwise(asked)]
    assert waits == [9.75, *[1.5] * (PROMPT - 1), 3, 6, 12]


def two_at_once(seconds: float) -> Script:
    async def script(asker: Asker) -> object:
        both = [asker.ask("worker", Work(seconds), timeout=300, attempts=None) for _ in range(2)]
        return [answer.number for answer in await asyncio.gather(*both)]

    return script


def test_the_first_word_of_a_busy_peer_ends_the_doubling_of_what_waits_already() -> None:
    transport, asker, _ = play(two_at_once(2.75), lost=frozenset({1, 3}))
    # It comes at 1.5 s and tells that the way takes 0.5 + 4 * 0.25 s. The second was lost at 0 and 1 s.
    assert transport.sent[4] == (1.25, "worker", "InProgress")
    assert [when for when, _, what in transport.sent if what == "Work"][:6] == [0.0, 0.0, 1.0, 1.0, 2.5, 2.5]
    assert asker.result == [1, 2]


def test_the_first_answer_that_shows_a_loss_ends_the_doubling_of_what_waits_already() -> None:
    transport, asker, worker = play(two_at_once(0.5), lost=frozenset({0, 1, 3, 5}))
    # Both were lost, and one is answered at 2 s, when asked again. The other is sent once in so long then.
    asked = [when for when, _, what in transport.sent if what == "Work"]
    assert asked == [0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0]
    assert asker.result == [1, 2] and worker.handled == 2
    assert asker.round_trips.lossy


def test_who_says_that_it_is_busy_is_left_in_peace_though_another_answer_shows_a_loss() -> None:
    async def script(asker: Asker) -> object:
        asker.round_trips.initial_s = 2.0
        slow = asyncio.create_task(asker.ask("worker", Work(20.0), timeout=300, attempts=None))
        await asker.sleep(3.0)  # it says at 2.5 s that it is busy
        await asker.ask("other", Work(0.0), timeout=300, attempts=None)
        return (await slow).number

    transport, asker, _ = play(script, lost=frozenset({3}))
    # It says so again at 5 s, and has 4 s then. The other is asked at 3 s and 5 s, and answers at 5.5 s.
    assert [when for when, _, what in transport.sent if what == "Work"][:6] == [0.0, 2.0, 3.0, 4.5, 5.0, 9.0]
    assert asker.round_trips.lossy


def test_who_is_only_slow_shows_no_loss() -> None:
    _, asker, _ = play(two_at_once(2.75))
    assert asker.result == [1, 2] and not asker.round_trips.lossy


def test_where_messages_are_lost_the_busy_are_left_in_peace_for_as_long_as_usual() -> None:
    async def script(asker: Asker) -> object:
        asker.round_trips.initial_s, asker.round_trips.lossy = 2.0, True
        await asker.ask("worker", Work(1.0), timeout=60, attempts=None)
        return (await asker.ask("worker", Work(10.0), timeout=60, attempts=None)).number

    transport, asker, _ = play(script)
    # The first takes 1.5 s, so that the second is overdue after 1.5 + 4 * 0.75 s. It is in progress, as
    # the worker says at 6.5 s and 8.5 s, and asked again 1.5 s and 3 s later.
    assert [when for when, _, what in transport.sent if what == "Work"] == [0.0, 1.5, 6.0, 8.0, 11.5]
    assert asker.result == 2


def test_the_limit_is_learned_of_answers_to_repetitions_as_well() -> None:
    _, asker, _ = play(asks(0.0, timeout=60, attempts=3), lost=frozenset({0}))
    trip = asker.round_trips.of("worker", Work)
    assert (trip.smoothed_s, trip.failures) == (0.5, 0)


def test_it_is_given_up_after_the_last_attempt_and_at_the_outer_limit() -> None:
    everything = frozenset(range(100))
    _, asker, _ = play(asks(0.0, timeout=60, attempts=3), lost=everything)
    assert asker.result == ("worker is unavailable: no answer to Work within 7 s", 7.0)
    _, asker, _ = play(asks(0.0, timeout=5, attempts=None), lost=everything)
    assert asker.result == ("worker is unavailable: no answer to Work within 5 s", 5.0)
    transport, asker, _ = play(asks(0.0, timeout=60), lost=everything)
    assert len(transport.sent) == 1
    assert asker.result == ("worker is unavailable: no answer to Work within 60 s", 60.0)


def test_a_slow_peer_is_given_the_time_that_it_was_seen_to_take() -> None:
    async def script(asker: Asker) -> object:
        answers = []
        for _ in range(2):
            try:
                answers.append((await asker.ask("worker", Work(5.0), timeout=60, attempts=2)).number)
            except PeerUnavailable:
                answers.append(None)
                await asker.sleep(10.0)
        return answers

    # Given up at 3 s; the answer that comes at 5.5 s makes the next limit long enough.
    _, asker, worker = play(script)
    assert asker.result == [None, 2]
    assert worker.handled == 2
    assert ActorStatus(asker).late_answers == 1


def test_a_late_copy_of_a_question_that_nobody_waits_for_is_not_handled() -> None:
    async def script(asker: Asker) -> object:
        for _ in range(2):
            await asker.ask("worker", Work(0.0), timeout=60, attempts=2)
        return None

    # The copy of the first arrives at 2.75 s, long after the second was answered.
    transport, _, worker = play(script, copied=frozenset({0}))
    assert worker.handled == 2
    assert [what for _, _, what in transport.sent] == ["Work", "Done", "Work", "Done"]


def test_what_was_answered_is_kept_only_while_it_may_be_needed() -> None:
    async def script(asker: Asker) -> object:
        for _ in range(50):
            await asker.ask("worker", Work(0.0), timeout=60, attempts=2)
        return None

    _, _, worker = play(script)
    assert sum([len(given) for given in worker._answers._given.values()]) == 1


def test_the_time_between_attempts_stops_at_a_minute() -> None:
    transport, _, _ = play(asks(0.0, timeout=300, attempts=None), lost=frozenset(range(100)))
    assert [when for when, _, _ in transport.sent] == [
        0.0,
        1.0,
        3.0,
        7.0,
        15.0,
        31.0,
        63.0,
        123.0,
        183.0,
        243.0,
    ]


@given(st.sets(st.integers(0, 30), max_size=12), st.sets(st.integers(0, 30)), st.floats(0.0, 3.0))
@example({0, 1, 4, 5, 6, 7, 8, 9, 10}, set(), 2.0)
def test_whatever_is_lost_or_copied_work_is_done_once(
    lost: set[int], copied: set[int], seconds: float
) -> None:
    async def script(asker: Asker) -> object:
        return [(await asker.ask("worker", Work(seconds), timeout=900, attempts=None)).number for _ in "123"]

    _, asker, worker = play(script, lost=frozenset(lost), copied=frozenset(copied))
    assert asker.result == [1, 2, 3]
    assert worker.handled == 3


@pytest.mark.parametrize("attempts", [0, -1, 1.5])
def test_attempts_must_be_a_number_of_times(attempts: float) -> None:
    async def script(asker: Asker) -> object:
        with pytest.raises(ValueError, match="needs attempts of 1 or more, or None for no limit, not"):
            await asker.ask("worker", Work(0.0), timeout=1, attempts=attempts)  # type: ignore[arg-type]
        return "refused"

    _, asker, _ = play(script)
    assert asker.result == "refused"


def test_the_first_answer_of_anybody_tells_when_those_of_strangers_are_overdue() -> None:
    async def script(asker: Asker) -> object:
        asker.round_trips.initial_s = 40.0
        lost = asyncio.ensure_future(asker.ask("asker", Work(0.0), timeout=60, attempts=None))
        await asker.ask("worker", Work(1.0), timeout=60, attempts=None)
        with pytest.raises(PeerUnavailable):
            await lost
        return None

    transport, _, _ = play(script, lost=frozenset(range(100)) - {0, 2})
    # The worker's answer takes 1.5 s, so that the other question is overdue after 4.5 s.
    assert [when for when, who, _ in transport.sent if who == "asker"][:4] == [0.0, 0.0, 4.5, 13.5]


def test_a_repetition_that_arrives_after_the_askers_deadline_is_not_handled_again() -> None:
    """The first arrived after .1 s, the repetition after 30 s; the asker waited for 10 s."""
    answers, first = GivenAnswers(), Question(1, 0, 1, 10.0)
    assert answers.is_new("asker", first, 0.1)
    answers.keep("asker", first, Envelope("worker", "asker", Done(1), None, first))
    late = Question(1, 1, 1, 3.0)
    assert not answers.is_new("asker", late, 37.0)
    assert answers.again("asker", late) is None, "the asker has given up"
    assert answers.is_new("asker", Question(2, 0, 2, 10.0), 40.0)
    assert answers._expired == {"asker": set()}, "it waits for later answers only"
    assert not answers.is_new("asker", late, 50.0)
