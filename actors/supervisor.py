"""Supervision of actors: start, end and failure; a failing actor stops no other actor."""

import asyncio
import re
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from actors.actor import Actor
from actors.message import ActorError, describe
from actors.source_location import definition_location, innermost_own_line, traceback_frames
from actors.transport import Transport

Factory = Callable[[], Actor]
Action = Literal["stop", "restart", "go on"]
_OUTCOMES: dict[Action, str] = {"stop": "stopped for good", "restart": "restarted", "go on": "went on"}

# Minimum distance between the first request numbers of two sessions of one name. Numbers are counted for each
# actor, because they travel in messages: the size of a message must not depend on other actors' questions.
_REQUESTS_PER_SESSION = 1 << 20

_WORD = re.compile(r"\w+(?:-\w+)*")  # matches names such as "client-7"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one actor, as text only: an exception would keep alive all objects of its frames.

    `where` is the class of the message being handled, the hook's name ("run", "on_start", ...), or a spawned
    task's name. `location` is the line of the actor's own code that was last active, as "mine.py:12", or the
    first line of its class.
    """

    name: str
    time_s: float
    where: str
    error: str
    action: Action
    traceback: str
    location: str | None = None

    def __str__(self) -> str:
        return f"{self.name} failed at {self.time_s:.6g} s in {self.what}"

    @property
    def what(self) -> str:
        """Line for users: what failed, where, and the consequence."""
        where = f"{self.where} ({self.location})" if self.location else self.where
        return f"{where}: {self.error} ({_OUTCOMES[self.action]})"


def failures_in_short(failures: Iterable[Failure]) -> list[str]:
    """Return one line for each group of failures that differ only in actor and time, ordered by the first."""
    alike: dict[tuple[object, ...], list[Failure]] = {}
    failures = list(failures)
    names = {failure.name for failure in failures}  # errors often name the failed actor, or the others
    for failure in failures:
        # One pattern for all words, not one of all names: that would take failures times names.
        error = _WORD.sub(lambda word: "" if word[0] in names else word[0], failure.error)
        alike.setdefault((failure.where, failure.location, error, failure.action), []).append(failure)
    return [_failure_group_line(group) for group in alike.values()]


def _failure_group_line(group: list[Failure]) -> str:
    first, others = group[0], dict.fromkeys([failure.name for failure in group[1:]])
    if len(group) == 1:
        return str(first)
    names = [name for name in others if name != first.name]
    who = f"{first.name} and {len(names)} more" if names else first.name
    again = f"{len(group)} times, " if len(group) > len(names) + 1 else ""
    return f"{who} failed {again}first at {first.time_s:.6g} s in {first.what}"


class Supervisor:
    """Supervisor of the actors that share one transport.

    on_failure: whether a failed actor is stopped for good, or replaced by a new one from its factory, at most
    `max_restarts` times for each name. log: gets one line for each failure. observe: gets (time in seconds,
    actor name, event); the events are start, stop (graceful), crash (killed), failed, restarted.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        on_failure: Action = "stop",
        max_restarts: int = 3,
        log: Callable[[str], None] | None = None,
        observe: Callable[[float, str, str], None] | None = None,
    ) -> None:
        if on_failure not in ("stop", "restart"):
            raise ValueError(f'on_failure must be "stop" or "restart", not {on_failure!r}')
        self.running: dict[str, Actor] = {}
        self.failures: list[Failure] = []
        self._transport = transport
        self._on_failure = on_failure
        self._max_restarts = max_restarts
        self._log = log
        self._observe = observe
        self._factories: dict[str, Factory] = {}
        self._next_request: dict[str, int] = {}  # number of the first question of the next session
        self._restarts: dict[str, int] = {}
        self._ending: dict[asyncio.Task[Any], None] = {}
        self._failed = self._actor_failed  # bound once, for all actors

    def start(self, actor_or_factory: Actor | Factory) -> Actor:
        """Start an actor, or create and start it with a factory; restarting failed actors requires factories.

        An actor that has ended may be started again and keeps its fields. Raises ActorError if an actor of
        that name is running.
        """
        factory = None if isinstance(actor_or_factory, Actor) else actor_or_factory
        actor = actor_or_factory if isinstance(actor_or_factory, Actor) else actor_or_factory()
        if factory is None and self._on_failure == "restart":
            raise ActorError(
                f'{actor.name} needs a factory: on_failure = "restart" replaces a failed actor by a new one'
            )
        self._launch(actor, factory)
        self._notify(actor.name, "start")
        return actor

    def continue_lives(self, name: str, lives: int) -> None:
        """Set the number of sessions that an actor had earlier, in another process."""
        self._next_request[name] = lives * _REQUESTS_PER_SESSION

    async def stop(self, name: str) -> bool:
        """End an actor gracefully: await its `on_stop`, then cancel its tasks and wait for their end.

        A failed actor ends without `on_stop`. If this call is canceled, `on_stop` is cut short. Returns False
        if no such actor is running.
        """
        actor = self.running.get(name)
        if actor is None:
            return False
        tasks: list[asyncio.Task[Any]] = []
        try:
            if actor._phase != "failed":
                await asyncio.wait([actor._stop_gracefully()])
        finally:
            if self.running.get(name) is actor:  # not crashed or stopped by another caller meanwhile
                tasks = self._end(actor)
                self._transport.detach(name)
                self._notify(name, "stop")
        await _wait_for_canceled(tasks)
        return True

    def kill(self, name: str) -> bool:
        """Crash an actor at once, without `on_stop`; any task may call this, including a task of the actor.

        Messages that it sends while its tasks unwind are dropped. Returns False if no such actor is running.
        """
        actor = self.running.get(name)
        if actor is None:
            return False
        self._end(actor)
        self._transport.abort(name)
        self._notify(name, "crash")
        return True

    async def drain(self) -> None:
        """End all actors at once, without `on_stop` or events; wait until none of their tasks is left."""
        for actor in list(self.running.values()):
            self._end(actor)
            self._transport.detach(actor.name)
        await _wait_for_canceled(list(self._ending))

    def _launch(self, actor: Actor, factory: Factory | None) -> None:
        name = actor.name
        if name in self.running:
            raise ActorError(f"{name} is already running")
        first = self._next_request.get(name, 0)
        actor._launch(first, self._failed)
        self._next_request[name] = first + _REQUESTS_PER_SESSION
        self.running[name] = actor
        if factory is not None and self._on_failure == "restart":
            self._factories[name] = factory

    def _end(self, actor: Actor) -> list[asyncio.Task[Any]]:
        del self.running[actor.name]
        self._next_request[actor.name] = max(self._next_request[actor.name], actor._next_request)
        self._factories.pop(actor.name, None)
        tasks = actor._halt()
        for task in tasks:
            self._ending[task] = None  # until it has unwound: a reference keeps it alive for drain()
            task.add_done_callback(self._ending.pop)
        return tasks

    def _actor_failed(self, actor: Actor, where: str, error: Exception) -> None:
        if actor._phase != "running":  # it is already ending, and the failure does not change how
            self.record(actor, where, error, "stop")
            return
        restarts = self._restarts.get(actor.name, 0)
        again = self._on_failure == "restart" and restarts < self._max_restarts
        self._restarts[actor.name] = restarts + again
        self.record(actor, where, error, "restart" if again else "stop")
        self._notify(actor.name, "failed")
        actor._fail(self._recover(actor, error, again))

    async def _recover(self, actor: Actor, error: Exception, again: bool) -> None:
        """Handle a failure, in a task of the failed actor, so that a crash also ends this task."""
        try:
            await actor.on_failure(error)
        except Exception as second:
            self.record(actor, "on_failure", second, "restart" if again else "stop")
        factory = self._factories.get(actor.name)
        self._end(actor)
        self._transport.abort(actor.name)
        if again and factory is not None:
            self._restart(actor, factory)

    def _restart(self, failed: Actor, factory: Factory) -> None:
        try:
            successor = factory()
            if successor.name != failed.name:
                raise ActorError(
                    f"the factory of {failed.name} returned an actor with the name {successor.name}"
                )
        except Exception as error:
            self.record(failed, "restart", error, "stop")
            return
        self._launch(successor, factory)
        self._notify(successor.name, "restarted")

    def record(
        self, actor: Actor, where: str, error: BaseException, action: Action, location: str | None = None
    ) -> None:
        """Record a failure of an actor's code and the action taken; this has no other effect.

        location: the line to report, if it differs from the one in the error.
        """
        text = "".join(traceback.format_exception(error))
        location = (
            location
            or innermost_own_line(type(actor), traceback_frames(error))
            or definition_location(type(actor))
        )
        failure = Failure(actor.name, self._transport.now(), where, describe(error), action, text, location)
        self.failures.append(failure)
        if self._log is not None:
            self._log(str(failure))

    def _notify(self, name: str, event: str) -> None:
        if self._observe is not None:
            self._observe(self._transport.now(), name, event)


async def _wait_for_canceled(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait until the canceled tasks are done, except the caller's task, if it is one of them."""
    me = asyncio.current_task()
    if others := [task for task in tasks if task is not me]:
        await asyncio.wait(others)
