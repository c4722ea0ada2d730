"""Hooks of a run: objects whose methods are called when events occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from actors.message import Envelope, describe

MessageListener = Callable[[str, float, Envelope, str, int, str, int], None]


class MessageEvent(NamedTuple):
    """Event of a message. A listener of messages gets the same values, in this order.

    kind: "sent", "delivered", "lost" or "dropped". time_s: virtual time. message_type: name of its class.
    size_bytes: simulated size. detail: reason for a loss or drop, "duplicate" for a copy that the network
    sent. number: identifier of the message, shared by all its events.
    """

    kind: str
    time_s: float
    envelope: Envelope
    message_type: str
    size_bytes: int
    detail: str
    number: int


class Hook:
    """Methods of a hook that do not take a simulation. Derive hooks from `RunHook`."""

    ends_run: ClassVar[bool] = False

    def message(self, event: MessageEvent) -> None:
        """Called for each event of a message: when it is sent, delivered, lost or dropped."""

    def failed(self, line: str) -> None:
        """Called when the code of a client or a server fails. line: name, error, and source location."""


class Hooks:
    """Hooks of one run, called in the order in which they were added."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        """Messages about hooks that failed and were removed."""
        self.failure: BaseException | None = None
        """Error of a hook with `ends_run`; it ends the run."""
        self._hooks: list[Hook] = []

    def add(self, hook: Hook) -> None:
        self._hooks.append(hook)

    def call(self, name: str, *arguments: Any) -> None:
        """Call the named method of each hook. Raises the error of a hook with `ends_run`."""
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
        """Return a function that passes message events to `first`, and then to hooks that define `message`.

        call: called instead of `self.call`; messages are sent in the tasks of clients, which must not raise
            the errors of hooks.
        """
        if not any(type(hook).message is not Hook.message for hook in self._hooks):
            return first

        def listen(*values: Any) -> None:
            first(*values)
            call("message", MessageEvent(*values))

        return listen
