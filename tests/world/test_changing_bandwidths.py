"""Bandwidths over time: the ends of transfers are those of an own fluid model; and refusals of files."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from actors.codec import size
from actors.message import Envelope
from sim.errors import UserError
from sim.run.setup.builder import build
from sim.world.changing_bandwidths import (
    PACKET_BITS,
    ChangingBandwidthFromMahimahi,
    ChangingBandwidthFromTable,
)
from sim.world.devices.slowness import Piece
from tests.resume.crashes import require_goes_on_anywhere
from tests.simulation.worlds import DIGITS, load
from tests.world.networks import Note, World, network_model
from tests.world.quantities import constant

Steps = list[Piece]
"""(end, bits per second), the last one without end."""


def table(folder: Path, text: str, **settings: object) -> ChangingBandwidthFromTable:
    (folder / "table.csv").write_text("time_s,mbit_per_s\n" + text)
    return ChangingBandwidthFromTable.model_validate(
        {"kind": "table", "file": str(folder / "table.csv"), **settings}
    )


def mahimahi(folder: Path, text: str, **settings: object) -> ChangingBandwidthFromMahimahi:
    (folder / "trace.up").write_text(text)
    return ChangingBandwidthFromMahimahi.model_validate(
        {"kind": "mahimahi", "file": str(folder / "trace.up"), **settings}
    )


def first(pieces: Iterator[Piece], count: int) -> list[Piece]:
    return list(itertools.islice(pieces, count))


def test_a_table_is_repeated(tmp_path: Path) -> None:
    found = table(tmp_path, "0,8\n2,0\n3,1\n4,7\n", offset="0 s")
    assert first(found.pieces(1, "a"), 5) == [(2, 8e6), (3, 0), (4, 1e6), (6, 8e6), (7, 0)]
    later = found.model_copy(update={"offset": 5.5})  # one and a half seconds into the second cycle
    assert first(later.pieces(1, "a"), 3) == [(0.5, 8e6), (1.5, 0), (2.5, 1e6)]


def test_a_random_offset_is_of_the_client_and_for_both_ways(tmp_path: Path) -> None:
    found = table(tmp_path, "0,8\n2,1\n4,1\n")
    assert next(found.pieces(1, "a")) == next(found.pieces(1, "a")) != next(found.pieces(1, "b"))


@pytest.mark.parametrize(
    "text, problem",
    [
        ("1,8\n2,8\n", "time_s = 1: must be 0"),
        ("0,8\n", "has one row"),
        ("0,8\n2,8\n2,8\n", "time_s = 2: must be larger than 2"),
        ("0,-1\n2,8\n", "mbit_per_s = '-1': must be a number from 0"),
        ("0,fast\n2,8\n", "mbit_per_s = 'fast'"),
        ("0,0\n2,8\n", "no row with mbit_per_s > 0"),
        ("0,nan\n2,8\n", "mbit_per_s = 'nan'"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        table(tmp_path, text).pieces(1, "a")
    assert problem in str(refused.value) and "table.csv" in str(refused.value)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "is empty"),
        (" \n", "has 0 lines"),
        ("1\n-2\n", "line 2"),
        ("1\n2.5\n", "line 2"),
        ("5\n4\n", "must not be smaller than the previous line"),
        ("0\n0\n", "ends at 0 ms"),
        ("9" * 30, "must be a whole number of milliseconds"),
    ],
)
def test_a_trace_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        mahimahi(tmp_path, text).pieces(1, "a")
    assert problem in str(refused.value) and "trace.up" in str(refused.value)


def test_a_trace_of_too_many_steps_is_refused_before_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"more than 10,000,000 steps of 0\.001 ms; use a larger step"):
        mahimahi(tmp_path, "999999999999", step="1 us").pieces(1, "a")


@pytest.mark.parametrize("step", ["1.1 ms", "0.7 ms", "0.3 ms", "70 us"])
def test_steps_that_are_no_whole_milliseconds_have_lengths_and_all_packets(tmp_path: Path, step: str) -> None:
    for end_ms in range(1, 60):
        times_s, bps = mahimahi(tmp_path, "\n".join(map(str, range(1, end_ms + 1))), step=step).trace
        assert all(start < end for start, end in itertools.pairwise(times_s)), (step, end_ms)
        bits = sum(
            rate * (end - start) for rate, (start, end) in zip(bps, itertools.pairwise(times_s), strict=True)
        )
        assert bits == pytest.approx(PACKET_BITS * end_ms, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_each_step_of_mahimahi_delivers_the_packets_of_the_trace(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    times_ms = sorted(draws.randint(0, 4321) for _ in range(draws.randint(1, 900)))
    if times_ms[-1] == 0:
        return
    step_ms = draws.choice([50, 100, 500, 1000])
    found = mahimahi(tmp_path, "\n".join(map(str, times_ms)), offset="0 s", step=f"{step_ms} ms")
    times_s, bps = found.trace
    for start_s, end_s, rate in zip(times_s, times_s[1:], bps, strict=False):
        low, high = round(1e3 * start_s), round(1e3 * end_s)
        packets = sum(low < each <= high or (each == 0 == low) for each in times_ms)
        assert rate * (end_s - start_s) == pytest.approx(PACKET_BITS * packets, rel=1e-12)
    total = sum(rate * (end - start) for start, end, rate in zip(times_s, times_s[1:], bps, strict=False))
    assert total == pytest.approx(PACKET_BITS * len(times_ms), rel=1e-12)


# Exact ends ------------------------------------------------------------------------------------------------


def steps(draws: random.Random) -> Steps:
    """Bandwidths until some times, with gaps; the last one holds."""
    ends = sorted(round(draws.uniform(0.1, 9), 3) for _ in range(draws.randint(0, 5)))
    bps = [draws.choice([0.0, 0.0, *(draws.uniform(1e3, 1e5) for _ in range(4))]) for _ in ends]
    return [*zip(dict.fromkeys(ends), bps, strict=False), (math.inf, draws.uniform(1e3, 1e5))]


def fluid_ends(
    flows: Mapping[int, tuple[float, float, Sequence[str]]], links: Mapping[str, Steps]
) -> dict[int, float]:
    """Ends of transfers (start, bits, links), by raising all rates together from one event to the next."""
    now, left, ends = 0.0, {flow: bits for flow, (_, bits, _) in flows.items()}, dict[int, float]()
    while left:
        running = [flow for flow in left if flows[flow][0] <= now]
        capacity = {link: next(bps for end, bps in steps if end > now) for link, steps in links.items()}
        rates = water_filled(running, {flow: flows[flow][2] for flow in running}, capacity)
        events = [start for start, _, _ in flows.values() if start > now]
        events += [end for steps in links.values() for end, _ in steps if now < end < math.inf]
        done = {flow: now + left[flow] / rates[flow] for flow in running if rates[flow]}
        after = min([*events, *done.values()])
        for flow in running:
            left[flow] -= rates[flow] * (after - now)
            if done.get(flow, math.inf) <= after * (1 + 1e-15):
                ends[flow] = after
                del left[flow]
        now = after
    return ends


def water_filled(
    flows: Sequence[int], path: Mapping[int, Sequence[str]], capacity: Mapping[str, float]
) -> dict[int, float]:
    rates, open_ = dict.fromkeys(flows, 0.0), set(flows)
    while open_:
        rooms = {
            link: (bps - sum(rates[flow] for flow in flows if link in path[flow])) / len(users)
            for link, bps in capacity.items()
            if (users := [flow for flow in open_ if link in path[flow]])
        }
        rise = min(rooms.values())
        for flow in open_:
            rates[flow] += rise
        full = {link for link, room in rooms.items() if room <= rise * (1 + 1e-12)}
        open_ -= {flow for flow in open_ if full & set(path[flow])}
    return rates


@pytest.mark.parametrize("part", range(5))
def test_ends_are_those_of_a_fluid_model(part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        draws = random.Random(seed)
        links = {f"{way} {name}": steps(draws) for name in "abcde" for way in ("up", "down")}
        pairs = draws.sample(list(itertools.permutations("abcde", 2)), draws.randint(1, 12))
        starts = [round(draws.uniform(0, 8), 2) for _ in pairs]
        notes = [Note(number, bytes(draws.randint(500, 9000))) for number in range(len(pairs))]
        flows = {
            number: (start_s, 8.0 * size(Envelope(*pair, note)), (f"up {pair[0]}", f"down {pair[1]}"))
            for number, (start_s, pair, note) in enumerate(zip(starts, pairs, notes, strict=True))
        }
        world = World(latency=constant(0.0), **over_time(links))
        world.network.follow_schedules()
        for start_s, (sender, receiver), note in zip(starts, pairs, notes, strict=True):
            world.send(start_s, sender + receiver, note.number, note.payload)
        world.run()
        found = {number: time_s for time_s, _, number in world.received}
        assert found == pytest.approx(fluid_ends(flows, links), rel=1e-9, abs=1e-9), seed


def over_time(links: Mapping[str, Steps]) -> dict[str, object]:
    both = {name: (links[f"up {name}"], links[f"down {name}"]) for name in "abcde"}
    return {
        "bandwidths": {name: (up[0][1], down[0][1]) for name, (up, down) in both.items()},
        "schedules": {
            name: (lambda up=up: iter(up), lambda down=down: iter(down)) for name, (up, down) in both.items()
        },
    }


# In runs ----------------------------------------------------------------------------------------------------

GAPS = """\
time_s,mbit_per_s
0,2
0.4,0
0.7,0.5
1.1,2
"""


def test_a_run_over_gaps_goes_on_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "gaps.csv").write_text(GAPS)
    scenario = load(tmp_path, DIGITS, 'network.uplink={ kind = "table", file = "gaps.csv" }')
    assert require_goes_on_anywhere(tmp_path / "run", scenario, events=20, crashes=2) > 3


def test_a_gap_lasts_as_long_as_the_table_says(tmp_path: Path) -> None:
    found = table(tmp_path, "0,1\n1,0\n3,1\n4,1\n", offset="0 s")
    world = World(
        latency=constant(0.0),
        bandwidths={"a": (1e6, None)},
        schedules={"a": (partial(found.pieces, 1, "a"), None)},
    )
    world.network.follow_schedules()
    bits = 8 * size(Envelope("a", "b", Note(1, bytes(100_000))))
    world.send(0.5, "ab", 1, bytes(100_000))
    world.loop.run_forever()  # not ended by the gap, in which nothing has a timer
    assert world.received == [(pytest.approx(3 + bits / 1e6 - 0.5), "b", 1)]


def test_a_change_of_the_network_ends_the_table(tmp_path: Path) -> None:
    found = table(tmp_path, "0,1\n1,0\n9,1\n10,1\n", offset="0 s")
    world = World(
        latency=constant(0.0),
        bandwidths={"a": (1e6, None)},
        schedules={"a": (partial(found.pieces, 1, "a"), None)},
    )
    world.network.follow_schedules()
    world.at(2.0, world.network.change, network_model(latency=constant(0.0), bandwidths={"a": (1e6, None)}))
    bits = 8 * size(Envelope("a", "b", Note(1, bytes(100_000))))
    world.send(0.5, "ab", 1, bytes(100_000))
    world.run()
    assert world.received == [(pytest.approx(2 + bits / 1e6 - 0.5), "b", 1)]


def test_a_scenario_names_the_file_and_the_row(tmp_path: Path) -> None:
    (tmp_path / "gaps.csv").write_text("time_s,mbit_per_s\n0,1\n0,1\n")
    with pytest.raises(UserError, match=r"gaps\.csv.*time_s = 0: must be larger"):
        build(load(tmp_path, DIGITS, 'network.uplink={ kind = "table", file = "gaps.csv" }'), device="cpu")
