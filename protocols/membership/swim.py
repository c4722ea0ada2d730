"""SWIM: detection of the members that are up, by pings.

Das, Gupta, Motivala, "SWIM: scalable weakly-consistent infection-style process group membership protocol",
2002. Once per protocol period a client pings one member, in an order that is shuffled for every pass (section
4.3). If no ack comes within the timeout, some proxies are asked to ping it; if none has come by the end of
the period, the member is suspected (section 4.2), and declared dead if it has not refuted the suspicion for
some periods. News about members is sent with pings and acks (section 4.1).

Differences from the paper:
- A client watches only the given members, its peers, and not all clients. News of others is neither kept nor
  passed on, so if peers are a small sample of all clients, news hardly spreads: each client learns about its
  own peers mostly by its own pings and its proxies' pings.
- A new member waits for the next pass; in section 4.3, it is inserted at a random position of the current
  pass.
- A member that was declared dead comes back with a higher incarnation. From time to time a dead member is
  pinged, so that the two sides of a network that was cut find each other again.
- Any message from a suspected member ends the suspicion in its receiver; elsewhere only a refutation does.
  Each message to a suspect therefore carries the suspicion, until its refutation arrives.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from protocols.membership.view import MembershipMessage, RandomSource, Tell

ALIVE, SUSPECT, DEAD, LEFT = range(4)
News = tuple[str, int, int]
"""Name of a member, its status and its incarnation."""

_RELAYS_MAX = 64  # pings on behalf of others with acks still awaited


@dataclass(frozen=True, slots=True)
class SwimPing(MembershipMessage):
    """Ping, answered by a `SwimAck` of the same number."""

    number: int
    news: tuple[News, ...]


@dataclass(frozen=True, slots=True)
class SwimAck(MembershipMessage):
    """Confirmation that `name` is up, in answer to ping (or ping request) `number`."""

    number: int
    name: str
    news: tuple[News, ...]


@dataclass(frozen=True, slots=True)
class SwimPingRequest(MembershipMessage):
    """Request to ping `target`, which did not answer the sender's ping `number`."""

    target: str
    number: int
    news: tuple[News, ...]


@dataclass(frozen=True, slots=True)
class SwimNews(MembershipMessage):
    """News about the sender, which joins or leaves; in answer to a join, news about other members."""

    news: tuple[News, ...]
    wants_answer: bool = False


@dataclass(frozen=True, slots=True)
class SwimSettings:
    """Settings of SWIM.

    period_s: time between two pings. timeout_s: wait for an answer. proxies: number of peers asked to ping
    after the timeout. suspicion_periods: periods after which a suspected member counts as dead.
    news_per_message: largest number of membership changes in a message. retransmissions: lambda; each change
    is passed on lambda log2(n + 1) times. reconnect_s: time between two pings of dead members.
    """

    period_s: float = 1.0
    timeout_s: float = 0.3
    proxies: int = 3
    suspicion_periods: float = 5.0
    news_per_message: int = 6
    retransmissions: float = 3.0
    reconnect_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s < self.period_s:
            raise ValueError(f"the timeout, {self.timeout_s!r} s, must be above 0 and below the period")


@dataclass(slots=True)
class _WatchedMember:
    """Watched member, with its state as far as this client knows.

    timer: declares a suspected member dead. unrefuted: the member was suspected, and has sent a message, but
    has not refuted the suspicion, which others may still believe. notified_s: time of the last message that
    told the member that it counts as gone.
    """

    status: int = ALIVE
    incarnation: int = 0
    timer: asyncio.TimerHandle | None = None
    unrefuted: bool = False
    notified_s: float = -math.inf

    def set_status(self, status: int, incarnation: int) -> None:
        """Set the status, and stop the timer."""
        self.status, self.incarnation, self.unrefuted = status, incarnation, False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


_UP = (ALIVE, SUSPECT)
_MESSAGES = (SwimPing, SwimAck, SwimPingRequest, SwimNews)


class FailureDetector:
    """SWIM in one client. `changed(name, up)` is called when a watched member is gone, or back."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        draws: RandomSource,
        settings: SwimSettings,
        changed: Callable[[str, bool], None],
    ) -> None:
        self.name = name
        self.incarnation = 0
        self._loop = loop
        self._draws = draws
        self._settings = settings
        self._changed = changed
        self._members: dict[str, _WatchedMember] = {}
        self._tell: Tell | None = None  # None while this client is down
        self._timer: asyncio.TimerHandle | None = None
        self._turn: list[str] = []  # members not yet pinged in this pass; the last one is next
        self._pinged: str | None = None  # member with an awaited ack
        self._number = 0
        self._period_ends_s = 0.0
        self._reconnect_at_s = 0.0
        self._relays: dict[
            int, tuple[str, int]
        ] = {}  # number of this client's ping -> (requester, number of its ping)
        self._relayed = 0
        self._news: dict[str, list[int]] = {}  # name -> [status, incarnation, times passed on]

    # --- watched members ------------------------------------------------------------------------------------

    def watch(self, name: str, status: int = ALIVE, incarnation: int = 0) -> None:
        """Start to ping this member; no effect if it is already watched."""
        if name not in self._members:
            self._members[name] = _WatchedMember(status, incarnation)

    def forget(self, name: str) -> None:
        """Stop watching this member."""
        member = self._members.pop(name, None)
        if member is not None:
            member.set_status(LEFT, 0)

    def watch_only(self, names: Iterable[str]) -> None:
        """Watch these members, continue to watch suspected ones, and forget all others."""
        wanted, members = dict.fromkeys(names), self._members
        for name in [name for name in members if name not in wanted]:
            if members[name].status != SUSPECT:
                self.forget(name)
        for name in [name for name in wanted if name not in members]:
            self.watch(name)

    def is_up(self, name: str) -> bool:
        """Return whether a watched member is believed to be up, which includes suspected ones."""
        return self._members[name].status in _UP

    # --- sessions of this client ----------------------------------------------------------------------------

    def start(self, tell: Tell) -> None:
        """Start to ping, after a random part of a period."""
        self._tell = tell
        now_s = self._loop.time()
        self._reconnect_at_s = now_s + self._settings.reconnect_s
        self._period_ends_s = now_s + self._settings.period_s * self._draws.uniform()
        self._timer = self._loop.call_at(self._period_ends_s, self._start_period)

    def come_back(self, tell: Tell) -> None:
        """Restart after an absence: assume that all members are up, and tell some of them of the return."""
        for name, member in self._members.items():
            was_up = self.is_up(name)
            member.set_status(ALIVE, member.incarnation)
            if not was_up:
                self._changed(name, True)
        self.incarnation += 1
        self.introduce(tell)

    def introduce(self, tell: Tell) -> None:
        """Start, and announce this client to some members."""
        self._turn, self._pinged = [], None
        self._news.clear()
        self._relays.clear()
        self.start(tell)
        hello = SwimNews(((self.name, ALIVE, self.incarnation),), wants_answer=True)
        for peer in self._some(self._settings.proxies):
            tell(peer, hello)

    def leave(self, tell: Tell) -> None:
        """Send goodbye to some members, which pass it on, and stop."""
        goodbye = SwimNews(((self.name, LEFT, self.incarnation),))
        for peer in self._some(self._settings.proxies):
            tell(peer, goodbye)
        self.stop()

    def stop(self) -> None:
        """Stop sending: this client is down."""
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()
        for member in self._members.values():
            if member.status == SUSPECT:
                member.set_status(ALIVE, member.incarnation)

    # --- a protocol period ----------------------------------------------------------------------------------

    def _start_period(self) -> None:
        assert self._tell is not None  # the timer ends with the client
        if self._pinged is not None:
            self.suspect(self._pinged)
        self._pinged = self._next_in_turn()
        start_s = self._period_ends_s
        self._period_ends_s = start_s + self._settings.period_s
        if start_s >= self._reconnect_at_s:
            self._reconnect()
        if self._pinged is None:
            self._timer = self._loop.call_at(self._period_ends_s, self._start_period)
            return
        self._number += 1
        self._tell(self._pinged, SwimPing(self._number, self._take_news(self._pinged)))
        self._timer = self._loop.call_at(start_s + self._settings.timeout_s, self._ask_proxies)

    def _ask_proxies(self) -> None:
        if self._pinged is not None:
            assert self._tell is not None
            for proxy in self._some(self._settings.proxies, but=self._pinged):
                self._tell(proxy, SwimPingRequest(self._pinged, self._number, self._take_news(proxy)))
        self._timer = self._loop.call_at(self._period_ends_s, self._start_period)

    def _next_in_turn(self) -> str | None:
        for _ in range(2):  # the remainder of this pass, and a new one
            while self._turn:
                name = self._turn.pop()
                if name in self._members and self.is_up(name):
                    return name
            self._turn = self._some(len(self._members))
        return None

    def _reconnect(self) -> None:
        self._reconnect_at_s += self._settings.reconnect_s
        dead = [name for name, member in self._members.items() if member.status == DEAD]
        for name in sample(self._draws, dead, 1):
            self._report_death_to(name)

    def _report_death_to(self, name: str) -> None:
        """Ping a member that is believed to be dead or gone, so that it can refute this if it is up."""
        if self._tell is not None:
            member = self._members[name]
            member.notified_s = self._loop.time()
            self._tell(name, SwimPing(0, ((name, member.status, member.incarnation),)))

    # --- messages -------------------------------------------------------------------------------------------

    def receive(self, message: object, sender: str) -> bool:
        """Handle a message; return False if it is not one of SWIM's."""
        if not isinstance(message, _MESSAGES):
            return False
        if self._tell is None:
            return True
        for news in message.news:
            self._learn(*news)
        match message:
            case SwimPing(number):
                self._tell(sender, SwimAck(number, self.name, self._take_news(sender)))
            case SwimAck(number, name):
                self._take_ack(number, name)
            case SwimPingRequest(target, number):
                self._relayed += 1
                self._relays[-self._relayed] = (sender, number)
                if len(self._relays) > _RELAYS_MAX:
                    del self._relays[next(iter(self._relays))]
                self._tell(target, SwimPing(-self._relayed, self._take_news(target)))
            case SwimNews(_, True):
                down = [
                    (name, member.status, member.incarnation)
                    for name, member in self._members.items()
                    if member.status != ALIVE and name != sender
                ]
                self._tell(sender, SwimNews((*self._suspicion_of(sender), *down)))
        return True

    def _take_ack(self, number: int, name: str) -> None:
        if number > 0 and number == self._number and name == self._pinged:
            self._pinged = None
        elif number < 0 and (relay := self._relays.pop(number, None)) is not None:
            assert self._tell is not None
            self._tell(relay[0], SwimAck(relay[1], name, self._take_news(relay[0])))

    def received_from(self, sender: str) -> None:
        """Handle a message from `sender` as a sign of life; cheap if the sender was known to be up.

        A suspect counts as up again. A member that was declared dead receives this news.
        """
        member = self._members.get(sender)
        if member is None or member.status == ALIVE:
            return
        if member.status == SUSPECT:
            member.set_status(ALIVE, member.incarnation)
            member.unrefuted = True
        elif self._loop.time() >= member.notified_s + self._settings.period_s:
            self._report_death_to(sender)

    # --- knowledge about members ----------------------------------------------------------------------------

    def suspect(self, name: str) -> None:
        """Suspect `name`, which did not answer. Without a refutation in time, the member is declared dead."""
        member = self._members.get(name)
        if member is not None and member.status == ALIVE:
            self._learn(name, SUSPECT, member.incarnation)

    def _learn(self, name: str, status: int, incarnation: int) -> None:
        """Record one piece of news, and pass it on if it is new."""
        if name == self.name:
            if status != ALIVE:  # even if this incarnation is newer: some member does not know it
                self.incarnation = max(self.incarnation, incarnation + 1)
                self._news[name] = [ALIVE, self.incarnation, 0]
            return
        member = self._members.get(name)
        if member is None or not _overrides(status, incarnation, member):
            return
        was_up = self.is_up(name)
        member.set_status(status, incarnation)
        self._news[name] = [status, incarnation, 0]
        if status == SUSPECT:
            wait_s = self._settings.suspicion_periods * self._settings.period_s
            member.timer = self._loop.call_later(wait_s, self._learn, name, DEAD, incarnation)
        if self.is_up(name) != was_up:
            self._changed(name, not was_up)

    def _take_news(self, receiver: str) -> tuple[News, ...]:
        """Return the news for a message: a suspicion of the receiver, and the news sent least often."""
        suspicion = self._suspicion_of(receiver)
        if not self._news:
            return suspicion
        limit = self._settings.retransmissions * math.ceil(math.log2(len(self._members) + 2))
        chosen = nsmallest(self._settings.news_per_message, self._news.items(), key=lambda item: item[1][2])
        for name, entry in chosen:
            entry[2] += 1
            if entry[2] >= limit:
                del self._news[name]
        return suspicion + tuple([(name, entry[0], entry[1]) for name, entry in chosen if name != receiver])

    def _suspicion_of(self, receiver: str) -> tuple[News, ...]:
        """Return the suspicion about a receiver, to include in a message to it; empty if there is none."""
        member = self._members.get(receiver)
        if member is None or not (member.status == SUSPECT or member.unrefuted):
            return ()
        return ((receiver, SUSPECT, member.incarnation),)

    def _some(self, count: int, but: str | None = None) -> list[str]:
        """Return random members that are believed to be up."""
        members = self._members.items()
        names = [name for name, member in members if member.status in _UP and name != but]
        return sample(self._draws, names, count)


def _overrides(status: int, incarnation: int, member: _WatchedMember) -> bool:
    """Return whether news overrides the known state of a member (section 4.2)."""
    if status == ALIVE:
        return incarnation > member.incarnation
    if status == SUSPECT:
        return incarnation > member.incarnation or (
            incarnation == member.incarnation and member.status == ALIVE
        )
    return incarnation >= member.incarnation and member.status in _UP


def sample(draws: RandomSource, names: Sequence[str], count: int) -> list[str]:
    """Return `count` different names in random order, or all if there are fewer."""
    pool = list(names)
    count = min(count, len(pool))
    for index in range(count):  # the first steps of Fisher and Yates' shuffle
        other = index + int(draws.uniform() * (len(pool) - index))
        pool[index], pool[other] = pool[other], pool[index]
    return pool[:count]
