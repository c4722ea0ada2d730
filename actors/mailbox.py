"""A bounded first-in-first-out mailbox with selective receive."""

import asyncio
import math
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

from actors.codec import size
from actors.message import Envelope

_NAMES_SHOWN = 8
_FEW = 16  # number of messages that may wait whatever their size, such as all neighbors' models in a round
_NOTHING: dict[type, list[Envelope]] = {}  # shared by all empty mailboxes, never changed


class Bell(Protocol):
    """Repeatable wakeup of one task: a task that awaits the bell resumes at the next ring."""

    def __await__(self) -> Generator[Any, None, None]: ...

    def ring(self) -> None:
        """Resume the waiting task; do nothing if no task waits."""


class FutureBell:
    """Bell that works on any event loop."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, None, None]:
        self._future = asyncio.get_running_loop().create_future()
        yield from self._future

    def ring(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class CollectObserver(Protocol):
    """Observer of one `collect`: it receives the missing peers and the arrivals of their messages."""

    def start(self, missing: Iterable[str]) -> None:
        """Start to observe; peers with earlier messages are not in `missing`."""

    def arrived(self, envelope: Envelope) -> None:
        """Record a wanted message, which may have come before the wait started."""

    def peer_active(self, peer: str) -> None:
        """Record that another message came from `peer`, which is still missing."""

    def excused(self, peer: str) -> None:
        """Record that the collection no longer waits for `peer`."""

    def end(self) -> None:
        """End the observation."""


class _Collection:
    """One `collect` in progress: the missing peers and the messages so far."""

    __slots__ = ("expired", "found", "kind", "missing", "wakeup", "watch", "where")

    def __init__(
        self,
        kind: type,
        peers: Iterable[str],
        where: Callable[[Envelope], bool] | None,
        watch: CollectObserver | None,
    ) -> None:
        self.kind = kind
        self.missing = dict.fromkeys(peers)
        self.where = where
        self.watch = watch
        self.found: dict[str, Envelope] = {}
        self.expired = False
        self.wakeup: asyncio.Future[None] | None = None

    def offer(self, envelope: Envelope) -> bool:
        """Take the envelope and return True if it is wanted."""
        if envelope.sender not in self.missing or not (self.where is None or self.where(envelope)):
            return False
        del self.missing[envelope.sender]
        self.found[envelope.sender] = envelope
        if self.watch is not None:
            self.watch.arrived(envelope)
        if not self.missing:
            self.wake()
        return True

    def excuse(self, peer: str) -> None:
        """Stop waiting for `peer`."""
        if peer in self.missing and self.watch is not None:
            self.watch.excused(peer)
        self.missing.pop(peer, None)
        if not self.missing:
            self.wake()

    def expire(self) -> None:
        self.expired = True
        if self.watch is not None:
            self.watch.end()
        self.wake()

    def wake(self) -> None:
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)


class Mailbox:
    """Store of at most `capacity` envelopes; further envelopes are rejected and counted in `overflows`.

    limit_bytes: limit of the envelopes' total encoded size; it does not apply to the first few envelopes.
    Messages with an exact class in `collected` wait for `collect`, however early they come. The one consumer
    takes all others in order of arrival: with `get`, or from `arrived`, waiting for the `bell`.
    """

    __slots__ = (
        "_bytes_most",
        "_collected",
        "_full_at",
        "_kept",
        "_kept_count",
        "arrived",
        "bell",
        "capacity",
        "collections",
        "limit_bytes",
        "overflows",
    )

    def __init__(
        self,
        capacity: int,
        collected: tuple[type, ...] = (),
        bell: Callable[[], Bell] = FutureBell,
        limit_bytes: float = math.inf,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a mailbox needs a capacity of at least 1, not {capacity}")
        self.capacity = capacity
        self.limit_bytes = limit_bytes
        self.overflows = 0
        self._bytes_most = 0  # upper bound of the waiting bytes; includes messages taken since the last count
        self._full_at = 0  # number of messages at the last count that found no room
        self.arrived: list[Envelope] = []  # an empty deque takes ten times the memory, and most are empty
        self._collected = collected
        self._kept = _NOTHING  # messages of collected classes
        self._kept_count = 0
        self.collections: tuple[_Collection, ...] = ()
        self.bell = bell()

    def __len__(self) -> int:
        return len(self.arrived) + self._kept_count

    @property
    def contents(self) -> list[Envelope]:
        """Messages that wait to be handled or collected, each kind in order of arrival."""
        kept = [self._kept.get(kind, []) for kind in self._collected]
        return [*self.arrived, *[envelope for envelopes in kept for envelope in envelopes]]

    def put(self, envelope: Envelope) -> bool:
        """Accept the envelope, or return False if the mailbox is full. Never raises, never waits."""
        kind = type(envelope.message)
        if kind in self._collected:
            return self._offer(kind, envelope) or self._keep(kind, envelope)
        if len(self.arrived) + self._kept_count >= self.capacity or not self._fits(envelope):
            self.overflows += 1
            return False
        self.arrived.append(envelope)
        self.bell.ring()
        return True

    async def get(self) -> Envelope:
        """Return the next envelope for the consumer, as soon as there is one."""
        while not self.arrived:
            await self.bell
        return self.arrived.pop(0)

    async def collect(
        self,
        kind: type,
        peers: Iterable[str],
        *,
        timeout: float | None = None,
        where: Callable[[Envelope], bool] | None = None,
        watch: CollectObserver | None = None,
    ) -> dict[str, Envelope]:
        """Return each peer's first envelope with a message of class `kind` that `where` accepts.

        kind: one of `collected`. Returns when no peer is missing, or after `timeout` seconds with the
        envelopes so far, in the order of `peers`. Other messages stay. If the caller is canceled, the
        messages taken so far are lost.
        """
        order = tuple(dict.fromkeys(peers))
        collection = _Collection(kind, order, where, watch)
        loop = asyncio.get_running_loop()
        timer = None if timeout is None else loop.call_later(timeout, collection.expire)
        self.collections = (*self.collections, collection)
        try:
            self._collect_kept(collection)
            if watch is not None:
                watch.start(collection.missing)
            while collection.missing and not collection.expired:
                collection.wakeup = loop.create_future()
                await collection.wakeup
                self._collect_kept(collection)
        finally:
            self.collections = tuple([other for other in self.collections if other is not collection])
            if timer is not None:
                timer.cancel()
            if watch is not None:
                watch.end()
        return {peer: collection.found[peer] for peer in order if peer in collection.found}

    def discard(self, kind: type, where: Callable[[Envelope], bool] | None = None) -> int:
        """Drop the envelopes with a `kind` (one of `collected`) for which `where` holds; return how many."""
        kept = self._kept.get(kind, [])
        staying = [] if where is None else [envelope for envelope in kept if not where(envelope)]
        return self._replace_kept(kind, staying)

    def excuse(self, peer: str) -> None:
        """Stop all collections in progress from waiting for `peer`; its message will be missing."""
        for collection in self.collections:
            collection.excuse(peer)

    def peer_active(self, peer: str) -> None:
        """Tell the observers of the collections that still wait for `peer` that a message came from it."""
        for collection in self.collections:
            if collection.watch is not None and peer in collection.missing:
                collection.watch.peer_active(peer)

    def clear(self) -> None:
        """Drop all waiting messages."""
        # Oldest first: vectors in them are freed in this order, and their slots in the pool are reused.
        self.arrived.reverse()
        self.arrived.clear()
        for kind in self._collected:
            self._kept.pop(kind, None)
        self._kept_count = 0

    def waits(self) -> list[str]:
        """Return a line for each `collect` in progress: the class of the messages, and the missing peers."""
        return [f"{c.kind.__name__} from {_names(list(c.missing))}" for c in self.collections if c.missing]

    def _offer(self, kind: type, envelope: Envelope) -> bool:
        for collection in self.collections:
            if collection.kind is kind:
                try:
                    if collection.offer(envelope):
                        return True
                except Exception:
                    # `where` is the collector's code, but this is the transport's task: wake the collector so
                    # that the same error is raised in its task.
                    collection.wake()
        return False

    def _keep(self, kind: type, envelope: Envelope) -> bool:
        if len(self) >= self.capacity or not self._fits(envelope):
            self.overflows += 1
            return False
        if self._kept is _NOTHING:
            self._kept = {}
        self._kept.setdefault(kind, []).append(envelope)
        self._kept_count += 1
        return True

    def _fits(self, envelope: Envelope) -> bool:
        """Return whether the limit of bytes admits the envelope; if so, count it."""
        if self.limit_bytes == math.inf:
            return True
        needed, count = size(envelope), len(self)
        if count >= _FEW and self._bytes_most + needed > self.limit_bytes:
            if self._full_at and count >= self._full_at:  # nothing was taken: do not count again
                return False
            self._bytes_most = sum(map(size, self.contents))
            if self._bytes_most + needed > self.limit_bytes:
                self._full_at = count
                return False
        self._full_at = 0
        self._bytes_most = needed + (self._bytes_most if count else 0)
        return True

    def _collect_kept(self, collection: _Collection) -> None:
        if collection.missing:
            kept = self._kept.get(collection.kind, [])
            staying = [envelope for envelope in kept if not collection.offer(envelope)]
            self._replace_kept(collection.kind, staying)

    def _replace_kept(self, kind: type, staying: list[Envelope]) -> int:
        gone = len(self._kept.get(kind, ())) - len(staying)
        if kind in self._kept:
            self._kept[kind] = staying
        self._kept_count -= gone
        return gone


def _names(names: list[str]) -> str:
    text = ", ".join(names[:_NAMES_SHOWN])
    return text if len(names) <= _NAMES_SHOWN else f"{text} and {len(names) - _NAMES_SHOWN} more"
