"""Latency and loss over time: each message has the values of its moment, as an own model says; refusals."""

import math
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import UserError
from sim.kernel.random import RandomStream
from sim.run.setup.builder import build
from sim.scenario.sections.change import changed_networks
from sim.world.changing_bandwidths import ChangingBandwidthFromTable
from sim.world.latency.table import LatencyOverTime, TableLatency
from sim.world.loss.models import LossProcess, PairLosses
from sim.world.loss.table import TableLoss
from sim.world.participants import Participants
from tests.resume.crashes import require_goes_on_anywhere
from tests.simulation.worlds import DIGITS, QUADRATIC, load, simulation
from tests.world.networks import UNIT_BYTES, World
from tests.world.quantities import independent

PAIR = ("a", "b")
Rows = list[tuple[float, float]]
"""(seconds, value), the last row without a value."""

SIXTEENTHS = st.integers(0, 200).map(lambda number: number / 16)


@st.composite
def cycles(draw: st.DrawFn, values: st.SearchStrategy[float]) -> Rows:
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    times = [sum(lengths[:number]) / 16 for number in range(len(lengths) + 1)]
    return [(time_s, draw(values)) for time_s in times]


def value_at(rows: Rows, time_s: float) -> float:
    position_s = math.fmod(time_s, rows[-1][0])
    return [value for start_s, value in rows[:-1] if start_s <= position_s][-1]


def write(folder: Path, column: str, rows: Rows) -> dict[str, Any]:
    lines = [f"time_s,{column}", *[f"{time_s!r},{value!r}" for time_s, value in rows]]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return {"kind": "table", "file": str(folder / "table.csv")}


def latency(
    folder: Path, rows: Rows, names: str = "abcde", servers: str = "", **keys: Any
) -> LatencyOverTime:
    table = TableLatency.model_validate({**write(folder, "latency_ms", rows), "offset": "0 s", **keys})
    return table.build("network.latency", Participants(1, list(names), list(servers)))


def loss(folder: Path, rows: Rows, **keys: Any) -> PairLosses:
    table = TableLoss.model_validate({**write(folder, "loss", rows), "offset": "0 s", **keys})
    return table.build("network.loss", Participants(1, list("abcde")))


def process(model: PairLosses, seed: int = 1) -> LossProcess:
    made = model.on(seed, PAIR)
    assert made is not None
    return made


# -- Latency


@given(
    rows=cycles(st.integers(0, 5000).map(float)),
    sent=st.lists(st.tuples(SIXTEENTHS, st.sampled_from(["ab", "ac", "ba", "de"])), max_size=12),
    offset=SIXTEENTHS,
)
def test_a_message_has_the_latency_of_its_departure(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, sent: list[tuple[float, str]], offset: float
) -> None:
    model = latency(tmp_path_factory.mktemp("latency"), rows, offset=f"{offset} s")
    world = World(latency=model, reliable=False)
    for number, (time_s, pair) in enumerate(sent):
        world.send(time_s, pair, number)
    found = {number: time_s for time_s, _, number in world.run().received}
    assert found == {
        number: time_s + value_at(rows, time_s + offset) / 1e3 for number, (time_s, _) in enumerate(sent)
    }


def test_the_departure_is_the_end_of_the_transfer_and_reliable_links_keep_the_order(tmp_path: Path) -> None:
    model = latency(tmp_path, [(0, 250), (2, 3000), (3, 500), (10, 0)])
    world = World(latency=model, uplink_bps=8.0 * UNIT_BYTES)  # a second each
    for number in range(4):
        world.send(0.0, "ab", number)
    # They leave at 1, 2, 3 and 4 s; the third must not overtake the second.
    assert [time_s for time_s, _, _ in world.run().received] == [1.25, 5.0, 5.0, 5.0]


def test_jitter_multiplies_the_latency_and_takes_one_number(tmp_path: Path) -> None:
    model = latency(tmp_path, [(0, 100), (1, 400), (2, 0)], jitter=0.5)
    early, late = [model.sample(PAIR, time_s, RandomStream(3)) for time_s in (0.5, 1.5)]
    assert late == pytest.approx(4 * early) and early != 0.1


def test_a_random_offset_is_of_the_sender_or_of_the_client_of_a_server(tmp_path: Path) -> None:
    model = latency(tmp_path, [(0, 1), (7, 2), (9, 3)], "ab", "s", offset="random")
    position = model.table.position_s
    assert position(("a", "b"), 0) == position(("a", "s"), 0) == position(("s", "a"), 0)
    assert position(("a", "b"), 0) != position(("b", "a"), 0) == position(("s", "b"), 0)


def test_a_random_offset_is_the_same_share_of_the_cycle_as_for_a_bandwidth(tmp_path: Path) -> None:
    model = latency(tmp_path, [(0, 1), (7, 2), (8, 3)], offset="random")
    (tmp_path / "bandwidth.csv").write_text("time_s,mbit_per_s\n0,1\n4,0\n")
    settings: dict[str, Any] = {"kind": "table", "file": str(tmp_path / "bandwidth.csv")}
    first_end_s, _ = next(ChangingBandwidthFromTable.model_validate(settings).pieces(1, "a"))
    assert model.table.position_s(PAIR, 0) == pytest.approx(2 * (4 - first_end_s))


# -- Loss


LOSSES = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])


@given(rows=cycles(LOSSES), times=st.lists(SIXTEENTHS, min_size=1, max_size=8), seed=st.integers(0, 9))
def test_losses_are_those_of_their_time(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, times: list[float], seed: int
) -> None:
    if min(value for _, value in rows[:-1]) == 1:
        rows[0] = (0, 0.5)
    made = loss(tmp_path_factory.mktemp("loss"), rows).on(seed, PAIR)
    if made is None:
        assert all(value == 0 for _, value in rows[:-1])
        return
    draws = RandomStream(seed, "loss", *PAIR)
    for number, time_s in enumerate(sorted(times)):
        draws.position = made.draws.position = number
        assert made.lost(time_s) == (draws.uniform() < value_at(rows, time_s))


@given(
    rows=cycles(LOSSES),
    time_s=SIXTEENTHS,
    every_s=st.integers(1, 40).map(lambda number: number / 16),
    seed=st.integers(0, 999),
)
def test_each_retransmission_has_the_loss_of_its_time(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, time_s: float, every_s: float, seed: int
) -> None:
    rows[0] = (0, min(rows[0][1], 0.5))
    made = loss(tmp_path_factory.mktemp("loss"), rows).on(seed, PAIR)
    if made is None:
        return
    left, count, chance = 1 - RandomStream(seed, "loss", *PAIR).uniform(), 0, value_at(rows, time_s)
    while chance >= left and count < 10_000:
        count += 1
        chance *= value_at(rows, time_s + count * every_s)
    if count == 10_000:  # the interval divides the cycle, and no retransmission gets through
        assert made.repetitions(time_s, every_s) * every_s > 1e9
    else:
        assert made.repetitions(time_s, every_s) == count


def test_retransmissions_that_never_get_through_do_not_hang(tmp_path: Path) -> None:
    model = process(loss(tmp_path, [(0, 0), (0.1, 1), (1, 0)]))
    assert model.repetitions(0.5, 1.0) > 1e9
    assert process(loss(tmp_path, [(0, 1), (3e6, 0), (3.1e6, 0)])).repetitions(0.0, 0.001) == 3_000_000_000


def test_the_rate_is_the_mean_over_the_cycle(tmp_path: Path) -> None:
    assert loss(tmp_path, [(0, 0.5), (1, 0.5), (3, 0), (12, 0)]).rate == pytest.approx(1.5 / 12)
    assert loss(tmp_path, [(0, 0), (1, 0)]).on(1, PAIR) is None


@given(
    probability=st.floats(0.001, 0.999),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    seed=st.integers(0, 999),
)
def test_a_constant_table_is_the_constant(
    tmp_path_factory: pytest.TempPathFactory, probability: float, lengths: list[int], seed: int
) -> None:
    rows = [(float(sum(lengths[:number])), probability) for number in range(len(lengths) + 1)]
    table = process(loss(tmp_path_factory.mktemp("loss"), rows), seed)
    plain = process(independent(probability), seed)
    for number in range(20):
        assert table.repetitions(number * 0.3, 0.2) == plain.repetitions(number * 0.3, 0.2)
        assert table.lost(number) == plain.lost(number)


# -- In runs

LATENCY = "time_s,latency_ms\n0,20\n1,300\n1.5,20\n2,20\n"
LOSS = "time_s,loss\n0,0\n0.6,1\n1,0.3\n2,0\n"
BOTH = (
    'network.latency={ kind = "table", file = "latency.csv" }',
    'network.loss={ kind = "table", file = "loss.csv" }',
)


def tables(folder: Path, latency: str = LATENCY, loss: str = LOSS) -> None:
    (folder / "latency.csv").write_text(latency)
    (folder / "loss.csv").write_text(loss)


def trace_hash(folder: Path, *overrides: str) -> str:
    with simulation(folder, QUADRATIC, *overrides) as built:
        built.run()
        return built.trace.hash()


@pytest.mark.parametrize("link", ["reliable", "datagram"])
def test_constant_tables_give_the_trace_of_the_constants(tmp_path: Path, link: str) -> None:
    tables(tmp_path, "time_s,latency_ms\n0,20\n1,20\n3,20\n", "time_s,loss\n0,0.25\n0.3,0.25\n0.7,0.25\n")
    gossip = ("protocol.name=gossip", f"network.link={link}")
    constant = trace_hash(tmp_path, *gossip, "network.loss=0.25")
    assert trace_hash(tmp_path, *gossip, *BOTH) == constant
    tables(tmp_path)
    assert trace_hash(tmp_path, *gossip, *BOTH) != constant


@pytest.mark.long
def test_a_run_with_tables_goes_on_from_anywhere(tmp_path: Path) -> None:
    tables(tmp_path)
    scenario = load(tmp_path, DIGITS, *BOTH)
    assert require_goes_on_anywhere(tmp_path / "run", scenario, events=20, crashes=2) > 3


@pytest.mark.parametrize(
    "latency, loss, problem",
    [
        ("time_s,latency_ms\n0,20\n1,-1\n2,0\n", LOSS, r"network\.latency\.file.*line 3: latency_ms = '-1'"),
        ("time_s,latency_ms\n1,20\n2,0\n", LOSS, r"line 2: time_s = 1: must be 0"),
        ("time_s,latency_s\n0,20\n2,0\n", LOSS, r"latency_ms"),
        ("time_s,latency_ms\n0,1e9\n2,0\n", LOSS, r"latency_ms = '1e9': must be a number from 0 to 8.64e"),
        (
            LATENCY,
            "time_s,loss\n0,1.5\n2,0\n",
            r"network\.loss\.file.*line 2: loss = '1.5': must be .* 0 to 1",
        ),
        (LATENCY, "time_s,loss\n0,1\n1,1\n2,0\n", r"no row with loss < 1"),
        (LATENCY, "time_s,loss\n0,0\n", r"loss\.csv.*has one row"),
        (LATENCY, "time_s,loss\n0,0\n2,0\n2,0\n", r"line 4: time_s = 2: must be larger than 2"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(
    tmp_path: Path, latency: str, loss: str, problem: str
) -> None:
    tables(tmp_path, latency, loss)
    with pytest.raises(UserError, match=problem):
        build(load(tmp_path, DIGITS, *BOTH), device="cpu")


# -- Exceptions for some clients


OVERRIDES = """
[[network.override]]
share = 1.0
uplink = "8 Mbit/s"

[[network.override]]
clients = [1, 2]
uplink = { kind = "table", file = "bandwidth.csv" }
latency = "70 ms"

[[network.override]]
clients = [2]
downlink = "1 Mbit/s"
loss = { kind = "table", file = "loss.csv" }

[[network.class]]
inside = [[4, 2]]
latency = "5 ms"
"""


def test_overrides_apply_to_their_clients(tmp_path: Path) -> None:
    tables(tmp_path)
    (tmp_path / "bandwidth.csv").write_text("time_s,mbit_per_s\n0,2\n1,2\n")
    scenario = load(tmp_path, QUADRATIC + OVERRIDES)
    names = [f"client-{number}" for number in range(6)]
    model = scenario.network.build(Participants(1, names))
    assert model.bandwidths == {
        "client-0": (8e6, None),
        "client-1": (2e6, None),
        "client-2": (2e6, 1e6),
        **dict.fromkeys(names[3:], (8e6, None)),
    }
    assert list(model.schedules) == ["client-1", "client-2"]

    def between(sender: int, receiver: int) -> tuple[float, float]:
        pair = (names[sender], names[receiver])
        link = model.model_of(pair)
        return link.latency_s(pair, 0.0, RandomStream(0)), round(link.loss.rate, 3)

    assert between(0, 3) == (0.02, 0)
    assert between(0, 1) == between(1, 5) == (0.07, 0)
    assert between(2, 1) == between(0, 2) == (0.02, 0.35)  # the last entry decides both
    assert between(2, 4) == (0.005, 0)  # the class decides


@pytest.mark.parametrize(
    "override, problem",
    [
        ("clients = [6]\nloss = 0.1", r"network\.override\.0\.clients.*no client 6"),
        ("clients = [1]", r"network\.override\.0"),
        ("clients = [1]\nshare = 0.5\nloss = 0.1", r"network\.override\.0"),
        ("clients = [1]\nlatency = '-1 ms'", r"network\.override\.0\.latency"),
    ],
)
def test_overrides_that_cannot_be_meant_are_refused(tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        load(tmp_path, f"{QUADRATIC}\n[[network.override]]\n{override}\n")


def test_an_override_names_its_file(tmp_path: Path) -> None:
    tables(tmp_path, loss="time_s,loss\n0,2\n1,0\n")
    entry = 'clients = [1]\nloss = { kind = "table", file = "loss.csv" }'
    with pytest.raises(UserError, match=r"network\.override\.0\.loss\.file.*line 2: loss = '2'"):
        build(load(tmp_path, f"{QUADRATIC}\n[[network.override]]\n{entry}\n"), device="cpu")


def test_a_change_of_the_network_keeps_overrides(tmp_path: Path) -> None:
    text = f"{QUADRATIC}{OVERRIDES}\n[[change]]\nat = '1 s'\nnetwork = {{ latency = '90 ms' }}\n"
    tables(tmp_path)
    (tmp_path / "bandwidth.csv").write_text("time_s,mbit_per_s\n0,2\n1,2\n")
    scenario = load(tmp_path, text)
    names = [f"client-{number}" for number in range(6)]
    [(at_s, model)] = changed_networks(scenario.network, scenario.change, Participants(1, names))
    pairs = [("client-0", "client-3"), ("client-0", "client-1"), ("client-2", "client-1")]
    found = [model.model_of(pair).latency_s(pair, 0.0, RandomStream(0)) for pair in pairs]
    assert (at_s, found) == (1.0, [0.09, 0.07, 0.09])


def test_the_position_of_a_row_is_exact(tmp_path: Path) -> None:
    rows = [(number / 16, float(number)) for number in range(33)]
    model = latency(tmp_path, rows)
    for number in range(96):
        expected = bisect_right([time_s for time_s, _ in rows[:-1]], number / 16 % 2) - 1
        assert model.sample(PAIR, number / 16, RandomStream(0)) == expected / 1e3
