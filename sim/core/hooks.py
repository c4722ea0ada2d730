"""The hooks of a run: a list whose methods are called at certain moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from actors.message import Envelope, describe

MessageListener = Callable[[str, float, Envelope, str, int, str, int], None]


class Hook:
    """What a hook has that needs no simulation; `RunHook` has the rest."""

    ends_run: ClassVar[bool] = False

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

    def failed(self, line: str) -> None:
        """Called when the code of a client or a server fails. line: its name, the error, and the place."""


class Hooks:
    """The hooks of one run, called in the order in which they were added."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        """A line for each hook that failed and was removed."""
        self.failure: BaseException | None = None
        """The error of a hook with `ends_run`, which ends the run."""
        self._hooks: list[Hook] = []

    def add(self, hook: Hook) -> None:
        self._hooks.append(hook)

    def call(self, name: str, *arguments: Any) -> None:
        """Call this method of each hook. Raises the error of a hook with `ends_run`."""
        for hook in tuple(self._hooks):
            try:
                getattr(hook, name)(*arguments)
            except BaseException as error:
                if hook.ends_run:
                    self.failure = error
                if hook.ends_run or not isinstance(error, Exception):
                    raise
                self._hooks.remove(hook)
                what = f"the hook {type(hook).__name__} failed in {name}() and was removed"
                self.removed.append(f"{what}: {describe(error)}")

    def listener(self, first: MessageListener, call: Callable[..., None]) -> MessageListener:
        """A function that tells `first` of the events of messages, then the hooks that define `message`.

        call: as the method `call`, for code that runs inside the task of a client.
        """
        if not any(type(hook).message is not Hook.message for hook in self._hooks):
            return first

        def listen(*event: Any) -> None:
            first(*event)
            call("message", *event)

        return listen
