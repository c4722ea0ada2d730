"""The network: exact times of arrival, what is lost and dropped and why, and counts that always add up."""

from collections.abc import Iterator
from typing import Any

import pytest

from actors.codec import size
from actors.message import Envelope
from sim.kernel.clock import VirtualLoop
from sim.world.network import SimulatedNetwork
from sim.world.partitions import ScheduledPartition
from tests.world.networks import UNIT_BYTES, Note, World, network_model, scripted
from tests.world.quantities import constant, independent, lognormal, uniform


@pytest.fixture
def unit() -> Iterator[float]:
    """The bandwidth that takes one second for a note without payload."""
    yield 8.0 * UNIT_BYTES


# -- Latency and bandwidth


def test_a_message_arrives_after_its_latency() -> None:
    world = World()
    world.send(1.0, "ab", 1)
    world.send(1.5, "ba", 2)
    world.run()
    assert world.received == [(1.25, "b", 1), (1.75, "a", 2)]
    assert world.events == [
        (1.0, "sent", 1, ""),
        (1.25, "delivered", 1, ""),
        (1.5, "sent", 2, ""),
        (1.75, "delivered", 2, ""),
    ]


def test_the_latency_starts_when_the_transfer_ends(unit: float) -> None:
    world = World(uplink_bps=unit / 2)
    world.send(0.0, "ab", 1)
    assert world.run().received == [(2.25, "b", 1)]


def test_a_broadcast_shares_the_senders_uplink(unit: float) -> None:
    world = World(uplink_bps=unit, downlink_bps=8 * unit)
    for number, pair in enumerate(["ab", "ac", "ad", "ae"]):
        world.send(0.0, pair, number)
    assert world.run().received == [(4.25, name, number) for number, name in enumerate("bcde")]


def test_senders_share_the_receivers_downlink(unit: float) -> None:
    world = World(uplink_bps=8 * unit, downlink_bps=unit)
    world.send(0.0, "ac", 1)
    world.send(0.5, "bc", 2)  # the first has half a unit left; both go at half the speed until it is through
    assert world.run().received == [(1.75, "c", 1), (2.25, "c", 2)]


def test_messages_of_one_pair_are_transferred_one_after_the_other(unit: float) -> None:
    world = World(uplink_bps=unit)
    for number in range(3):
        world.send(0.0, "ab", number)
    world.send(0.0, "ac", 3)  # another connection, so it has half the uplink although it was sent last
    assert world.run().received == [(2.25, "b", 0), (2.25, "c", 3), (3.25, "b", 1), (4.25, "b", 2)]


def test_single_actors_may_have_other_links(unit: float) -> None:
    world = World(uplink_bps=unit)
    world.network.set_bandwidths("a", None, None)
    world.network.set_bandwidths("c", unit, unit / 4)
    world.send(0.0, "ab", 1)
    world.send(0.0, "bc", 2)
    world.send(0.0, "de", 3)
    assert world.run().received == [(0.25, "b", 1), (1.25, "e", 3), (4.25, "c", 2)]


def test_a_link_may_change_during_a_transfer(unit: float) -> None:
    world = World(uplink_bps=unit)
    world.send(0.0, "ab", 1)
    world.send(0.0, "ab", 2)
    world.at(0.5, world.network.set_bandwidths, "a", unit / 2, None)
    world.at(2.0, world.network.set_bandwidths, "a", None, None)
    assert world.run().received == [(1.75, "b", 1), (2.25, "b", 2)]


def test_bandwidth_is_not_needed_for_messages_to_oneself(unit: float) -> None:
    world = World(uplink_bps=unit)
    world.send(1.0, "aa", 1)
    world.run()
    assert world.received == [(1.0, "a", 1)]
    assert world.events == []
    assert world.network.counts.sent == 0


def test_a_message_to_oneself_is_delivered_in_the_next_turn_and_not_before() -> None:
    world = World()
    world.network.send(Envelope("a", "a", Note(1)))
    world.network.send(Envelope("e", "e", Note(2)))
    assert world.received == []
    world.network.detach("e")
    assert world.run(0.0).received == [(0.0, "a", 1)]


# -- Order and loss


@pytest.mark.parametrize("shuffle_seed", [None, *range(10)])
def test_a_reliable_link_keeps_the_order(shuffle_seed: int | None) -> None:
    world = World(VirtualLoop(shuffle_seed), latency=scripted([4.0, 1.0, 2.0, 3.5]))
    for number in range(4):
        world.send(number, "ab", number)
    assert world.run().received == [(4.0, "b", 0), (4.0, "b", 1), (4.0, "b", 2), (6.5, "b", 3)]


@pytest.mark.parametrize("shuffle_seed", range(10))
def test_messages_sent_at_once_keep_their_order_where_ties_are_shuffled(shuffle_seed: int) -> None:
    world = World(VirtualLoop(shuffle_seed), latency=constant(0.0))

    def send_all() -> None:
        for number in range(5):
            world.network.send(Envelope("a", "b", Note(number)))

    world.at(1.0, send_all)
    assert world.run().received == [(1.0, "b", number) for number in range(5)]


def test_a_datagram_may_overtake() -> None:
    world = World(latency=scripted([4.0, 1.0]), reliable=False)
    world.send(0.0, "ab", 0)
    world.send(1.0, "ab", 1)
    assert world.run().received == [(2.0, "b", 1), (4.0, "b", 0)]


def test_a_reliable_link_repeats_what_is_lost() -> None:
    world = World(loss=independent(0.5), rto_s=16.0)
    for number in range(4000):
        world.send(1000.0 * number, "ab", number)
    world.run(1e9)
    delays = [time_s - 1000.0 * number - 0.25 for time_s, _, number in world.received]
    assert len(delays) == 4000
    repetitions = [delay / 16.0 for delay in delays]
    assert all(count == int(count) for count in repetitions)
    share = [repetitions.count(k) / 4000 for k in range(4)]
    assert share == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 16], abs=0.03)  # about four standard deviations


def test_a_lost_datagram_is_gone_and_has_taken_its_transfer() -> None:
    numbers = range(1000, 3000)  # all of one encoded length
    world = World(
        uplink_bps=8.0 * size(Envelope("a", "b", Note(1000))), reliable=False, loss=independent(0.25)
    )
    for number in numbers:
        world.send(0.0, "ab", number)
    world.run()
    gone = {number: time_s for time_s, event, number, _ in world.ends() if event == "lost"}
    assert len(gone) / 2000 == pytest.approx(0.25, abs=0.04)  # four standard deviations
    assert gone == {number: number - 999.0 for number in gone}
    assert world.received == [(number - 998.75, "b", number) for number in numbers if number not in gone]
    counts = world.network.counts
    assert (counts.delivered, counts.lost, counts.dropped) == (2000 - len(gone), len(gone), 0)
    assert counts.reasons == {"loss": len(gone)}


def test_latencies_of_a_pair_do_not_depend_on_other_traffic_and_on_losses() -> None:
    def arrivals(crowd: str, **model: Any) -> list[float]:
        world = World(seed=3, names="ab" + crowd, latency=lognormal(0.5, 1.0), **model)
        for number in range(20):
            for name in crowd:
                world.send(1000.0 * number, "a" + name, 100)
                world.send(1000.0 * number, name + "b", 100)
            world.send(1000.0 * number, "ab", number)
        return [time_s for time_s, name, number in world.run().received if number < 100]

    alone = arrivals("")
    assert len(set(alone)) == 20
    assert arrivals("cdef") == alone
    cut = ScheduledPartition(3500.0, 5500.0, groups=(("a",), ("b",)))
    assert arrivals("", partitions=(cut,)) == alone[:4] + alone[6:]
    survivors = arrivals("c", reliable=False, loss=independent(0.5))
    assert 0 < len(survivors) < 20
    assert set(survivors) < set(alone)


def test_other_seeds_give_other_latencies() -> None:
    def arrival(seed: int) -> list[tuple[float, str, int]]:
        world = World(seed=seed, latency=uniform(0.0, 1.0))
        world.send(0.0, "ab", 0)
        return world.run().received

    assert arrival(1) == arrival(1) != arrival(2)


# -- Partitions


@pytest.mark.parametrize(
    ("sent_s", "end"),
    [
        (0.5, (0.75, "delivered", 1, "")),
        (0.75, (1.0, "lost", 1, "partition")),  # cut at the arrival
        (1.0, (1.0, "lost", 1, "partition")),  # and when it is sent
        (1.9375, (1.9375, "lost", 1, "partition")),  # although it would arrive when all is well again
        (2.0, (2.25, "delivered", 1, "")),
    ],
)
def test_a_cut_loses_what_is_sent_or_arrives_across_it(
    sent_s: float, end: tuple[float, str, int, str]
) -> None:
    world = World(partitions=(ScheduledPartition(1.0, 2.0, groups=(("a", "c"), ("b",))),))
    world.send(sent_s, "ab", 1)
    assert world.run().ends() == [end]


# -- Those who are not there


def test_what_arrives_at_nobody_is_dropped() -> None:
    world = World()
    world.network.detach("b")
    world.send(0.0, "ab", 1)
    world.send(0.0, "az", 2)
    world.run()
    assert world.ends() == [(0.25, "dropped", 1, "down"), (0.25, "dropped", 2, "unknown")]
    assert world.network.counts.reasons == {"down": 1, "unknown": 1}


def test_who_is_up_at_the_arrival_gets_the_message() -> None:
    world = World()
    world.send(0.0, "ab", 1)
    world.at(0.1, world.network.detach, "b")
    world.at(0.2, world.attach, "b")
    assert world.run().received == [(0.25, "b", 1)]


def test_a_crash_ends_the_senders_transfers_and_not_what_is_past_them(unit: float) -> None:
    world = World(uplink_bps=unit, downlink_bps=unit, latency=constant(1.0))
    for number, pair in enumerate(["ab", "ab", "ab", "cb"]):
        world.send(0.0, pair, number)
    world.at(2.5, world.network.abort, "a")  # 0 and 3 are on the connections; 1 is in transfer, 2 waits
    world.run()
    assert world.ends() == [
        (2.5, "dropped", 1, "sender crashed"),
        (2.5, "dropped", 2, "sender crashed"),
        (3.0, "delivered", 0, ""),
        (3.0, "delivered", 3, ""),
    ]


@pytest.mark.parametrize("go", ["abort", "detach"])
def test_when_the_receiver_goes_the_senders_uplink_is_free_again(go: str, unit: float) -> None:
    world = World(uplink_bps=unit)
    world.send(0.0, "ab", 1)
    world.send(0.0, "ab", 2)
    world.send(0.0, "ac", 3)
    world.at(1.0, getattr(world.network, go), "b")
    world.run()
    assert world.ends() == [
        (1.0, "dropped", 1, "down"),
        (1.0, "dropped", 2, "down"),
        (1.75, "delivered", 3, ""),
    ]


def test_who_leaves_gracefully_finishes_its_uploads(unit: float) -> None:
    world = World(uplink_bps=unit)
    world.send(0.0, "ab", 1)
    world.send(0.0, "ab", 2)
    world.at(0.5, world.network.detach, "a")
    assert world.run().received == [(1.25, "b", 1), (2.25, "b", 2)]


def test_an_upload_to_nobody_is_given_up_after_the_latency(unit: float) -> None:
    world = World(uplink_bps=unit)
    world.network.detach("b")
    world.send(0.0, "ab", 1)
    world.send(0.0, "ac", 2)  # half the uplink for 0.25 s, then all of it
    assert world.run().ends() == [(0.25, "dropped", 1, "down"), (1.375, "delivered", 2, "")]


def test_an_upload_to_one_who_comes_in_time_goes_through(unit: float) -> None:
    world = World(uplink_bps=unit)
    world.network.detach("b")
    world.send(0.0, "ab", 1)
    world.at(0.125, world.attach, "b")
    assert world.run().received == [(1.25, "b", 1)]


def test_a_datagram_to_nobody_is_sent_in_full(unit: float) -> None:
    world = World(uplink_bps=unit, reliable=False)
    world.network.detach("b")
    world.send(0.0, "ab", 1)
    assert world.run().ends() == [(1.25, "dropped", 1, "down")]


def test_what_waits_for_a_connection_is_bounded(unit: float) -> None:
    world = World(uplink_bps=unit, backlog=2)
    for number in range(5):
        world.send(0.0, "ab", number)
    world.send(1.5, "ab", 5)
    world.run()
    assert [number for *_, number in world.received] == [0, 1, 2, 5]
    assert [event for event in world.ends() if event[1] == "dropped"] == [
        (0.0, "dropped", 3, "backlog"),
        (0.0, "dropped", 4, "backlog"),
    ]


def test_going_twice_is_harmless_and_coming_twice_is_not() -> None:
    world = World()
    world.network.detach("a")
    world.network.abort("a")
    world.network.abort("nobody")
    world.attach("a")
    with pytest.raises(ValueError, match="'a' is already attached"):
        world.attach("a")


# -- Counts, settings, what is kept


def test_counts_by_type() -> None:
    loop = VirtualLoop()
    network = SimulatedNetwork(loop, 0, network_model(latency=constant(0.5)))
    network.attach("b", lambda envelope: None)
    envelopes = [
        Envelope("a", "b", Note(1)),
        Envelope("a", "b", Note(2, bytes(1000))),
        Envelope("a", "b", None, answer_to=3),
        Envelope("a", "b", None, answer_to=4, error="ValueError: no"),
    ]
    for envelope in envelopes:
        network.send(envelope)
    sizes = [size(envelope) for envelope in envelopes]
    assert network.counts.by_type == {
        "Note": [2, sizes[0] + sizes[1]],
        "None": [1, sizes[2]],
        "error": [1, sizes[3]],
    }
    assert network.counts.bytes == sum(sizes)
    assert (network.counts.sent, network.counts.in_flight) == (4, 4)
    assert repr(network) == "<SimulatedNetwork 1 attached, 4 in flight>"
    loop.run_until(0.5)
    assert (network.counts.delivered, network.counts.in_flight) == (4, 0)


def test_what_cannot_be_encoded_leaves_no_trace() -> None:
    world = World()
    with pytest.raises(TypeError, match=r"Envelope\.message"):
        world.network.send(Envelope("a", "b", object()))
    assert world.network.counts.sent == 0


def test_a_quiet_network_keeps_nothing_of_past_pairs(unit: float) -> None:
    world = World(uplink_bps=unit, partitions=(ScheduledPartition(5.0, 6.0, groups=(("a",), ("b", "c"))),))
    for number, pair in enumerate(["ab", "ab", "bc", "cd", "az"]):
        world.send(0.0, pair, number)
        world.send(5.0, pair, number)
    world.run()
    assert (world.network._connections, world.network._connection_of) == ({}, {})
