"""A bounded first-in-first-out mailbox with selective receive."""

import asyncio
import math
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

from actors.codec import size
from actors.message import Envelope

_NAMES_SHOWN = 8
_FEW = 16  # messages that wait however large they are, such as the models of all neighbours in a round
_NOTHING: dict[type, list[Envelope]] = {}  # which nobody changes


class Bell(Protocol):
    """Wakes one task, again and again: whenever it awaits the bell, the next ring lets it go on."""

    def __await__(self) -> Generator[Any, None, None]: ...

    def ring(self) -> None:
        """Let the task that waits go on; nothing happens if none does."""


class FutureBell:
    """A bell on any event loop."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, None, None]:
        self._future = asyncio.get_running_loop().create_future()
        yield from self._future

    def ring(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Watch(Protocol):
    """An observer of one `collect`, which is told whose messages are missing and when they come."""

    def begin(self, missing: Iterable[str]) -> None:
        """The wait begins; those that have come already are not missing."""

    def arrived(self, envelope: Envelope) -> None:
        """A wanted message came, perhaps before the wait began."""

    def heard(self, peer: str) -> None:
        """Something came from `peer`, whose message is missing."""

    def excused(self, peer: str) -> None:
        """`peer` is not waited for any longer."""

    def end(self) -> None:
        """The wait is over."""


class _Collection:
    """One `collect` in progress: whose message is still missing, and what has come."""

    __slots__ = ("expired", "found", "kind", "missing", "wakeup", "watch", "where")

    def __init__(
        self,
        kind: type,
        peers: Iterable[str],
        where: Callable[[Envelope], bool] | None,
        watch: Watch | None,
    ) -> None:
        self.kind = kind
        self.missing = dict.fromkeys(peers)
        self.where = where
        self.watch = watch
        self.found: dict[str, Envelope] = {}
        self.expired = False
        self.wakeup: asyncio.Future[None] | None = None

    def offer(self, envelope: Envelope) -> bool:
        """Take the envelope if it is wanted."""
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
        """Do not wait for `peer`."""
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
    """Holds at most `capacity` envelopes; what comes beyond is refused and counted in `overflows`.

    limit_bytes: the encoded size of all of them, too, unless it is infinite or they are few.
    Messages whose exact class is in `collected` wait for `collect`, however early they come; all others are
    taken in order of arrival by the one consumer: with `get`, or from `arrived`, waiting for the `bell`.
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
        self._bytes_most = 0  # of what waits, what was taken since the last count included
        self._full_at = 0  # how many messages waited when they were counted and no more would fit
        self.arrived: list[Envelope] = []  # an empty deque takes ten times as much, and most are empty
        self._collected = collected
        self._kept = _NOTHING  # of those classes, as far as there were any
        self._kept_count = 0
        self.collections: tuple[_Collection, ...] = ()
        self.bell = bell()

    def __len__(self) -> int:
        return len(self.arrived) + self._kept_count

    @property
    def contents(self) -> list[Envelope]:
        """The messages that wait to be handled or collected, each kind in the order of its arrival."""
        kept = [self._kept.get(kind, []) for kind in self._collected]
        return [*self.arrived, *[envelope for envelopes in kept for envelope in envelopes]]

    def put(self, envelope: Envelope) -> bool:
        """Accept the envelope, or return False because the mailbox is full. Never raises, never waits."""
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
        """The next envelope for the consumer, as soon as there is one."""
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
        watch: Watch | None = None,
    ) -> dict[str, Envelope]:
        """The first envelope with a `kind` (one of `collected`) from each peer for which `where` holds.

        Returns, in the order of `peers`, what has come when nobody is missing or after `timeout` seconds.
        Other messages stay. If the caller is cancelled, the messages taken so far are gone.
        """
        order = tuple(dict.fromkeys(peers))
        collection = _Collection(kind, order, where, watch)
        loop = asyncio.get_running_loop()
        timer = None if timeout is None else loop.call_later(timeout, collection.expire)
        self.collections = (*self.collections, collection)
        try:
            self._collect_kept(collection)
            if watch is not None:
                watch.begin(collection.missing)
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
        """Have no collection in progress wait for `peer` any longer; it will be missing there."""
        for collection in self.collections:
            collection.excuse(peer)

    def heard(self, peer: str) -> None:
        """Have the watches know that something came from `peer`."""
        for collection in self.collections:
            if collection.watch is not None and peer in collection.missing:
                collection.watch.heard(peer)

    def clear(self) -> None:
        """Drop everything that waits."""
        # The oldest first: in this order go the vectors in them, and are their places taken again.
        self.arrived.reverse()
        self.arrived.clear()
        for kind in self._collected:
            self._kept.pop(kind, None)
        self._kept_count = 0

    def waits(self) -> list[str]:
        """A line for each `collect` in progress: what it still waits for."""
        return [f"{c.kind.__name__} from {_names(list(c.missing))}" for c in self.collections if c.missing]

    def _offer(self, kind: type, envelope: Envelope) -> bool:
        for collection in self.collections:
            if collection.kind is kind:
                try:
                    if collection.offer(envelope):
                        return True
                except Exception:
                    # `where` is the collector's code, but this is the transport's task: let the collector run
                    # into the same error in its own.
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
        """Whether the limit of bytes lets it in; if so, it is counted."""
        if self.limit_bytes == math.inf:
            return True
        needed, count = size(envelope), len(self)
        if count >= _FEW and self._bytes_most + needed > self.limit_bytes:
            if self._full_at and count >= self._full_at:  # nothing was taken: no need to count again
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
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
