"""Partitions: who is cut off from whom, and when."""

from hypothesis import given
from hypothesis import strategies as st

from sim.world.partitions import ScheduledPartition, ScheduledPartitions
from tests.world.networks import World


def test_groups_are_cut_from_each_other_and_not_from_the_rest() -> None:
    partitions = ScheduledPartitions([ScheduledPartition(0.0, 1.0, groups=(("a", "b"), ("c",)))])
    assert [s + r for s in "abcd" for r in "abcd" if partitions.separate(s, r, 0.5)] == [
        "ac",
        "bc",
        "ca",
        "cb",
    ]


def test_a_one_way_cut_leaves_the_way_back() -> None:
    partitions = ScheduledPartitions([ScheduledPartition(0.0, 1.0, sources=("a", "b"), targets=("c",))])
    assert [s + r for s in "abcd" for r in "abcd" if partitions.separate(s, r, 0.5)] == ["ac", "bc"]


def test_partitions_may_overlap_in_time() -> None:
    partitions = ScheduledPartitions(
        [
            ScheduledPartition(0.0, 2.0, sources=("a",), targets=("b",)),
            ScheduledPartition(1.0, 3.0, groups=(("a", "b"), ("c",))),
        ]
    )
    assert [partitions.separate("a", "b", time_s) for time_s in (0.0, 1.5, 2.0)] == [True, True, False]
    assert [partitions.separate("a", "c", time_s) for time_s in (0.0, 1.5, 2.0, 3.0)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_flapping_cut_is_there_at_the_beginning_of_each_period_until_its_end() -> None:
    partitions = ScheduledPartitions(
        [ScheduledPartition(1.0, 9.5, groups=(("a",), ("b",)), period_s=4.0, active_share=0.25)]
    )
    quarters = [number / 4 for number in range(48)]
    cut = [time_s for time_s in quarters if partitions.separate("a", "b", time_s)]
    assert cut == [1.0, 1.25, 1.5, 1.75, 5.0, 5.25, 5.5, 5.75, 9.0, 9.25]


def test_messages_pass_a_flapping_cut_between_its_spells() -> None:
    cut = ScheduledPartition(0.0, 100.0, sources=("a",), targets=("b",), period_s=2.0, active_share=0.5)
    world = World(partitions=(cut,))
    for number in range(16):
        world.send(number / 4, "ab", number)
    # A spell loses what is sent in it, and what would arrive in it: a latency is a quarter of a second.
    assert world.run().received == [(n / 4 + 0.25, "b", n) for n in (4, 5, 6, 12, 13, 14)]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 4096), st.integers(0, 400))
def test_a_flapping_cut_takes_its_share_of_whole_periods(
    period: int, share: int, start: int, periods: int
) -> None:
    length_s, start_s = period / 4, start / 64
    end_s = start_s + max(1, periods) * length_s
    partitions = ScheduledPartitions(
        [ScheduledPartition(start_s, end_s, (("a",), ("b",)), period_s=length_s, active_share=share / 64)]
    )
    first = [start_s + length_s * part / 64 for part in range(64)]
    last = [end_s - length_s + length_s * part / 64 for part in range(64)]
    for instants in (first, last):
        assert [partitions.separate("b", "a", time_s) for time_s in instants] == [
            part < share for part in range(64)
        ]
    assert not partitions.separate("a", "b", end_s)
