"""Latency, bandwidth, speed, slow times and churn by functions of the user's own."""

from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.kernel.random import PositionableGenerator, RandomStream
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.setup.builder import build
from sim.run.verifying import verify
from sim.scenario.resolved import digest, to_toml
from sim.scenario.scenario import load_scenario
from sim.world.participants import Participants, client_name
from tests.own.worlds import scenario_with
from tests.simulation.worlds import write

LATENCY = "network.latency"


def built(folder: Path, key: str, text: str, *options: str, keys: str = "") -> Simulation:
    path = scenario_with(folder, key, text, keys=keys)
    return build(load_scenario(path, options), device="cpu")


def messages(directory: Path) -> pl.DataFrame:
    events = RunDirectory.load(directory).scan("events").collect()
    assert isinstance(events, pl.DataFrame)
    return events.filter(pl.col("event").is_in(["sent", "delivered"]))


# --- random numbers -----------------------------------------------------------------------------------------


def test_a_generator_at_a_place_is_that_of_a_new_one() -> None:
    there = PositionableGenerator()
    for key, place in ((3, 0), (2**64 - 1, 7), (3, 1), (3, 0)):
        fresh = np.random.Philox(
            key=np.array([key, 0], np.uint64), counter=np.array([0, place, 0, 0], np.uint64)
        )
        ours, wanted = there.at(key, place), np.random.Generator(fresh)
        assert ours.normal(size=3).tolist() == wanted.normal(size=3).tolist()
        assert ours.integers(5, dtype=np.int32) == wanted.integers(5, dtype=np.int32)  # leaves half a number
        assert ours.random() == wanted.random()


# --- latency ------------------------------------------------------------------------------------------------

WAVE = """
from protocols import Duration

def mine(rng, sender, receiver, time, base: Duration = "10 ms", sigma: float = 0.0):
    return (base * (1 + abs(sender - receiver)) + (time >= 4) * 0.5) * rng.lognormal(0, sigma)
"""


def test_latency_is_what_the_function_says(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, LATENCY, WAVE, keys='base = "1 s"')
    result = run_scenario(load_scenario(path), RunOptions(out=tmp_path / "runs", device="cpu"))
    assert result.directory is not None and not result.summary["failures"]
    seen = 0
    for (sender, receiver), rows in messages(result.directory).group_by("actor", "peer"):
        sent = rows.filter(event="sent")["time"].to_list()
        delivered = rows.filter(event="delivered")["time"].to_list()
        hops = abs(int(str(sender)[7:]) - int(str(receiver)[7:]))
        for begin, end in zip(sent, delivered, strict=False):
            assert end == pytest.approx(begin + 1 + hops + 0.5 * (begin >= 4))
            seen += 1
    assert seen > 10


def latencies(section: object, clients: int, pairs: list[tuple[int, int, int]]) -> list[float]:
    everybody = Participants(1, [client_name(index) for index in range(clients)])
    model = section.build(LATENCY, everybody)  # type: ignore[attr-defined]
    draws, found = RandomStream(1, "any"), []
    for sender, receiver, number in pairs:
        draws.key, draws.position = 1000 * sender + receiver, number
        found.append(model.sample((client_name(sender), client_name(receiver)), 0.0, draws))
    return found


def test_a_messages_latency_hangs_on_the_pair_and_its_number_alone(tmp_path: Path) -> None:
    section = load_scenario(scenario_with(tmp_path, LATENCY, WAVE, keys="sigma = 0.5")).network.latency
    pairs = [(0, 1, 0), (1, 0, 0), (0, 1, 1), (0, 2, 5)]
    one = latencies(section, 3, pairs)
    assert len(set(one)) == 4
    assert latencies(section, 3, pairs[::-1])[::-1] == one
    assert latencies(section, 7, pairs) == one


def test_its_keys_are_checked_and_stated(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, LATENCY, WAVE, keys='base = "1 s"')
    scenario = load_scenario(path)
    assert 'base = "1 s"\nsigma = 0.0' in to_toml(scenario)
    assert load_scenario(write(tmp_path, to_toml(scenario), "again.toml")) == scenario
    assert digest(load_scenario(path, ["network.latency.base=2 s"])) != digest(scenario)
    for option, message in {
        "network.latency.base=2": "network.latency.base = 2 .*: 2 has no unit",
        "network.latency.sigma=much": "network.latency.sigma = .much. .*: must be a number",
        "network.latency.sgma=2": "network.latency.sgma = 2 .*: unknown key; .*did you mean 'sigma'",
    }.items():
        with pytest.raises(UserError, match=message):
            load_scenario(path, [option])


def test_a_name_alone_stands_for_a_table(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, LATENCY, WAVE)
    short = load_scenario(path, ["network.latency=own.py:mine"])
    assert short == load_scenario(path)


def test_a_class_of_connections_may_have_its_own(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, "network.class", "def mine(sender, receiver):\n    return 2\n")
    text = path.read_text().replace(
        'class = { kind = "own.py:mine" }', 'class = [{ inside = [[0, 1]], latency = "own.py:mine" }]'
    )
    scenario = load_scenario(write(tmp_path, text))
    [user] = scenario.plugins
    assert user.key == "network.class.0.latency.kind"
    everybody = Participants(1, [client_name(index) for index in range(6)])
    model = scenario.network.build(everybody)
    draws = RandomStream(1, "any")
    times = [model.model_of(pair).latency_s(pair, 0.0, draws) for pair in (("client-0", "client-1"),)]
    assert times == [2.0] and model.model_of(("client-0", "client-2")).constant_s == 0.02


FAILS_LATER = "def mine(time):\n    if time > 3:\n        raise KeyError('too late')\n    return 0.1\n"


def test_what_fails_in_the_run_ends_it_and_keeps_the_results_so_far(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_with(tmp_path, LATENCY, FAILS_LATER), ["run.evaluate_every=1 s"])
    with pytest.raises(UserError, match=r"own\.py:3: mine failed .*time = 3.*KeyError: 'too late'") as raised:
        run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert "the results so far are in" in raised.value.__notes__[-1]
    [directory] = (tmp_path / "runs").iterdir()
    summary = RunDirectory.load(directory).summary()
    assert not summary["finished"] and "own.py:3" in summary["ended_by"]
    assert not summary["failures"], "it is no client's fault"
    assert messages(directory)["time"].max() > 2


# --- bandwidth and speed ------------------------------------------------------------------------------------

LINES = """
def mine(rng, client, slow: float = 1e6):
    return None if client == 0 else slow * rng.uniform(1, 2)
"""


def test_each_client_has_the_bandwidth_and_the_speed_that_the_function_says(tmp_path: Path) -> None:
    few = load_scenario(scenario_with(tmp_path, "network.uplink", LINES, keys="slow = 5e6"))
    with closing(build(few, device="cpu")) as simulation:
        model = simulation.network._model
        bps = [model.bandwidths_of(client.name)[0] for client in simulation.clients]
    assert bps[0] is None and all(5e6 <= each <= 10e6 for each in bps[1:] if each is not None)
    more = load_scenario(few.path, [*few.overrides, "clients.count=8"])  # type: ignore[arg-type]
    with closing(build(more, device="cpu")) as simulation:
        again = [simulation.network._model.bandwidths_of(each.name)[0] for each in simulation.clients]
    assert again[:6] == bps and len(set(again)) == 8


def test_step_times_and_speeds_are_those_of_the_function(tmp_path: Path) -> None:
    text = "def mine(client, clients):\n    return (1 + client) / clients\n"
    scenario = load_scenario(scenario_with(tmp_path, "devices.step_time", text))
    devices = scenario.devices.build(1, DataFolder(), 6)
    assert [devices.cost_model(client).step_time_s for client in (0, 2, 5)] == [1 / 6, 0.5, 1.0]
    assert scenario.path is not None
    fast = "def mine(client):\n    return 10**9 * (1 + client)\n"
    write(tmp_path, fast, "own.py")
    text = scenario.path.read_text().replace("step_time =", "speed =")
    devices = load_scenario(write(tmp_path, text)).devices.build(1, DataFolder(), 6)
    assert devices.cost_model(5).flops_per_s == 6e9


# --- slow times ---------------------------------------------------------------------------------------------

SPELLS = """
def mine(rng, shared_rng, client, length: float = 2.0):
    yield length, 1.0
    yield 2 * length + shared_rng.uniform(), 4.0 + client
"""


def test_slow_times_hold_as_long_as_the_function_says(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_with(tmp_path, "devices.slow_times", SPELLS, keys="length = 3.0"))
    devices = scenario.devices.build(1, DataFolder(), 6)
    ends = []
    for client in (0, 2):
        slowness, factor = devices.slowness(client), 4 + client
        assert slowness.finish_s(0.0, 1.0) == 1.0
        assert slowness.finish_s(2.0, 1.5) == 3.0 + 0.5 * factor
        done = slowness.finish_s(3.0, 100.0)  # over the end of the slow time
        ends.append((done - 103) / (1 - 1 / factor))  # how long it was slow
    assert ends[0] == pytest.approx(ends[1])  # the shared numbers are the same for both


def test_slow_times_concern_the_clients_that_are_named(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, "devices.slow_times", SPELLS, keys="clients = [2]")
    devices = load_scenario(path).devices.build(1, DataFolder(), 6)
    assert devices.slowness(1).finish_s(2.0, 1.0) == 3.0 < devices.slowness(2).finish_s(2.0, 1.0)
    with pytest.raises(UserError, match=r"devices.slow_times.0.clients = \[9\]: there is no client 9"):
        load_scenario(scenario_with(tmp_path, "devices.slow_times", SPELLS, keys="clients = [9]"))


def test_slow_times_that_fail_in_the_run_end_it(tmp_path: Path) -> None:
    text = "def mine():\n    yield from ((n / 50, 1) for n in range(1, 200))\n    raise ValueError('done')\n"
    path = scenario_with(tmp_path, "devices.slow_times", text)
    with pytest.raises(UserError, match=r"own\.py:3: mine failed for client = \d: ValueError: done"):
        run_scenario(
            load_scenario(path, ["run.evaluate_every=1 s"]), RunOptions(out=tmp_path / "runs", device="cpu")
        )
    [directory] = (tmp_path / "runs").iterdir()
    assert not RunDirectory.load(directory).summary()["failures"]


# --- churn --------------------------------------------------------------------------------------------------

SHIFTS = """
def mine(rng, shared_rng, client, clients, until):
    if client == 0:
        return [(0, float("inf"))]
    if client == clients - 1:
        return []
    begin = shared_rng.uniform(1, 2)
    return [(begin + client, begin + client + 1), (until - 1, until + 5)]
"""


def test_clients_come_and_go_as_the_function_says(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, "churn_process", SHIFTS)
    with closing(build(load_scenario(path), device="cpu")) as simulation:
        events = [(event.kind, event.clients, event.time_s) for event in simulation.events]
        assert [client.up_at_start for client in simulation.clients] == [True] + [False] * 5
    begin = events[0][2] - 1
    assert 1 <= begin < 2
    first = [("join", (client,), begin + client) for client in (1, 2, 3, 4)]
    first += [("crash", (client,), begin + client + 1) for client in (1, 2, 3, 4)]
    wanted = sorted([*first, *[("rejoin", (client,), 9.0) for client in (1, 2, 3, 4)]], key=lambda e: e[2])
    assert sorted(events, key=lambda e: (e[2], e)) == sorted(wanted, key=lambda e: (e[2], e))


@pytest.mark.long
def test_a_run_with_churn_of_ones_own_can_be_verified(tmp_path: Path) -> None:
    write(tmp_path, "def drawn(shared_rng):\n    return shared_rng.uniform(1, 2)\n", "helper.py")
    text = "from helper import drawn\n" + SHIFTS.replace("shared_rng.uniform(1, 2)", "drawn(shared_rng)")
    scenario = load_scenario(scenario_with(tmp_path, "churn_process", text))
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert result.directory is not None
    [copy] = result.directory.glob("churn_process-*")
    assert sorted(path.name for path in copy.iterdir()) == [".coterie", "helper.py", "own.py"]
    assert f'kind = "{copy.name}/own.py:mine"' in (result.directory / "scenario.toml").read_text()
    kept = run_scenario(
        load_scenario(result.directory / "scenario.toml"), RunOptions(out=tmp_path / "again", device="cpu")
    )
    assert kept.summary["trace_hash"] == result.summary["trace_hash"]
    assert verify(scenario, result, RunOptions(device="cpu")) is None
    (tmp_path / "helper.py").write_text("def drawn(shared_rng):\n    return 1.5\n")
    assert digest(load_scenario(scenario.path)) != digest(scenario)  # type: ignore[arg-type]
