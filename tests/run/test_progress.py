"""How far a run is: what is shown meanwhile, and that showing it changes nothing."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.lives import ClientLife
from sim.core.simulation import Simulation
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.save.progress import ALONE, RUNNING, WRITING, Progress
from sim.run.save.watcher import RemainingTimeEstimate
from tests.simulation.worlds import DIGITS, QUADRATIC, load, run

BY_ITERATIONS = QUADRATIC.replace('duration = "10 s"', "iterations = 40")


def watched(folder: Path, text: str, *overrides: str) -> tuple[list[Progress], dict[str, object]]:
    """What was shown of a run, and its summary."""
    shown: list[Progress] = []
    result = run_scenario(
        load(folder, text, *overrides),
        RunOptions(out=folder / "watched", device="cpu", progress=shown.append),
    )
    return shown, result.summary


@pytest.mark.parametrize("text", [QUADRATIC, DIGITS, BY_ITERATIONS])
def test_watching_changes_nothing(tmp_path: Path, text: str) -> None:
    shown, summary = watched(tmp_path, text, "run.shuffle_ties=true")
    assert len(shown) > 50
    unseen = run(tmp_path, text, "run.shuffle_ties=true").summary
    assert summary["trace_hash"] == unseen["trace_hash"]
    assert summary["virtual_seconds"] == unseen["virtual_seconds"]


def test_a_run_by_its_duration(tmp_path: Path) -> None:
    shown, _ = watched(tmp_path, DIGITS)
    running = [progress for progress in shown if progress.phase == RUNNING]
    assert [running[0].virtual_s, running[0].duration_s, running[0].shares] == [0.0, 4.0, (0.0, None, None)]
    steps = [later.virtual_s - before.virtual_s for before, later in pairwise(running)]
    assert 0 < min(steps) <= max(steps) <= 4.0 / 200 + 1e-9
    assert running[-1].virtual_s > 3.9
    assert {(progress.iterations, progress.last_iteration) for progress in running} == {(None, None)}
    assert running[0].reached is None
    assert 0 < running[-1].reached < 1
    assert (running[-1].clients_up, running[-1].diverged) == (6, 0)
    assert running[-1].messages > 30


def test_looks_ask_no_client_for_what_a_run_by_its_duration_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def up(simulation: Simulation) -> list[ClientLife]:
        asked.append("up")
        return [client for client in simulation.clients if client.up]

    def least(simulation: Simulation) -> None:
        asked.append("iterations")

    monkeypatch.setattr(Simulation, "clients_up", property(up))
    monkeypatch.setattr(Simulation, "least_iterations", property(least))
    shown, _ = watched(tmp_path, DIGITS)
    assert len(shown) > 200
    assert "iterations" not in asked
    assert len(asked) < 20, "for the summary, whatever the number of looks"


def test_clients_that_are_up_are_counted_through_every_coming_and_going(tmp_path: Path) -> None:
    moves = [("1 s", "leave", 0), ("2 s", "crash", 1), ("3 s", "rejoin", 0), ("4 s", "rejoin", 1)]
    churn = [{"at": at, "event": event, "clients": [client]} for at, event, client in moves]
    churn.append({"at": "5 s", "event": "crash", "clients": [0, 1, 2]})
    listed = ", ".join(f"{{at='{c['at']}', event='{c['event']}', clients={c['clients']}}}" for c in churn)
    shown, summary = watched(tmp_path, QUADRATIC, f"churn=[{listed}]")
    counted = {progress.clients_up for progress in shown if progress.virtual_s % 1 > 0.01}
    assert counted == {6, 5, 4, 3}
    assert shown[-1].clients_up == summary["clients"]["alive"] == 3  # type: ignore[index]


def test_fewer_looks_where_each_asks_many_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = watched(tmp_path, DIGITS, "run.iterations=1000")
    monkeypatch.setattr("sim.run.save.watcher._ASKED_MAX", 6 * 20)
    fewer, _ = watched(tmp_path, DIGITS, "run.iterations=1000")
    assert len(fewer) < len(few) / 2


def test_what_is_shown_is_what_clients_are_judged_by(tmp_path: Path) -> None:
    shown, summary = watched(tmp_path, QUADRATIC)
    assert shown[-1].measure.name == "distance"
    assert shown[-1].reached == pytest.approx(summary["distance"]["mean"])  # type: ignore[index]


def test_a_run_by_iterations_shows_those_that_everybody_has_done(tmp_path: Path) -> None:
    shown, _ = watched(tmp_path, BY_ITERATIONS, "devices.override=[{clients=[2], slowdown=2}]")
    running = [progress for progress in shown if progress.phase == RUNNING]
    assert len(running) > 50, "not only at evaluations"
    for progress in running:
        assert progress.iterations == progress.virtual_s // 0.25, "of the slowest"
        assert (progress.last_iteration, progress.duration_s) == (40, None)
        assert progress.shares == (None, progress.iterations / 40, None)
    assert shown[-1].iterations == 40


def test_a_run_by_a_budget_shows_how_much_everybody_has_spent(tmp_path: Path) -> None:
    by_budget = QUADRATIC.replace('duration = "10 s"', "budget = { steps = 40 }")
    shown, _ = watched(tmp_path, by_budget, "devices.override=[{clients=[2], slowdown=2}]")
    running = [progress for progress in shown if progress.phase == RUNNING]
    assert len(running) > 50
    for progress in running:
        assert progress.budget_spent == progress.virtual_s // 0.25 / 40, "by the slowest"
        assert progress.shares == (None, None, progress.budget_spent)
    assert (shown[-1].budget_spent, shown[-1].virtual_s) == (1.0, 10.0)


def test_what_follows_the_simulation_is_shown_too(tmp_path: Path) -> None:
    shown, _ = watched(tmp_path, QUADRATIC, "run.compare_alone=true")
    assert [progress.phase for progress in shown[-3:]] == [RUNNING, ALONE, WRITING]
    assert all(progress.remaining_s is None for progress in shown[-2:])
    assert [progress.phase for progress in watched(tmp_path, QUADRATIC)[0][-2:]] == [RUNNING, WRITING]


def test_models_that_are_not_finite_are_shown(tmp_path: Path) -> None:
    shown, _ = watched(tmp_path, QUADRATIC, "training.learning_rate=1e6")
    assert (shown[0].diverged, shown[-1].diverged) == (0, 6)


def test_the_rest_takes_as_long_as_of_late() -> None:
    pace = RemainingTimeEstimate()
    assert pace.remaining_s(5.0, 0.0) is None, "after the start"
    assert pace.remaining_s(5.5, 0.1) is None, "too short to say"
    assert pace.remaining_s(10.0, 0.25) == pytest.approx(15.0)
    # From 10 s on it is a tenth as fast: after a minute nothing else counts.
    for second in range(11, 75):
        remaining_s = pace.remaining_s(float(second), 0.25 + (second - 10) * 0.005)
    assert remaining_s == pytest.approx((1 - 0.57) / 0.005)


def test_the_rest_of_a_sweep_takes_as_long_as_all_its_runs_so_far() -> None:
    pace = RemainingTimeEstimate(math.inf)
    assert pace.remaining_s(0.0, 0.0) is None
    assert pace.remaining_s(100.0, 0.2) == pytest.approx(400.0)
    # A run whose virtual time hardly passes for three minutes, then ends.
    assert pace.remaining_s(280.0, 0.201) == pytest.approx(280.0 * 0.799 / 0.201)
    assert pace.remaining_s(300.0, 0.4) == pytest.approx(450.0)


def test_no_estimate_where_nothing_happens() -> None:
    pace = RemainingTimeEstimate()
    assert [pace.remaining_s(float(second), 0.5) for second in range(100)] == [None] * 100
    assert pace.remaining_s(100.0, 0.4) is None, "a newcomer has fewer iterations"
    assert pace.remaining_s(101.0, 0.5000001) is None, "weeks, by what two minutes show"
    assert pace.remaining_s(102.0, 1.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1)), min_size=1, max_size=50))
def test_an_estimate_is_neither_negative_nor_absurd(looks: list[tuple[float, float]]) -> None:
    pace, elapsed_s = RemainingTimeEstimate(), 0.0
    for later_s, share in looks:
        elapsed_s += later_s
        remaining_s = pace.remaining_s(elapsed_s, share)
        assert remaining_s is None or 0 <= remaining_s <= 1_000 * elapsed_s
