"""Hooks: code that is called at certain moments of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from actors.message import Envelope, describe

if TYPE_CHECKING:
    from sim.core.simulation import Simulation

MessageListener = Callable[[str, float, Envelope, str, int, str, int], None]


class RunHook:
    """Code that is called at certain moments of a run. Override the methods that you need.

    A hook looks at the simulation and must not change it. A hook that raises an error is removed, the run
    goes on without it, and the warnings of the run name it. The error of a hook with `ends_run` ends the run.
    """

    ends_run: ClassVar[bool] = False

    def begin(self, simulation: Simulation) -> None:
        """Called before the first event. A run that goes on from a checkpoint begins again, at time 0."""

    def message(
        self,
        event: str,
        time_s: float,
        envelope: Envelope,
        message_type: str,
        size_bytes: int,
        detail: str,
        number: int,
    ) -> None:
        """Called for each event of a message: "sent", "delivered", "lost", or "dropped".

        detail: why a message was lost or dropped. number: the same for all events of one message.
        """

    def evaluated(self, simulation: Simulation) -> None:
        """Called after each evaluation; `simulation.observer.metrics` has the values."""

    def paused(self, simulation: Simulation) -> None:
        """Called at the end of an instant at which something has called `simulation.loop.pause()`."""

    def ended(self, simulation: Simulation) -> None:
        """Called when the run has reached its duration, before the last evaluation."""

    def failed(self, line: str) -> None:
        """Called when the code of a client or a server fails. line: its name, the error, and the place."""

    def closed(self, simulation: Simulation) -> None:
        """Called when the simulation is closed, also after an error."""


class Hooks:
    """The hooks of one run, called in the order in which they were added."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        """A line for each hook that failed and was removed."""
        self._hooks: list[RunHook] = []

    def add(self, hook: RunHook) -> None:
        self._hooks.append(hook)

    def call(self, name: str, *arguments: Any) -> None:
        """Call this method of each hook. Raises the error of a hook with `ends_run`."""
        for hook in tuple(self._hooks):
            try:
                getattr(hook, name)(*arguments)
            except Exception as error:
                if hook.ends_run:
                    raise
                self._hooks.remove(hook)
                what = f"the hook {type(hook).__name__} failed in {name}() and was removed"
                self.removed.append(f"{what}: {describe(error)}")

    def listener(self, first: MessageListener) -> MessageListener:
        """A function that tells `first` of the events of messages, then the hooks that define `message`."""
        if not any(type(hook).message is not RunHook.message for hook in self._hooks):
            return first

        def listen(*event: Any) -> None:
            first(*event)
            self.call("message", *event)

        return listen
