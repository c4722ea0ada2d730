"""Actors: a name, a mailbox, handlers that run one at a time, and a concurrent `run` coroutine."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

from actors.arguments import plain_name, require_attempts, require_seconds, unsendable_message_error
from actors.delivery.asking import GivenAnswers, OpenQuestions
from actors.delivery.round_trips import RoundTrips
from actors.mailbox import Mailbox
from actors.message import (
    ActorError,
    AskInHandler,
    Envelope,
    InProgress,
    PeerUnavailable,
    Question,
    RemoteError,
    RoundMark,
    describe,
)
from actors.tasks import Tasks
from actors.transport import Transport

M = TypeVar("M")

Failed = Callable[["Actor", str, Exception], None]


class RoundMessageReceiver(Protocol):
    """Interface that handles an actor's messages of rounds; `RoundMessages` implements it."""

    def arrived(self, envelope: Envelope) -> None:
        """Accept a message with a `RoundMark`."""

    def forget(self, peer: str) -> None:
        """Forget a peer that has left."""


class Actor:
    """Base class of actors. Subclasses override the hooks; a `Supervisor` starts and ends the actor.

    Handlers (`on_message`) run one at a time, in order of arrival. `run` and spawned coroutines run
    concurrently with them. Inside a coroutine, the actor's fields can only change at an `await`.
    """

    _machinery: ClassVar[bool] = True
    """True if this class itself is part of the framework, so that errors need not name a line of its file."""
    collected: ClassVar[tuple[type, ...]] = ()
    """Message classes that wait for `collect` instead of going to `on_message`; base classes add theirs."""

    _rounds: RoundMessageReceiver | None = None
    """Messages of the actor's rounds; None for an actor without rounds."""
    _round_waits = 0
    """Number of waits for messages of a round."""
    _round_waits_in_vain = 0
    """Number of these waits in which no message came."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if type(cls.collected) is not tuple or not all(isinstance(kind, type) for kind in cls.collected):
            raise TypeError(
                f"{cls.__name__}.collected must be a tuple of message classes, such as (Model,), "
                f"not {cls.collected!r:.60}"
            )
        inherited = [kind for base in cls.__mro__[1:] for kind in vars(base).get("collected", ())]
        cls.collected = tuple(dict.fromkeys([*inherited, *cls.collected]))

    def __init__(self, name: str, transport: Transport, *, mailbox_capacity: int = 10_000) -> None:
        self.name = name
        """Name by which other actors address this actor: client number 3 is "client-3"."""
        self._late_answers = 0
        self._transport = transport
        self._mailbox = Mailbox(mailbox_capacity, self.collected, transport.bell, transport.mailbox_bytes)
        self._next_request = 0
        # Many actors neither ask nor answer: these objects are created on first use.
        self._round_trips: RoundTrips | None = None
        self._open_questions: OpenQuestions | None = None
        self._given_answers: GivenAnswers | None = None
        self._phase = "new"  # new | running | stopping | failed | stopped
        self._alive = False
        self._failed: Failed | None = None
        self._tasks = Tasks(name)
        self._main: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stop_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._phase}, {len(self._mailbox)} waiting>"

    # --- hooks ----------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Run first, when parameters and settings are set; messages wait until this method returns."""

    async def on_stop(self) -> None:
        """Run before a graceful stop, while everything still works. A crash skips it."""

    async def on_message(self, message: Any, sender: str) -> object:
        """Handle one message. The returned value answers an `ask`; for a `tell` return None.

        For long work, return a task that `spawn` creates: its result answers the `ask`, and other messages
        are not delayed.
        """
        raise ActorError(
            f"{type(self).__name__} got a message of type {type(message).__name__}, but does not define "
            "on_message()"
        )

    async def on_failure(self, error: Exception) -> None:
        """Run after this actor has failed, before it ends; all its other tasks are already canceled."""

    async def run(self) -> None:
        """Run the actor's main behavior; after it returns, the actor continues to handle messages."""

    def intercept(self, message: object | None, sender: str) -> bool:
        """Inspect each arriving message or answer, even while the mailbox is full or a handler is busy.

        Return True to stop further processing of the message. The method must not wait.
        """
        return False

    # --- verbs ----------------------------------------------------------------------------------------------

    def tell(self, peer: str, message: object) -> None:
        """Send a message without waiting for an answer. No effect after this actor has ended.

        Raises UnknownPeer if there never was a peer of that name.

        >>> client.tell("client-1", Greeting("hello"))
        """
        if self._alive:
            name = peer if type(peer) is str else plain_name(peer, "tell")
            try:
                self._transport.send(Envelope(self.name, name, message))
            except TypeError as error:
                raise unsendable_message_error("tell()", error) from error
        elif self._phase == "new":
            self._require_alive("tell")

    async def ask(self, peer: str, message: object, *, timeout: float, attempts: int | None = 1) -> Any:
        """Send a message and wait at most `timeout` seconds for the answer.

        attempts: maximum number of times that the question is sent; None for as many as the timeout allows.
        The question is sent again whenever the answer is overdue, compared with earlier answers of `peer`
        (`delivery.round_trips`); `on_message` of the peer handles it once. Raises PeerUnavailable if no
        answer comes, RemoteError if the peer's handler failed, AskInHandler if called in a handler,
        UnknownPeer if there never was a peer of that name.

        >>> wait(client.ask("client-1", Greeting("hello"), timeout=5.0, attempts=None))
        Greeting(words='hello, client-0')
        """
        self._require_alive("ask")
        self._refuse_in_handler("ask")
        peer = plain_name(peer, "ask")
        require_seconds(timeout, "ask")
        require_attempts(attempts)
        sent_s = self.now
        try:
            number, self._next_request = self._next_request, self._next_request + 1
            answer = await self._questions.ask(number, peer, message, timeout, attempts)
        except TypeError as error:
            raise unsendable_message_error("ask()", error) from error
        if answer is None:
            waited_s = self.now - sent_s
            raise PeerUnavailable(peer, f"no answer to {type(message).__name__} within {waited_s:g} s")
        if answer.error is not None:
            raise RemoteError(peer, answer.error)
        return answer.message

    async def collect(
        self,
        kind: type[M],
        peers: Iterable[str],
        *,
        timeout: float | None,
        where: Callable[[M], bool] | None = None,
    ) -> dict[str, M]:
        """Wait at most `timeout` seconds for one message of class `kind` from each of `peers`.

        timeout: None for no limit. where: returns True for messages to accept (default: all). Returns the
        messages in the order of `peers`, without messages that did not arrive in time. Messages that arrived
        before the call count, and messages that do not match stay for a later call; `kind` must be in the
        class's `collected`. Raises AskInHandler and UnknownPeer as `ask` does.

        >>> wait(client.collect(Note, ["client-1", "client-2"], timeout=5.0))
        {'client-1': Note(number=1), 'client-2': Note(number=2)}
        """
        self._require_alive("collect")
        self._refuse_in_handler("collect")
        self._require_collected(kind)
        if isinstance(peers, str):
            raise TypeError(f"collect() takes several peers, such as [{peers!r}], not the text {peers!r}")
        if timeout is not None:
            require_seconds(timeout, "collect")
        names = [plain_name(peer, "collect") for peer in peers]
        for name in names:
            self._transport.require_known(name)
        found = await self._mailbox.collect(kind, names, timeout=timeout, where=_as_envelope_filter(where))
        return {peer: envelope.message for peer, envelope in found.items()}  # type: ignore[misc]

    def discard(self, kind: type[M], where: Callable[[M], bool] | None = None) -> int:
        """Drop the kept messages of class `kind` for which `where` holds (default: all); return how many."""
        self._require_collected(kind)
        return self._mailbox.discard(kind, _as_envelope_filter(where))

    def give_up_on(self, peer: str) -> None:
        """Stop waiting for `peer`, which has left, as if its messages had timed out."""
        if self._open_questions is not None:
            self._open_questions.give_up_on(peer)
        self._mailbox.excuse(peer)

    def _forget(self, peer: str) -> None:
        """Stop waiting for `peer`, which has left, and drop the messages kept for it."""
        self.give_up_on(peer)
        if self._rounds is not None:
            self._rounds.forget(peer)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Run `coroutine` concurrently with `run`. It ends with the actor; if it fails, the actor fails."""
        if not self._alive:
            coroutine.close()
            self._require_alive("spawn")
        label = str(getattr(coroutine, "__name__", coroutine)) if name is None else name
        return self._tasks.start(coroutine, label)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` seconds."""
        # An `async def`, so that Python warns if it is never awaited.
        await self._transport.sleep(seconds)

    @property
    def now(self) -> float:
        """Current time in seconds."""
        now = self._transport.now  # on a separate line: a dotted call looks in the class first
        return now()

    def _progress(self) -> str | None:
        """Return the progress of `run` in words; None if unknown."""
        return None

    @property
    def round_trips(self) -> RoundTrips:
        """Estimates of the times that peers take to answer, which determine timeouts.

        ``round_trips.wait_at_first(seconds)`` sets the first timeout to a quarter of `seconds`, for messages
        of classes without measurements.
        """
        if self._round_trips is None:
            self._round_trips = RoundTrips()
        return self._round_trips

    @property
    def _questions(self) -> OpenQuestions:
        if self._open_questions is None:
            self._open_questions = OpenQuestions(self.name, self._transport.send, self.round_trips)
        return self._open_questions

    @property
    def _answers(self) -> GivenAnswers:
        given = self._given_answers = self._given_answers or GivenAnswers()
        return given

    # --- for the supervisor ---------------------------------------------------------------------------------

    def _launch(self, first_request: int, failed: Failed) -> None:
        """Start the actor; the event loop calls `failed(actor, where, error)` once for each failing task.

        Request numbers start at `first_request`, so that answers meant for an earlier actor of this name are
        not mistaken for its own.
        """
        if self._alive or self._tasks:
            raise ActorError(f"{self.name} is still {self._phase if self._alive else 'ending'}")
        self._transport.attach(self.name, self._deliver)
        self._next_request = first_request
        self._failed = failed
        self._tasks.failed = self._report_failure
        self._phase = "running"
        self._alive = True
        self._main = self.spawn(self._behave(), "on_start")

    def _stop_gracefully(self) -> asyncio.Task[None]:
        """Start `on_stop` as a task of this actor, so that a crash ends it too; return the task."""
        if self._stop_task is None:
            self._phase = "stopping"
            self._stop_task = self.spawn(self.on_stop(), "on_stop")
        return self._stop_task

    def _fail(self, recovery: Coroutine[Any, Any, None]) -> None:
        """Cancel all tasks and make `recovery` the actor's only task."""
        self._tasks.cancel()
        self._phase = "failed"
        self.spawn(recovery, "on_failure")

    def _halt(self) -> list[asyncio.Task[Any]]:
        """End immediately; return the tasks that have yet to unwind. Any of these tasks may call this."""
        self._phase = "stopped"
        self._alive = False
        self._failed = None
        self._tasks.failed = None
        self._main = None
        self._pump = None
        self._stop_task = None
        self._mailbox.clear()
        self._given_answers = None
        return self._tasks.cancel()

    # --- machinery ------------------------------------------------------------------------------------------

    async def _behave(self) -> None:
        await self.on_start()
        self._pump = self.spawn(self._handle_messages(), "on_message")
        self._tasks.relabel("run")
        await self.run()

    async def _handle_messages(self) -> None:
        arrived, bell = self._mailbox.arrived, self._mailbox.bell
        while True:
            while not arrived:  # mailbox.get(), but without a coroutine for each message
                await bell
            envelope = arrived.pop(0)
            message = envelope.message
            try:
                answer = await self.on_message(message, envelope.sender)
                if envelope.request is None:
                    if answer is not None:
                        raise ActorError(
                            f"on_message() returned a result of type {type(answer).__name__} for a message "
                            f"of type {type(message).__name__} that was sent with tell(), not ask(), so "
                            f"{envelope.sender} is not waiting for an answer; use tell()"
                        )
                elif asyncio.isfuture(answer) and answer in self._tasks:
                    answer.add_done_callback(partial(self._answer_later, envelope))
                elif asyncio.isfuture(answer) and answer.done():  # a task that ended before it was returned
                    self._answer_later(envelope, answer)
                else:
                    self._answer(envelope, answer)
            except Exception as error:
                self._tasks.relabel(type(message).__name__)
                if envelope.request is not None:
                    self._answer(envelope, None, describe(error))
                raise
            del envelope, message, answer  # an idle actor keeps no peer's model in memory

    def _answer_later(self, question: Envelope, task: asyncio.Future[Any]) -> None:
        """Answer with the result of a task; `Tasks` reports its failure."""
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        if failure is not None:
            self._answer(question, None, describe(failure))
            return
        try:
            self._answer(question, task.result())
        except Exception as error:
            self._answer(question, None, describe(error))
            self._report_failure(type(question.message).__name__, error)

    def _answer(self, question: Envelope, message: object, error: str | None = None) -> None:
        if self._alive:
            asked = question.request
            assert not isinstance(asked, RoundMark)  # a message of a round is no question
            answer = Envelope(self.name, question.sender, message, None, asked, error)
            if isinstance(asked, Question):
                self._answers.keep(question.sender, asked, answer)
            try:
                self._transport.send(answer)
            except TypeError as refused:
                raise unsendable_message_error("the answer of on_message()", refused) from refused

    def _deliver(self, envelope: Envelope) -> None:
        """Accept an envelope from the transport; neither waits nor raises."""
        message, sender, request = envelope.message, envelope.sender, envelope.request
        if self._mailbox.collections:
            self._mailbox.peer_active(sender)
        if isinstance(request, Question) and not self._answers.is_new(sender, request, self.now):
            self._answer_again(sender, request)
            return
        try:
            if self.intercept(message, sender):
                return
        except Exception as error:
            self._report_failure("intercept", error)
            return
        if request is None:
            if envelope.answer_to is None:
                self._mailbox.put(envelope)
            else:
                self._late_answers += not self._questions.answered(envelope)
        elif type(request) is RoundMark:
            if self._rounds is not None:
                self._rounds.arrived(envelope)
        elif type(message) in self.collected:
            kind = type(message).__name__
            self._answer(envelope, None, f"{self.name} collects {kind}: send it with tell(), not ask()")
        elif not self._mailbox.put(envelope) and isinstance(request, Question):
            self._answers.forget(sender, request)

    def _send_marked(self, envelope: Envelope) -> None:
        """Send a message of a round; do nothing after this actor has ended."""
        if self._alive:
            try:
                self._transport.send(envelope)
            except TypeError as error:
                raise unsendable_message_error("a message of a round", error) from error

    def _answer_again(self, sender: str, question: Question) -> None:
        """Send the earlier answer again, if there is one; otherwise only note that the sender is alive."""
        try:
            self.intercept(None, sender)
        except Exception as error:
            self._report_failure("intercept", error)
        else:
            if (answer := self._answers.again(sender, question)) is not None:
                self._transport.send(answer)
            elif self._answers.is_being_handled(sender, question):
                self._transport.send(Envelope(self.name, sender, InProgress(), None, question))

    def _report_failure(self, where: str, error: Exception) -> None:
        if self._failed is not None:
            self._failed(self, where, error)

    def _require_alive(self, verb: str) -> None:
        if not self._alive:
            raise ActorError(f"{self.name} cannot {verb}: it is {self._phase}, not running")

    def _require_collected(self, kind: type) -> None:
        if kind not in self.collected:
            raise ActorError(
                f"{type(self).__name__} cannot collect {kind.__name__}: add it to the class attribute "
                "`collected`, so that early messages wait in the mailbox instead of going to on_message()"
            )

    def _refuse_in_handler(self, verb: str) -> None:
        if self._pump is not None and asyncio.current_task() is self._pump:
            raise AskInHandler(
                f"{self.name} called {verb}() in on_message(). While a handler waits, its actor handles no "
                "other message, so two actors that wait for each other are stuck. Use self.spawn() for a "
                f"coroutine that calls {verb}()"
            )


def _as_envelope_filter(where: Callable[[Any], bool] | None) -> Callable[[Envelope], bool] | None:
    return None if where is None else lambda envelope: where(envelope.message)
