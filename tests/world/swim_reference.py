"""SWIM in nothing but Python: the rules of protocols.membership.swim once more, to compare statistics."""

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

PERIOD, TIMEOUT, PROXIES, SUSPICION, NEWS_MAX, RETRANSMISSIONS = 1.0, 0.3, 3, 5.0, 6, 3


@dataclass
class Node:
    """What one member believes: of each other (state, incarnation), and whom it has to tell of suspicions."""

    state: dict[int, tuple[str, int]]
    incarnation: int = 0
    news: dict[int, list] = field(default_factory=dict)  # about -> [state, incarnation, times passed on]
    accused: set[int] = field(default_factory=set)
    turn: list[int] = field(default_factory=list)
    awaited: int | None = None


class Reference:
    """Members that are all up and know each other; messages take `latency`, or are lost (probability `loss`).

    Counts suspicions (pings that nobody answered, of members that were believed alive), and deaths (of one
    member, in the eyes of one other).
    """

    def __init__(self, size: int, loss: float, latency: float, seed: int) -> None:
        self.rng, self.loss, self.latency = random.Random(seed), loss, latency
        self.nodes = [
            Node({other: ("alive", 0) for other in range(size) if other != me}) for me in range(size)
        ]
        self.suspicions = self.deaths = 0
        self.now, self.order, self.events = 0.0, count(), []
        for me in range(size):
            self.after(PERIOD * self.rng.random(), lambda me=me: self.period(me))

    def after(self, delay: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), do))

    def run(self, until: float) -> None:
        while self.events[0][0] <= until:
            self.now, _, do = heapq.heappop(self.events)
            do()

    def some(self, me: int, number: int, but: int | None = None) -> list[int]:
        up = [other for other, (state, _) in self.nodes[me].state.items() if state != "dead" and other != but]
        return self.rng.sample(up, min(number, len(up)))

    def period(self, me: int) -> None:
        node = self.nodes[me]
        if node.awaited is not None and node.state[node.awaited][0] == "alive":
            self.suspicions += 1
            self.learn(me, node.awaited, "suspect", node.state[node.awaited][1])
        node.turn = [other for other in node.turn if node.state[other][0] != "dead"]
        node.turn = node.turn or self.some(me, len(node.state))
        target = node.awaited = node.turn.pop()

        def acked() -> None:
            if node.awaited == target:  # never the same one twice in a row while anything is on its way
                node.awaited = None

        def ask_proxies() -> None:
            for proxy in self.some(me, PROXIES, target) if node.awaited == target else ():
                self.send(me, proxy, lambda proxy=proxy: self.ping(proxy, target, back))

        def back(proxy: int) -> None:
            self.send(proxy, me, acked)

        self.ping(me, target, lambda _: acked())
        self.after(TIMEOUT, ask_proxies)
        self.after(PERIOD, lambda: self.period(me))

    def ping(self, me: int, target: int, acked: Callable[[int], None]) -> None:
        self.send(me, target, lambda: self.send(target, me, lambda: acked(me)))

    def send(self, me: int, to: int, handle: Callable[[], None], only: tuple | None = None) -> None:
        riding = [only] if only else self.riding(me, to)

        def arrive() -> None:
            node = self.nodes[to]
            state, incarnation = node.state[me]
            if state == "suspect":
                node.state[me] = ("alive", incarnation)  # but it is told of the suspicion until it refutes it
            elif state == "dead":
                self.send(to, me, lambda: None, only=(me, "dead", incarnation))
            for item in riding:
                self.learn(to, *item)
            handle()

        if self.rng.random() >= self.loss:
            self.after(self.latency, arrive)

    def riding(self, me: int, to: int) -> list[tuple[int, str, int]]:
        node = self.nodes[me]
        items = [(to, "suspect", node.state[to][1])] if to in node.accused else []
        for about in sorted(node.news, key=lambda about: node.news[about][2])[:NEWS_MAX]:
            node.news[about][2] += 1
            state, incarnation, times = node.news[about]
            if times >= RETRANSMISSIONS * math.ceil(math.log2(len(self.nodes) + 1)):
                del node.news[about]
            items += [(about, state, incarnation)] if about != to else []
        return items

    def learn(self, me: int, about: int, said: str, incarnation: int) -> None:
        node = self.nodes[me]
        if about == me:
            if said != "alive":
                node.incarnation = max(node.incarnation, incarnation + 1)
                node.news[me] = ["alive", node.incarnation, 0]
            return
        state, known = node.state[about]
        rank = ("alive", "suspect", "dead").index
        if not (incarnation > known or (incarnation == known and rank(said) > rank(state))):
            return
        if said == state == "dead":
            return
        believed = node.state[about] = (said, incarnation)
        node.news[about] = [said, incarnation, 0]
        node.accused.discard(about)
        if said == "suspect":
            node.accused.add(about)
            self.after(SUSPICION * PERIOD, lambda: self.expire(me, about, believed))
        self.deaths += said == "dead"

    def expire(self, me: int, about: int, believed: tuple[str, int]) -> None:
        if self.nodes[me].state[about] is believed:  # not heard from, and nothing new of it since
            self.learn(me, about, "dead", believed[1])
