"""Kinds of connections: copies, datagrams held up, classes, limits of one connection, and full uplinks."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

from sim.world.latency.nodes import NodeLatency
from sim.world.network_model import ConnectionClass, ConnectionModel
from sim.world.partitions import ScheduledPartition
from tests.world.networks import UNIT_BYTES, World, network_model, scripted
from tests.world.quantities import bursty, constant, independent, lognormal

UNIT_BPS = 8.0 * UNIT_BYTES  # takes one second for a note without payload

# -- Copies


def test_a_copy_has_its_own_latency_and_is_a_message_of_its_own() -> None:
    world = World(latency=scripted([1.0, 3.0]), reliable=False, duplicate=1.0)
    world.send(0.0, "ab", 1)
    world.run()
    assert world.events == [
        (0.0, "sent", 1, ""),
        (0.0, "sent", 1, "duplicate"),
        (1.0, "delivered", 1, ""),
        (3.0, "delivered", 1, ""),
    ]
    counts = world.network.counts
    assert (counts.sent, counts.duplicated, counts.delivered, counts.in_flight) == (2, 1, 2, 0)
    assert (counts.bytes, counts.by_type) == (2 * UNIT_BYTES, {"Note": [2, 2 * UNIT_BYTES]})


def test_a_copy_is_made_behind_the_transfer() -> None:
    world = World(uplink_bps=UNIT_BPS, reliable=False, duplicate=1.0)
    world.send(0.0, "ab", 1)
    world.send(0.0, "ab", 2)
    world.run()
    assert [event[:3] for event in world.events if event[3] == "duplicate"] == [
        (1.0, "sent", 1),
        (2.0, "sent", 2),
    ]
    assert world.received == [(1.25, "b", 1), (1.25, "b", 1), (2.25, "b", 2), (2.25, "b", 2)]


def test_the_end_of_a_datagram_leaves_the_next_transfer_of_its_pair_alone() -> None:
    """Whose connection is another one by then: 4 waits for 3, which is in transfer when 2 arrives."""
    world = World(latency=constant(1.0), reliable=False, bandwidth_bps=UNIT_BPS)
    for number, time_s in ((1, 0.0), (2, 0.5), (3, 2.25), (4, 3.125)):
        world.send(time_s, "ab", number)
    world.run()
    assert world.received == [(2.0, "b", 1), (3.0, "b", 2), (4.25, "b", 3), (5.25, "b", 4)]


def test_what_becomes_of_a_copy_is_its_own_affair() -> None:
    cut = ScheduledPartition(2.0, 4.0, groups=(("a",), ("b",)))
    world = World(latency=scripted([1.0, 3.0]), reliable=False, duplicate=1.0, partitions=(cut,))
    world.send(0.0, "ab", 1)
    world.run()
    assert world.ends() == [(1.0, "delivered", 1, ""), (3.0, "lost", 1, "partition")]


def test_a_lost_datagram_is_not_doubled() -> None:
    world = World(reliable=False, duplicate=1.0, loss=independent(0.5))
    for number in range(200):
        world.send(0.0, "ab", number)
    world.run()
    counts = world.network.counts
    assert counts.delivered == 2 * counts.duplicated == 2 * (200 - counts.lost)
    assert 70 < counts.lost < 130


def test_copies_come_as_often_as_they_should_and_shift_no_latency() -> None:
    def arrivals(duplicate: float) -> tuple[World, set[tuple[float, str, int]]]:
        world = World(latency=lognormal(0.5, 1.0), reliable=False, duplicate=duplicate)
        for number in range(4000):
            world.send(float(number), "ab", number)
        return world, set(world.run().received)

    (_, without), (doubling, some_twice) = arrivals(0.0), arrivals(0.25)
    assert without < some_twice
    assert doubling.network.counts.duplicated / 4000 == pytest.approx(0.25, abs=0.028)  # four deviations
    assert len(some_twice) == 4000 + doubling.network.counts.duplicated


# -- Held up


def test_a_datagram_that_is_held_up_is_overtaken() -> None:
    world = World(reliable=False, reorder=0.5, reorder_s=10.0)
    for number in range(100):
        world.send(number / 16, "ab", number)
    delays = {number: time_s - number / 16 for time_s, _, number in world.run().received}
    held_up = [number for number, delay_s in delays.items() if delay_s == 10.25]
    assert all(delay_s in (0.25, 10.25) for delay_s in delays.values())
    assert 30 < len(held_up) < 70
    assert [number for _, _, number in world.received] == [
        *(number for number in range(100) if number not in held_up), *sorted(held_up),
    ]  # fmt: skip


def test_holding_up_shifts_no_latency_and_no_loss() -> None:
    def arrivals(**model: Any) -> dict[int, float]:
        world = World(latency=lognormal(0.5, 1.0), reliable=False, loss=independent(0.3), **model)
        for number in range(200):
            world.send(100.0 * number, "ab", number)
        return {number: time_s for time_s, _, number in world.run().received}

    as_sent, held_up = arrivals(), arrivals(reorder=0.5, reorder_s=8.0)
    assert as_sent.keys() == held_up.keys()
    assert {round(held_up[n] - as_sent[n], 6) for n in as_sent} == {0.0, 8.0}


# -- Bursts of loss


def test_a_burst_loses_neighbouring_datagrams() -> None:
    world = World(reliable=False, loss=bursty(8.0, 8.0))
    for number in range(1600):
        world.send(number / 16, "ab", number)
    lost = [event == "lost" for _, event, _, _ in sorted(world.run().ends(), key=lambda end: end[2])]
    changes = sum(one != next_one for one, next_one in pairwise(lost))
    assert 200 < sum(lost) < 1400
    assert changes < 30  # independent losses would change about 800 times
    assert world.network.counts.reasons == {"loss": sum(lost)}


def test_a_reliable_link_gets_through_a_burst_with_the_first_repetition_behind_it() -> None:
    world = World(loss=bursty(4.0, 4.0), rto_s=1.0)
    for number in range(400):
        world.send(number / 8, "ab", number)
    world.run()
    assert world.network.counts.delivered == 400
    assert [number for _, _, number in world.received] == list(range(400))
    delays = [time_s - 0.25 - number / 8 for time_s, _, number in world.received]
    assert any(delays)
    assert all((delay_s * 8).is_integer() for delay_s in delays)


# -- The moment that decides: the end of the transfer, not the call of send


def test_datagrams_that_wait_for_their_transfer_meet_the_bursts_of_their_departure() -> None:
    bursts = bursty(8.0, 8.0)
    world = World(uplink_bps=UNIT_BPS, reliable=False, loss=bursts)
    for number in range(64):
        world.send(0.0, "ab", number)
    lost = [number for _, event, number, _ in world.run().ends() if event == "lost"]
    process = bursts.on(0, ("a", "b"))
    assert process is not None
    assert lost == [number for number in range(64) if process.lost(number + 1.0)]
    assert 0 < len(lost) < 64


def test_messages_that_wait_for_their_transfer_are_repeated_from_their_departure_on() -> None:
    bursts = bursty(8.0, 8.0)
    world = World(uplink_bps=UNIT_BPS, loss=bursts, rto_s=0.5)
    for number in range(64):
        world.send(0.0, "ab", number)
    process = bursts.on(0, ("a", "b"))
    assert process is not None
    delays_s = [number + 1.25 + 0.5 * process.repetitions(number + 1.0, 0.5) for number in range(64)]
    in_order = list(accumulate(delays_s, max))
    assert [time_s for time_s, _, _ in world.run().received] == in_order
    assert 1 < len(set(in_order)) < 64


def test_messages_that_wait_for_their_transfer_have_the_latency_of_their_departure() -> None:
    slices = np.array([[[0.0, 0.25], [0.25, 0.0]], [[0.0, 0.5], [0.5, 0.0]]])
    latency = NodeLatency(slices, {"a": 0, "b": 1}, slice_s=2.0)
    world = World(uplink_bps=UNIT_BPS, latency=latency)
    for number in range(4):
        world.send(0.0, "ab", number)
    assert [time_s for time_s, _, _ in world.run().received] == [1.25, 2.5, 3.5, 4.25]


def test_a_messages_numbers_do_not_depend_on_what_became_of_others() -> None:
    def delays(departs_s: Callable[[int], float], **model: Any) -> dict[int, list[float]]:
        """Of each message that arrived, with its copy: the seconds from its departure on."""
        world = World(
            latency=lognormal(0.5, 1.0), reliable=False, loss=independent(0.2), duplicate=0.5, **model
        )
        for number in range(40):
            world.send(100.0 * (number // 10), "ab", number)
        found: dict[int, list[float]] = {}
        for time_s, _, number in world.run().received:
            found.setdefault(number, []).append(round(time_s - departs_s(number), 6))
        return found

    unlimited = delays(lambda number: 100.0 * (number // 10))
    queued = delays(lambda number: 100.0 * (number // 10) + number % 10 + 1, uplink_bps=UNIT_BPS, backlog=4)
    assert {number % 10 for number in queued} == set(range(5))  # the others found no room
    assert queued == {number: times_s for number, times_s in unlimited.items() if number % 10 < 5}


# -- Classes

INSIDE = ConnectionModel(constant(0.125))
ACROSS = ConnectionModel(constant(2.0), reliable=False, loss=independent(0.5))
GROUPS = {"a": 0, "b": 0, "c": 1, "d": 1}
CLASSES = (ConnectionClass(INSIDE, GROUPS, "inside"), ConnectionClass(ACROSS, GROUPS, "across"))


def test_the_class_of_a_connection_decides_what_it_is_like() -> None:
    model = network_model(classes=CLASSES)
    kinds = {s + r: model.model_of((s, r)) for s in "ace" for r in "bde"}
    assert [pair for pair, link in kinds.items() if link is INSIDE] == ["ab", "cd"]
    assert [pair for pair, link in kinds.items() if link is ACROSS] == ["ad", "cb"]
    assert [pair for pair, link in kinds.items() if link is model.default] == ["ae", "ce", "eb", "ed", "ee"]


def test_the_first_class_wins() -> None:
    touching = ConnectionClass(ConnectionModel(constant(1.0)), {"a": 0}, "touching")
    assert network_model(classes=(touching, *CLASSES)).model_of(("a", "b")) is touching.model
    assert network_model(classes=(*CLASSES, touching)).model_of(("a", "b")) is INSIDE
    assert network_model(classes=(*CLASSES, touching)).model_of(("e", "a")) is touching.model


# -- Limits of one connection


def test_a_connection_may_have_a_limit_of_its_own() -> None:
    slow = ConnectionClass(ConnectionModel(constant(0.25), bandwidth_bps=UNIT_BPS / 4), GROUPS, "across")
    world = World(uplink_bps=UNIT_BPS, classes=(slow,))
    world.send(0.0, "ac", 1)  # a quarter of the uplink until 4.0
    world.send(0.0, "ab", 2)  # the rest of it, until 4 / 3
    world.send(2.0, "ab", 3)  # three quarters again
    assert world.run().received == [
        (pytest.approx(4 / 3 + 0.25), "b", 2),
        (pytest.approx(2 + 4 / 3 + 0.25), "b", 3),
        (4.25, "c", 1),
    ]


def test_a_limit_holds_where_everything_else_is_unlimited() -> None:
    world = World(bandwidth_bps=UNIT_BPS)
    for number, pair in enumerate(["ab", "ab", "ac"]):
        world.send(0.0, pair, number)
    assert world.run().received == [(1.25, "b", 0), (1.25, "c", 2), (2.25, "b", 1)]
    assert world.network._connections == {}


# -- Full uplinks


def test_a_full_uplink_drops_what_comes_last() -> None:
    world = World(uplink_bps=UNIT_BPS, uplink_queue_bytes=2 * UNIT_BYTES)
    for number, pair in enumerate(["ab", "ab", "ac", "da"]):  # d has an uplink of its own
        world.send(0.0, pair, number)
    world.send(1.5, "ac", 4)  # the first is through, so there is room
    world.run()
    assert world.ends() == [
        (0.0, "dropped", 2, "uplink queue"),
        (1.25, "delivered", 0, ""),
        (1.25, "delivered", 3, ""),
        (2.75, "delivered", 1, ""),  # half a second alone, then half the uplink for a whole one
        (3.25, "delivered", 4, ""),
    ]
    assert world.network.counts.reasons == {"uplink queue": 1}


def test_an_empty_uplink_takes_any_message() -> None:
    world = World(uplink_bps=UNIT_BPS, uplink_queue_bytes=1)
    for time_s, number in ((0.0, 1), (0.5, 2), (1.125, 3)):
        world.send(time_s, "ab", number)
    assert world.run().ends() == [
        (0.5, "dropped", 2, "uplink queue"), (1.25, "delivered", 1, ""), (2.375, "delivered", 3, ""),
    ]  # fmt: skip


def test_a_broken_off_transfer_leaves_room() -> None:
    world = World(uplink_bps=UNIT_BPS, uplink_queue_bytes=2 * UNIT_BYTES)
    world.send(0.0, "ab", 1)
    world.send(0.0, "ab", 2)
    world.at(0.5, world.network.detach, "b")
    for number in (3, 4):
        world.send(0.5, "ac", number)
    assert world.run().received == [(1.75, "c", 3), (2.75, "c", 4)]
