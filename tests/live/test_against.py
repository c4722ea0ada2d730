"""A live run held against the simulation of the same; here a simulation takes its place."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from sim.live.against import (
    caveat,
    compare_with_simulation,
    ranking,
    ratio,
    simulate_for_comparison,
    verdicts,
)
from sim.live.calibrate import Calibration, calibrate, calibrated
from sim.live.running import _late_event_totals
from sim.scenario.scenario import load_scenario

SMALL = ("clients.count=6", "clients.topology.degree=2", "run.duration=20 s", "run.evaluate_every=5 s")
LATE = {"raw": False, "too_busy": False, "delivered_late_s": {"median": 0.0005, "p95": 0.02}}


@pytest.mark.long
def test_a_simulation_is_as_near_to_itself_as_can_be() -> None:
    scenario = load_scenario("gossip", SMALL)
    found = compare_with_simulation(simulate_for_comparison(scenario, None), scenario, None)
    assert (found["iterations"]["all"], found["iterations"]["most"]) == (0.0, 0.0)
    assert found["furthest"] == 0.0 <= found["chance_furthest"]
    assert found["wrong_sizes"] == 0
    ((predicted, measured),) = found["bytes_by_type"].values()
    assert predicted == measured
    assert found["step_time_s"][0] == found["step_time_s"][1]
    held = {what: holds for what, _, holds in verdicts({"against": found, "live": LATE})}
    assert held.pop("delivered within 15 ms at the 95th percentile") is False
    assert all(held.values())


@pytest.mark.long
def test_devices_that_are_slower_are_found_to_be() -> None:
    scenario = load_scenario(
        "dpsgd_asynchronous", ("run.duration=20 s", "churn=[]", "run.evaluate_every=10 s")
    )
    found = compare_with_simulation(simulate_for_comparison(scenario, None, 1.1), scenario, None)
    assert -0.12 < found["iterations"]["all"] < -0.06
    predicted, measured = (sum(each.values()) for each in found["step_time_s"])
    assert measured / predicted == pytest.approx(1.1, rel=0.01)
    held = {what: holds for what, _, holds in verdicts({"against": found, "live": LATE})}
    assert held["iterations of all clients within 1%"] is False
    raw = verdicts({"against": found, "live": LATE | {"raw": True}})
    assert all(holds for _, _, holds in raw)
    assert verdicts({"against": found, "live": LATE | {"too_busy": True}}) == []


def test_what_was_forgiven_is_said_beside_the_verdicts() -> None:
    late_s = np.array([0.0004, 0.002, 0.1, 0.4])
    forgiven = {"messages": _late_event_totals(late_s), "jobs": _late_event_totals(late_s[:1])}
    assert forgiven == {"messages": {"count": 3, "seconds": 0.502}, "jobs": {"count": 0, "seconds": 0.0}}
    said = caveat(LATE | {"forgiven": forgiven})
    assert "Events that are less than 0.5 s late count from their planned times" in said
    assert "3 messages (0.502 s in total) and 0 jobs (0 s)" in said
    assert caveat(LATE | {"raw": True, "forgiven": {}}) == ""


def test_ratios_have_intervals_over_what_both_have() -> None:
    predicted = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 5.0}
    even = ratio(predicted, {name: 1.1 * value for name, value in predicted.items() if name != "d"})
    assert even is not None and even["compared"] == 3
    assert [even["ratio"], *even["interval"]] == pytest.approx([1.1, 1.1, 1.1])
    uneven = ratio(predicted, {"a": 20.0, "b": 20.0, "c": 20.0})
    assert uneven is not None and uneven["ratio"] == 1.0
    assert uneven["interval"][0] < 0.8 and uneven["interval"][1] > 1.4
    assert ratio({}, {"a": 1.0}) is None is ratio({"a": 0.0}, {"a": 1.0})


def test_raw_message_times_are_compared_between_processes() -> None:
    scenario = load_scenario("gossip", (*SMALL, "network.latency=50 ms"))
    names = [f"client-{number}" for number in range(6)]
    processes = {name: f"process-{number % 2}" for number, name in enumerate(names)}
    slower = load_scenario("gossip", (*SMALL, "network.latency=100 ms"))
    found = compare_with_simulation(simulate_for_comparison(slower, None), scenario, None, processes)
    assert found["ratios"]["message times"]["ratio"] > 1.5
    pairs = [key.split(" to ") for key in simulate_for_comparison(scenario, None).message_s(processes)]
    assert pairs and all(processes[sender] != processes[receiver] for sender, receiver in pairs)
    raw = verdicts({"against": found, "live": LATE | {"raw": True}})
    held = {what: holds for what, _, holds in raw}
    assert held["message times within 30%"] is False and held["bytes within 30%"] is True


def summary(method: str, predicted: float, measured: float) -> dict[str, object]:
    curves = {"predicted": [[0.0], [predicted]], "measured": [[0.0], [measured]]}
    return {"protocol": method, "against": {"curves": curves}}


@pytest.mark.long
def test_the_ranking_of_methods_is_spearmans() -> None:
    alike = ranking([summary("a", 0.1, 0.2), summary("b", 0.2, 0.3), summary("c", 0.3, 0.9)])
    assert alike is not None and alike["rank_correlation"] == 1.0
    other = ranking([summary("a", 0.1, 0.3), summary("b", 0.2, 0.2), summary("c", 0.3, 0.1)])
    assert other is not None and other["rank_correlation"] == -1.0
    assert ranking([summary("a", 0.1, 0.2), summary("b", 0.2, 0.3)]) is None


def test_what_was_measured_takes_the_place_of_devices_and_network(tmp_path: Path) -> None:
    scenario = load_scenario("dpsgd_asynchronous", ("network.membership.kind=swim",))
    contents = calibrated(scenario, Calibration(0.0123, [0.0001, 0.0003, 0.0002], 2e9, 0.0005))
    file = tmp_path / "calibrated.toml"
    file.write_text(tomli_w.dumps(contents))
    stated = tomllib.loads(file.read_text())
    assert stated["devices"] == {"step_time": "12.3 ms"}
    assert stated["network"]["latency"] == "0.7 ms"
    assert stated["network"]["uplink"] == stated["network"]["downlink"] == "2e+03 Mbit/s"
    again = load_scenario(file)
    assert again.network.membership.kind == "swim"
    assert again.protocol == scenario.protocol


@pytest.mark.slow
def test_a_machine_is_measured() -> None:
    found = calibrate(load_scenario("gossip", SMALL), None, 2)
    assert 0 < found.step_time_s < 1
    assert all(0 < each < 1 for each in found.latency_s)
    assert found.bandwidth_bps > 1e6
