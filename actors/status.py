"""State of an actor in words, for observers, error messages and explanations of a run."""

from __future__ import annotations

import asyncio

from actors.actor import Actor
from actors.tasks import handled_message, waiting_line


class ActorStatus:
    """Current state of an actor."""

    __slots__ = ("_actor",)

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    @property
    def late_answers(self) -> int:
        """Number of answers that came after the actor had stopped waiting for them."""
        return self._actor._late_answers

    @property
    def overflows(self) -> int:
        """Number of messages that a full mailbox has rejected."""
        return self._actor._mailbox.overflows

    @property
    def waiting_for(self) -> str | None:
        """Messages of other actors for which `run` and spawned coroutines wait; None if there are none."""
        actor = self._actor
        questions = [] if actor._open_questions is None else actor._open_questions.waits()
        return "; ".join(questions + actor._mailbox.waits()) or None

    @property
    def progress(self) -> str | None:
        """Progress of `run` in words; None if unknown."""
        return self._actor._progress()

    @property
    def inbox(self) -> list[str]:
        """Messages in its mailbox, in words."""
        waiting = self._actor._mailbox.contents
        return [f"{type(envelope.message).__name__} from {envelope.sender}" for envelope in waiting]

    @property
    def main_task(self) -> asyncio.Task[None] | None:
        """Task of `on_start` and `run`; None before the start and after the end."""
        return self._actor._main

    def whereabouts(self, otherwise: str = "something that no actor sends") -> str:
        """Return where the actor waits, and for what: in words, or `otherwise` if it waits for no actor."""
        actor = self._actor
        kind, main, pump = type(actor), actor._main, actor._pump
        line = None if main is None else waiting_line(kind, main)
        where = ", ".join([part for part in (self.progress, line) if part])
        waits = f"waits for {self.waiting_for or otherwise}"
        handled = None if pump is None else handled_message(pump)
        others = [
            actor._tasks.described(kind, task, handled if task is pump else None)
            for task in actor._tasks
            if task is not main and (task is not pump or handled is not None)
        ]
        also = [f"{other} also waits" for other in others]
        return "; ".join([f"{where}: {waits}" if where else waits, *also])
