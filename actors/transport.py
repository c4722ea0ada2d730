"""Interface between actors and the world: reachable names, transport of messages, and time."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable

from actors.codec import size
from actors.mailbox import Bell, FutureBell
from actors.message import Envelope
from actors.values import with_immutable_message

Deliver = Callable[[Envelope], None]


class Transport(ABC):
    """Carrier of envelopes between named actors.

    Time is the running event loop's: a simulated transport runs on a loop with virtual time. `deliver`
    callbacks neither wait nor raise.
    """

    mailbox_bytes = math.inf
    """Limit of the bytes in an actor's mailbox, where messages are separate copies."""

    @abstractmethod
    def attach(self, name: str, deliver: Deliver) -> None:
        """Make `name` reachable. Raises ValueError if it is already attached."""

    @abstractmethod
    def detach(self, name: str) -> None:
        """Make `name` unreachable; no effect if it is not attached. Messages already sent still arrive."""

    def abort(self, name: str) -> None:
        """Make `name` unreachable because it crashed: if sending takes time, unfinished uploads are lost."""
        self.detach(name)

    @abstractmethod
    def send(self, envelope: Envelope) -> None:
        """Send the envelope and return at once.

        The receiver gets the message as it is now: mutable parts are copied. Never raises for an unreachable
        receiver; raises TypeError for a message that cannot be encoded, and UnknownPeer as `require_known`
        does.
        """

    def require_known(self, name: str) -> None:  # noqa: B027 - most transports cannot know
        """Raise UnknownPeer for a name that no actor ever had or will have, if the transport can know."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for `seconds` seconds."""
        return asyncio.sleep(seconds)

    def bell(self) -> Bell:
        """Return a new bell, for one task to await."""
        return FutureBell()

    def now(self) -> float:
        """Return the time, in seconds from an arbitrary start."""
        return asyncio.get_running_loop().time()


class InMemoryTransport(Transport):
    """Transport within one process: delivers messages in the next turn of the event loop, in order.

    `sent == delivered + dropped + in_flight` always; a message is dropped if its receiver is not attached on
    delivery. `bytes` is the encoded size of all messages sent.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.delivered = 0
        self.dropped = 0
        self.bytes = 0
        self._attached: dict[str, Deliver] = {}
        self._wire: deque[Envelope] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._wire)

    def attach(self, name: str, deliver: Deliver) -> None:
        if name in self._attached:
            raise ValueError(f"{name} is already attached")
        self._attached[name] = deliver

    def detach(self, name: str) -> None:
        self._attached.pop(name, None)

    def send(self, envelope: Envelope) -> None:
        alterable: list[object] = []
        self.bytes += size(envelope, alterable)
        self.sent += 1
        self._wire.append(with_immutable_message(envelope) if alterable else envelope)
        if len(self._wire) == 1:
            asyncio.get_running_loop().call_soon(self._deliver_turn)

    def _deliver_turn(self) -> None:
        wire, attached = self._wire, self._attached
        for _ in range(len(wire)):  # messages sent meanwhile belong to the next turn
            envelope = wire.popleft()
            deliver = attached.get(envelope.receiver)
            if deliver is None:
                self.dropped += 1
            else:
                self.delivered += 1
                deliver(envelope)
        if wire:
            asyncio.get_running_loop().call_soon(self._deliver_turn)
