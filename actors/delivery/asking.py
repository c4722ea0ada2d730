"""Questions that an actor has asked, and questions from others that may be repeated.

A question that is sent again has the same number; the time until it is sent again doubles each time, up to a
minute. The receiver handles it once: while it is busy it ignores a repetition, and afterwards it sends the
same answer again. An answer names the attempt that it answers. This shows how long the peer took even if the
question was sent again or given up, so the time limit of a slow peer grows to the time that it needs.

A lasting question (`LastingQuestion`) is repeated until it is answered or the time is up. An actor that is
busy with it answers a repetition by `InProgress`, and then gets no repetition for as long as the work usually
takes. Silence therefore means that a message was lost, and the question is sent again after one round trip,
which these answers measure. If these waits doubled where many messages are lost, one unlucky question would
hold up all others. They therefore double only from the ninth time, when the peer may have left. Before a
round trip was measured, they double at once, until the peer treats a repetition as new, which means that the
earlier attempt was lost. Later timeouts are as long as the work takes. Each new measurement resets the timers
of waiting questions.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import replace

from actors.delivery.round_trips import PROMPT, RoundTrips, doubled_wait_s
from actors.message import Envelope, InProgress, LastingQuestion, Question

Send = Callable[[Envelope], None]

_GIVEN_UP_MAX = 256  # questions with late answers that are still recognized


class OpenQuestion:
    """One `ask` in progress; its future receives the answer, or None if the question is given up."""

    __slots__ = (
        "arrival", "attempts", "deadline_s", "kind", "message", "number", "peer", "seen_busy", "sent_s",
        "timer", "unacknowledged",
    )  # fmt: skip

    def __init__(self, number: int, peer: str, message: object, attempts: int | None) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.peer = peer
        self.message: object | None = message
        self.kind = type(message)
        self.attempts = attempts
        self.arrival: asyncio.Future[Envelope | None] = loop.create_future()
        self.sent_s: list[float] = []  # time of each attempt
        self.unacknowledged = 0  # attempts since the peer last answered InProgress, or since the first
        self.seen_busy = 0  # number of these answers
        self.deadline_s = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def give_up(self) -> None:
        if not self.arrival.done():
            self.arrival.set_result(None)


class OpenQuestions:
    """All questions that an actor has asked and that are not yet answered."""

    def __init__(self, name: str, send: Send, round_trips: RoundTrips) -> None:
        self._name = name
        self._send = send
        self._round_trips = round_trips
        self._open: dict[int, OpenQuestion] = {}
        self._given_up: dict[int, OpenQuestion] = {}

    async def ask(
        self, number: int, peer: str, message: object, timeout_s: float, attempts: int | None
    ) -> Envelope | None:
        """Ask and return the answer; None after `timeout_s`, or if the last of `attempts` is overdue.

        Also None after `give_up_on`.

        number: higher than the numbers of all earlier questions. attempts: with 1, the answer may come until
        the timeout; with None, the question is sent as often as the timeout allows.
        """
        question = OpenQuestion(number, peer, message, attempts)
        loop = asyncio.get_running_loop()
        question.deadline_s = loop.time() + timeout_s
        self._open[question.number] = question
        try:
            self._attempt(question)
            return await question.arrival
        finally:
            if question.timer is not None:
                question.timer.cancel()
            self._open.pop(question.number, None)
            arrival = question.arrival
            if attempts != 1 and arrival.done() and not arrival.cancelled() and arrival.result() is None:
                self._remember(question)

    def answered(self, envelope: Envelope) -> bool:
        """Accept an answer; return False if no question waits for it, unless it is `InProgress`."""
        answer_to = envelope.answer_to
        repeatable = isinstance(answer_to, Question)
        number = answer_to.number if repeatable else answer_to  # type: ignore[union-attr]
        if type(envelope.message) is InProgress:
            if number in self._open:
                self._peer_is_busy(self._open[number], answer_to.attempt)  # type: ignore[union-attr]
            return True  # not counted as a late answer
        question = self._open.pop(number, None) or self._given_up.pop(number, None)  # type: ignore[arg-type]
        if question is None:
            return False
        attempt = answer_to.attempt if repeatable else 0  # type: ignore[union-attr]
        lasting = answer_to if isinstance(answer_to, LastingQuestion) else None
        given_before = lasting is not None and lasting.repeat_s == 0
        # The peer had not received the attempts before this repetition: they were lost.
        lost = lasting is not None and attempt > 0 and not given_before
        self._learn(question, InProgress if given_before else question.kind, attempt, lost)
        if question.arrival.done():
            return False
        question.arrival.set_result(envelope)
        return True

    def _learn(self, question: OpenQuestion, kind: type, attempt: int, lost: bool = False) -> None:
        """Record how long the answer to an attempt took, and whether it shows that messages are lost.

        Then reset the timers of questions that used a limit for unknown peers or unknown round trips.
        """
        trips = self._round_trips
        first = not trips.knows(kind)
        prompt = (lost and not trips.lossy) or (first and kind is InProgress)
        trips.lossy |= lost
        trips.of(question.peer, kind).measured(asyncio.get_running_loop().time() - question.sent_s[attempt])
        for other in self._open.values() if first or prompt else ():
            if len(other.sent_s) == 1:
                stale = first and other.kind is kind
            else:
                stale = prompt and other.attempts is None and other.unacknowledged > 0
            if stale:
                self._set_timer(other)

    def _peer_is_busy(self, question: OpenQuestion, attempt: int) -> None:
        """Postpone the next repetition by the usual duration of the work: the peer answered that it is busy.

        Where messages are lost, wait only the typical time, because the answer may also be lost.
        """
        self._learn(question, InProgress, attempt)
        question.unacknowledged = 0
        trips = self._round_trips
        work_s = (trips.typical_s if trips.lossy else trips.limit_s)(question.peer, question.kind)
        now = asyncio.get_running_loop().time()
        self._wake(question, now + doubled_wait_s(work_s, question.seen_busy))
        question.seen_busy += 1

    def give_up_on(self, peer: str) -> None:
        """End all questions to `peer`."""
        for question in self._open.values():
            if question.peer == peer:
                question.give_up()

    def waits(self) -> list[str]:
        """Return a line for each open question."""
        return [f"answer to {each.kind.__name__} from {each.peer}" for each in self._open.values()]

    def _attempt(self, question: OpenQuestion) -> None:
        """Send a question, for the first time or again, and set the timer for the next attempt."""
        now, peer = asyncio.get_running_loop().time(), question.peer
        number: int | Question = question.number
        if question.attempts != 1:
            open_from = min([each.number for each in self._open.values() if each.peer == peer])
            kind = LastingQuestion if question.attempts is None else Question
            number = kind(question.number, len(question.sent_s), open_from, question.deadline_s - now)
        question.sent_s.append(now)
        question.unacknowledged += 1
        self._set_timer(question)
        self._send(Envelope(self._name, peer, question.message, number))

    def _set_timer(self, question: OpenQuestion) -> None:
        if question.attempts == 1:
            self._wake(question, question.deadline_s)
            return
        trips, peer, doublings = self._round_trips, question.peer, len(question.sent_s) - 1
        knows_way = trips.knows(InProgress)
        if question.attempts is None and doublings and (knows_way or trips.lossy):
            doublings = max(0, question.unacknowledged - PROMPT)
            wait_s = trips.limit_s(peer, InProgress) if knows_way else trips.typical_s(peer, question.kind)
        else:
            wait_s = trips.limit_s(peer, question.kind)
        self._wake(question, question.sent_s[-1] + doubled_wait_s(wait_s, doublings))

    def _wake(self, question: OpenQuestion, due_s: float) -> None:
        """Repeat the question at `due_s`, or give up at the deadline if that is earlier."""
        then = question.give_up if due_s >= question.deadline_s else lambda: self._overdue(question)
        if question.timer is not None:
            question.timer.cancel()
        question.timer = asyncio.get_running_loop().call_at(min(due_s, question.deadline_s), then)

    def _remember(self, question: OpenQuestion) -> None:
        """Keep the data needed to measure a late answer, but not the message."""
        question.message = None
        self._given_up[question.number] = question
        if len(self._given_up) > _GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]

    def _overdue(self, question: OpenQuestion) -> None:
        if question.arrival.done():
            return
        if len(question.sent_s) == question.attempts:
            question.give_up()
        else:
            self._attempt(question)


class GivenAnswers:
    """Questions from others that may be repeated, with the answers of this actor.

    An answer is kept until the asker waits only for later ones, or can no longer ask again. A repetition may
    still arrive after that, if it was slower than the first, so the number is kept longer.
    """

    def __init__(self) -> None:
        # By asker and number: the answer, or None while the question is being handled.
        self._given: dict[str, dict[int, Envelope | None]] = {}
        self._until: list[tuple[float, str, int]] = []  # a heap of expiry times
        self._expired: dict[str, set[int]] = {}  # by asker: questions that it can no longer ask again
        self._open_from: dict[str, int] = {}  # by asker: it waits for no answer to lower numbers

    def is_new(self, asker: str, question: Question, now: float) -> bool:
        """Return whether a question is asked for the first time; if so, record that it is being handled."""
        self._forget_until(now)
        given = self._given.setdefault(asker, {})
        open_from = max(question.open_from, self._open_from.get(asker, question.open_from))
        self._open_from[asker] = open_from
        for number in [number for number in given if number < open_from]:
            del given[number]
        expired = self._expired.get(asker, set())
        expired -= {number for number in expired if number < open_from}
        if question.number in given or question.number in expired or question.number < open_from:
            return False
        given[question.number] = None
        heapq.heappush(self._until, (now + question.repeat_s, asker, question.number))
        return True

    def again(self, asker: str, question: Question) -> Envelope | None:
        """Return the answer to a repeated question, addressed to this attempt.

        Returns None while the question is being handled, or if the answer is no longer kept.
        """
        answer = self._given[asker].get(question.number)
        if type(question) is LastingQuestion:
            question = replace(question, repeat_s=0.0)
        return None if answer is None else replace(answer, answer_to=question)

    def is_being_handled(self, asker: str, question: Question) -> bool:
        """Return whether a repeated lasting question is still being handled."""
        given = self._given[asker]
        return (
            type(question) is LastingQuestion and question.number in given and given[question.number] is None
        )

    def keep(self, asker: str, question: Question, answer: Envelope) -> None:
        """Keep an answer for as long as it may be needed."""
        given = self._given.get(asker, {})
        if question.number in given:
            given[question.number] = answer

    def forget(self, asker: str, question: Question) -> None:
        """Forget a question that the full mailbox rejected."""
        self._given[asker].pop(question.number, None)

    def _forget_until(self, now: float) -> None:
        while self._until and self._until[0][0] < now:
            _, asker, number = heapq.heappop(self._until)
            given = self._given.get(asker, {})
            if number in given:
                del given[number]
                self._expired.setdefault(asker, set()).add(number)
            if not given:
                self._given.pop(asker, None)
