"""Two processes' halves of a network, joined by hand: what is carried, what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from actors.codec import Codec
from actors.message import Envelope
from actors.scan import Buffer, DecodeError
from sim.learning.engine import Vector
from sim.live.codec import codec_for_actors, message_types
from sim.live.control import Presence, TransferCut, TransferStarted
from sim.live.loop import LiveLoop
from sim.live.network import LiveNetwork
from sim.live.wire import FrameHeader
from sim.scenario.protocol_lookup import list_protocols, load_protocol
from sim.world.distributions import Constant
from sim.world.network_model import ConnectionModel, NetworkModel
from tests.learning.engines import new_engine


@dataclass(frozen=True)
class Note:
    content: Any


PROCESS_OF = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
CODEC = Codec(Note)


class Pair:
    """Processes a and b with one clock, which moves only as their loops are run."""

    def __init__(self, **model: Any) -> None:
        self.wall_s = 0.0
        network = NetworkModel(ConnectionModel(Constant(value=0.1)), **model)
        self.loops = {name: LiveLoop(lambda: self.wall_s) for name in "ab"}
        self.networks = {name: LiveNetwork(loop, 1, network) for name, loop in self.loops.items()}
        self.log: list[tuple[float, str, object]] = []
        self.carried: list[tuple[FrameHeader, bytes]] = []
        for name, half in self.networks.items():
            half.join(_Hand(self, name), name, PROCESS_OF, CODEC)  # type: ignore[arg-type]
        for name, half in self.networks.items():
            for actor, process in PROCESS_OF.items():
                if process == name:
                    half.attach(actor, lambda envelope, half=half: self.note(half, envelope))

    def note(self, network: LiveNetwork, envelope: Envelope) -> None:
        self.log.append((network.now(), envelope.receiver, envelope.message.content))  # type: ignore[union-attr]

    def run_until(self, time_s: float) -> None:
        """Let time pass in both, in small steps."""
        while self.wall_s < time_s:
            self.wall_s = min(time_s, self.wall_s + 0.01)
            for loop in self.loops.values():
                loop.run_until(self.wall_s)


class _Hand:
    """A wire that gives everything to the other process at once."""

    def __init__(self, pair: Pair, process: str) -> None:
        self.pair, self.process = pair, process
        self.other = "b" if process == "a" else "a"

    def message(self, process: str, stamp: FrameHeader, pieces: list[Buffer]) -> None:
        assert process == self.other
        content = b"".join(pieces)
        self.pair.carried.append((stamp, content))
        self.pair.networks[self.other].received(self.process, stamp, content)

    def tell_all(self, content: object, but: str) -> None:
        assert but == "coordinator"
        other = self.pair.networks[self.other]
        match content:
            case Presence():
                other.noticed(self.process, content)
            case TransferStarted():
                other.transfer_started(self.process, content)
            case TransferCut():
                other.cancel_transfer(self.process, content)


def test_a_message_arrives_in_the_other_process_when_the_network_says() -> None:
    pair = Pair()
    pair.networks["a"].send(Envelope("a1", "b1", Note("far")))
    pair.networks["a"].send(Envelope("a1", "a2", Note("near")))
    pair.run_until(1.0)
    assert pair.log == [(0.1, "a2", "near"), (0.1, "b1", "far")]
    sent, received = pair.networks["a"].counts, pair.networks["b"].counts
    assert (sent.sent, sent.delivered, sent.in_flight) == (2, 1, 1)
    assert (received.delivered, received.in_flight) == (1, -1)  # together none is in flight


def test_links_are_shared_by_the_transfers_of_all_processes() -> None:
    """Two senders of different processes share the downlink of one receiver, as in one simulation."""
    pair = Pair(downlink_bps=80_000.0)
    content = bytes(10_000)  # a second alone, two together
    pair.networks["a"].send(Envelope("a1", "b2", Note(content)))
    pair.networks["b"].send(Envelope("b1", "b2", Note(content)))
    pair.run_until(3.0)
    assert [receiver for _, receiver, _ in pair.log] == ["b2", "b2"]
    for at_s, _, _ in pair.log:
        assert 2.0 < at_s - 0.1 < 2.05


def test_a_transfer_that_is_broken_off_frees_its_share() -> None:
    pair = Pair(downlink_bps=80_000.0)
    content = bytes(10_000)
    pair.networks["a"].send(Envelope("a1", "b2", Note(content)))
    pair.networks["b"].send(Envelope("b1", "b2", Note(content)))
    pair.run_until(1.0)
    pair.networks["a"].abort("a1")
    pair.run_until(3.0)
    ((at_s, _, _),) = pair.log
    assert 1.5 < at_s - 0.1 < 1.55


def test_a_transfer_that_is_cut_before_it_has_started_takes_no_share() -> None:
    """The other process is busy: it takes in the start and the cut at the same time."""
    pair = Pair(downlink_bps=80_000.0)
    other = pair.networks["b"]
    other.transfer_started("a", TransferStarted(1, 0.0, "a1", "b2", 80_000.0))
    other.cancel_transfer("a", TransferCut(1))
    other.transfer_started("a", TransferStarted(2, 0.0, "a1", "b2", 80_000.0))
    other.gone("a")
    other.send(Envelope("b1", "b2", Note(bytes(10_000))))
    pair.run_until(3.0)
    ((at_s, _, _),) = pair.log
    assert 1.0 < at_s - 0.1 < 1.05


def test_a_process_that_is_gone_takes_its_actors_and_their_transfers_along() -> None:
    pair = Pair(downlink_bps=80_000.0)
    pair.networks["a"].send(Envelope("a1", "b2", Note(bytes(10_000))))
    pair.run_until(0.1)
    pair.networks["b"].gone("a")
    pair.networks["b"].send(Envelope("b1", "a1", Note("are you there?")))
    pair.run_until(1.0)
    assert pair.networks["b"].counts.reasons == {"down": 1}
    assert not pair.networks["b"]._others_transfers


def test_what_the_wire_loses_is_lost_and_what_a_dead_one_missed_is_dropped() -> None:
    pair = Pair()
    network = pair.networks["a"]
    for _ in range(2):
        network.send(Envelope("a1", "b1", Note("x")))
    network.lost(1, False, "cut off")
    network.noticed("b", Presence(("b1", "a1"), False))  # of a1 it has nothing to say
    network.lost(2, False, "cut off")
    network.lost(2, False, "cut off")
    assert network.counts.reasons == {"cut off": 1, "down": 1}
    assert (network.counts.lost, network.counts.dropped, network.counts.in_flight) == (1, 1, 0)
    assert "a1" in network.present()


LIES = {
    "another's name": Envelope("b1", "b2", Note(1)),
    "an actor of the sender's": Envelope("a1", "a2", Note(1)),
    "nobody's name": Envelope("c1", "b1", Note(1)),
    "a map as receiver": Envelope("a1", {"b1": 1}, Note(1)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_and_counted(lie: str) -> None:
    pair = Pair()
    pair.networks["b"].received("a", FrameHeader(1, 0.0, 0.1), CODEC.encode(LIES[lie]))
    pair.run_until(1.0)
    assert pair.log == []
    assert sum(pair.networks["b"].refused.values()) == 1


@pytest.mark.parametrize("due_s", [float("nan"), float("inf"), -1.0])
def test_times_that_are_none_are_refused(due_s: float) -> None:
    pair = Pair()
    pair.networks["b"].received("a", FrameHeader(1, 0.0, due_s), CODEC.encode(Envelope("a1", "b1", Note(1))))
    pair.run_until(1.0)
    assert pair.log == []
    assert sum(pair.networks["b"].refused.values()) == 1


# --- what messages are made of ------------------------------------------------------------------------------


def test_what_is_due_later_counts_for_its_process_until_it_arrives() -> None:
    pair = Pair()
    network = pair.networks["b"]
    content = bytes(CODEC.encode(Envelope("a1", "b1", Note("later"))))
    network.received("a", FrameHeader(1, 0.0, 5.0), content)
    network.received("a", FrameHeader(2, 0.0, math.inf), content)  # refused, and so it is taken
    assert network.taken_bytes == {"a": len(content)}
    pair.run_until(5.1)
    assert network.taken_bytes == {"a": 2 * len(content)}


def test_vectors_travel_as_arrays_and_arrive_as_handles() -> None:
    engine, other = new_engine(), new_engine()
    numbers = np.arange(15, dtype=np.float32)
    sent = engine.vector(_tensor(numbers))
    other.vector(_tensor(numbers))
    envelope = Envelope("a1", "b1", Note((sent, engine.scalar(2.5), numbers)))
    found = Codec(Note, handle=codec_for_actors([Note], other)._handle).decode(CODEC.encode(envelope))
    vector, scalar, array = found.message.content
    assert type(vector) is Vector and vector.engine is other
    assert np.array_equal(vector.numpy(), numbers)
    assert float(scalar) == 2.5
    assert type(array) is np.ndarray


@pytest.mark.parametrize(
    "values",
    [
        np.full(15, np.nan, np.float32),
        np.full(16, 1.0, np.float32),  # wider than any model here
        np.zeros((3, 5), np.float32),
        np.zeros(15),
    ],
)
def test_vectors_that_no_client_sends_are_refused(values: np.ndarray) -> None:
    engine = new_engine()
    engine.vector(_tensor(np.zeros(15, np.float32)))
    handle = codec_for_actors([Note], engine)._handle
    assert handle is not None
    with pytest.raises(DecodeError):
        handle(values)


def test_a_peer_cannot_open_pools_without_end() -> None:
    engine = new_engine()
    engine.vector(_tensor(np.zeros(200, np.float32)))
    handle = codec_for_actors([Note], engine)._handle
    assert handle is not None
    refused = 0
    for width in range(2, 200):
        try:
            handle(np.zeros(width, np.float32))
        except DecodeError:
            refused += 1
    assert refused > 100


def test_the_messages_of_every_method_are_known() -> None:
    for name in list_protocols():
        types = message_types([load_protocol(name).found])
        Codec(*types)  # no two of one name
        assert {"SwimPing", "Hello"} <= {each.__name__ for each in types}


def test_of_two_messages_of_one_name_the_users_own_is_meant() -> None:
    from protocols.framework.client import Client

    class Mine(Client):
        pass

    assert Note in message_types([Mine])


def _tensor(numbers: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(numbers)
