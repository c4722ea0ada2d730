"""Random worlds, driven step by step beside a simple model of what may happen in them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from actors.actor import Actor
from actors.message import Envelope, PeerUnavailable
from actors.supervisor import Supervisor
from sim.kernel.clock import VirtualLoop
from sim.world.network import SimulatedNetwork
from sim.world.network_model import NetworkModel
from sim.world.partitions import ScheduledPartition
from tests.draws import examples
from tests.world.networks import network_model
from tests.world.quantities import bursty, constant, independent, lognormal, uniform

NAMES = ("a", "b", "c", "d")
PATIENCE_S = 3.0
FATES = ("delivered", "lost", "dropped")
nodes = st.sampled_from(NAMES)


@dataclass(frozen=True)
class Note:
    """A message that is told; `token` tells it apart from all others."""

    token: int
    load: bytes


@dataclass(frozen=True)
class Question:
    """A message that is asked."""

    token: int


@dataclass(frozen=True)
class Reply:
    """An answer; a question that the network doubles is answered twice, each time by another token."""

    token: int
    question: int


answers = count(1)


class Node(Actor):
    """Takes notes, and answers questions after a while; `world` is told what reaches it."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world.network)
        self._world = world

    def intercept(self, message: object, sender: str) -> bool:
        self._world.received(self.name, message, sender)
        return False

    async def on_message(self, message: object, sender: str) -> object:
        if isinstance(message, Question):
            await self.sleep(0.05)
            return Reply(-next(answers), message.token)
        return None


def partitions() -> st.SearchStrategy[ScheduledPartition]:
    """Cuts within the first twenty seconds, in both directions or in one; some of them flap."""
    sides = st.integers(1, len(NAMES) - 1).map(lambda k: (NAMES[:k], NAMES[k:]))
    times = st.tuples(st.integers(0, 80), st.integers(1, 40)).map(lambda t: (t[0] / 4, (t[0] + t[1]) / 4))
    return st.builds(
        lambda side, time, both, flapping: ScheduledPartition(
            *time, **({"groups": side} if both else {"sources": side[0], "targets": side[1]}), **flapping
        ),
        sides,
        times,
        st.booleans(),
        st.sampled_from([{}, {"period_s": 2.0, "active_share": 0.25}]),
    )


def models() -> st.SearchStrategy[NetworkModel]:
    tricks = {"duplicate": 0.3, "reorder": 0.3, "reorder_s": 1.0}
    return st.builds(
        lambda kind, **others: network_model(**kind, **others),
        kind=st.sampled_from([{}, {"reliable": False}, {"reliable": False, **tricks}]),
        latency=st.sampled_from([constant(0.0), constant(0.125), uniform(0.05, 0.4), lognormal(0.2, 1.0)]),
        uplink_bps=st.sampled_from([None, 8_000.0]),
        downlink_bps=st.sampled_from([None, 4_000.0]),
        bandwidth_bps=st.sampled_from([None, 2_000.0]),
        loss=st.sampled_from([independent(), independent(0.4), bursty(3.0, 1.0)]),
        partitions=st.lists(partitions(), max_size=2).map(tuple),
        backlog=st.sampled_from([1, 10_000]),
        uplink_queue_bytes=st.sampled_from([None, 2_100]),
    )


class World(RuleBasedStateMachine):
    """A network with actors; beside it a model: who is up, and which messages are on their way since when."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.up: set[str] = set()
        self.leaving: set[str] = set()
        self.sent: dict[int, tuple[float, str, str]] = {}
        self.copied: set[int] = set()
        self.fates: Counter[tuple[int, str]] = Counter()
        self.receipts: Counter[int] = Counter()
        self.latest: dict[tuple[str, str], int] = {}
        self.crashes_s: list[tuple[str, float]] = []
        self.asked: list[asyncio.Task[str]] = []
        self.tokens = 0

    @initialize(model=models(), seed=st.integers(0, 3), shuffle_seed=st.sampled_from([None, 1, 2]))
    def begin(self, model: NetworkModel, seed: int, shuffle_seed: int | None) -> None:
        self.loop.close()
        self.loop = VirtualLoop(shuffle_seed)
        self.model = model
        self.network = SimulatedNetwork(self.loop, seed, model, self.observed)
        self.supervisor = Supervisor(self.network)
        for name in NAMES:
            self.joins(name)

    # --- what the model says --------------------------------------------------------------------------------

    def observed(
        self,
        event: str,
        time_s: float,
        envelope: Envelope,
        kind: str,
        size_bytes: int,
        reason: str,
        message: int,
    ) -> None:
        """The network's account of one message, compared with what may happen."""
        assert time_s == self.loop.time() and size_bytes > 0
        token = getattr(envelope.message, "token", None)
        sender, receiver = envelope.sender, envelope.receiver
        assert token is not None, "an answer or a note"
        if reason == "duplicate":
            assert self.model.default.duplicate > 0 and token not in self.copied
            self.copied.add(token)
            return
        if event == "sent":
            assert token not in self.sent
            self.sent[token] = (time_s, sender, receiver)
            return
        since_s, *pair = self.sent[token]
        assert pair == [sender, receiver]
        self.fates[token, event] += 1
        fates = sum(self.fates[token, fate] for fate in FATES)
        assert fates <= 1 + (token in self.copied), "a message has one fate, and its copy another"
        if event == "delivered":
            assert receiver in self.up, "nothing reaches the dead"
            assert time_s >= since_s + self.least_s(size_bytes), "nothing is faster than its latency"
            left_s = since_s + self.transfer_s(size_bytes)
            assert not any(
                name == sender and since_s < crash_s < left_s for name, crash_s in self.crashes_s
            ), "a crash ends the sender's transfers"
            assert not self.cut(sender, receiver, since_s) and not self.cut(sender, receiver, time_s)
        elif event == "lost":
            cut = self.cut(sender, receiver, since_s) or self.cut(sender, receiver, time_s)
            datagram_loss = not self.model.default.reliable and self.model.default.loss.rate > 0
            assert cut if reason == "partition" else datagram_loss
        elif reason in ("down", "unknown"):
            assert receiver not in self.up - self.leaving

    def received(self, name: str, message: object, sender: str) -> None:
        """What an actor itself sees: not more, nor anything else, than the network's account of it."""
        token = getattr(message, "token", 0)
        assert self.sent[token][1:] == (sender, name), "nothing reaches anybody else"
        assert name in self.up, "nothing reaches the dead"
        self.receipts[token] += 1
        assert self.receipts[token] <= 1 + (token in self.copied), "nothing comes twice"
        if self.model.default.reliable:
            place = list(self.sent).index(token)
            assert place > self.latest.get((sender, name), -1), "a reliable connection keeps the order"
            self.latest[sender, name] = place

    def transfer_s(self, size_bytes: int) -> float:
        """No transfer can be shorter, up to rounding."""
        limits_bps = (self.model.uplink_bps, self.model.downlink_bps, self.model.default.bandwidth_bps)
        rates_bps = [bps for bps in limits_bps if bps is not None]
        return 8 * size_bytes / min(rates_bps) * (1 - 1e-9) if rates_bps else 0.0

    def least_s(self, size_bytes: int) -> float:
        """Neither latency nor transfer can be shorter, up to rounding."""
        latency = self.model.default.latency
        shortest_s = {"constant": "value", "uniform": "low"}.get(getattr(latency, "kind", ""))
        return (getattr(latency, shortest_s) if shortest_s else 0.0) + self.transfer_s(size_bytes)

    def cut(self, sender: str, receiver: str, time_s: float) -> bool:
        for cut in self.model.partitions:
            into_s = (time_s - cut.start_s) % cut.period_s
            if cut.start_s <= time_s < cut.end_s and into_s < cut.period_s * cut.active_share:
                sides = [[name in group for group in cut.groups] for name in (sender, receiver)]
                if any(sides[0]) and any(sides[1]) and sides[0] != sides[1]:
                    return True
                if sender in cut.sources and receiver in cut.targets:
                    return True
        return False

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "network"):
            return
        counts = self.network.counts
        assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
        assert (counts.sent, counts.duplicated) == (len(self.sent) + len(self.copied), len(self.copied))
        assert counts.in_flight == counts.sent - sum(self.fates.values())
        assert self.receipts == Counter({t: n for (t, what), n in self.fates.items() if what == "delivered"})
        for fate in FATES:
            assert getattr(counts, fate) == sum(n for (_, what), n in self.fates.items() if what == fate)
        assert self.supervisor.failures == []

    # --- what may happen ------------------------------------------------------------------------------------

    @rule(eighths=st.integers(1, 24))
    def time_passes(self, eighths: int) -> None:
        self.run(eighths / 8)

    @rule(name=nodes)
    def joins(self, name: str) -> None:
        if name not in self.up:
            self.up.add(name)
            self.now(lambda: self.supervisor.start(lambda: Node(name, self)))

    @rule(name=nodes)
    def crashes(self, name: str) -> None:
        if name in self.up:
            self.up.remove(name)
            self.leaving.discard(name)
            self.crashes_s.append((name, self.loop.time()))
            self.now(lambda: self.supervisor.kill(name))

    @rule(name=nodes)
    def leaves(self, name: str) -> None:
        if name in self.up - self.leaving:
            self.leaving.add(name)
            self.now(lambda: self.loop.create_task(self.leave(name)))

    async def leave(self, name: str) -> None:
        await self.supervisor.stop(name)
        self.up.discard(name)
        self.leaving.discard(name)

    @rule(
        notes=st.lists(st.tuples(nodes, nodes, st.sampled_from([0, 50, 2_000])), min_size=4, max_size=12),
        eighths=st.integers(0, 4),
    )
    def tells(self, notes: list[tuple[str, str, int]], eighths: int) -> None:
        for sender, receiver, load in notes:
            if sender in self.up and sender != receiver:
                note = Note(self.token(), bytes(load))
                self.now(lambda a=sender, b=receiver, note=note: self.supervisor.running[a].tell(b, note))
        self.run(eighths / 8)

    @rule(sender=nodes, receiver=nodes)
    def asks(self, sender: str, receiver: str) -> None:
        if sender in self.up and sender != receiver:
            actor, question = self.supervisor.running[sender], Question(self.token())
            self.now(lambda: self.asked.append(actor.spawn(self.ask(actor, receiver, question))))

    async def ask(self, actor: Actor, peer: str, question: Question) -> str:
        asked_s = self.loop.time()
        try:
            answer = await actor.ask(peer, question, timeout=PATIENCE_S)
        except PeerUnavailable:
            assert self.loop.time() == asked_s + PATIENCE_S
            return "none"
        assert answer.question == question.token
        assert self.loop.time() - asked_s <= PATIENCE_S
        return "answered"

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def now(self, happening: Any) -> None:
        """Something happens inside the loop, and everything else of this instant."""
        self.loop.call_soon(happening)
        self.run(0.0)

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    def teardown(self) -> None:
        try:
            if hasattr(self, "network"):
                self.run(PATIENCE_S)
                assert not self.leaving
                assert all(task.done() for task in self.asked), "nobody waits for ever"
                self.run(1e6)
                self.everything_adds_up()
                assert self.network.counts.in_flight == 0
                self.network.listener = None
                self.loop.run_until_complete(self.supervisor.drain())
        finally:
            self.loop.shutdown()


@pytest.mark.long
@pytest.mark.hypothesis
def test_random_worlds_do_nothing_that_a_simple_model_forbids() -> None:
    run_state_machine_as_test(World, settings=settings(examples(100), stateful_step_count=40))
