"""Full collections of garbage: one for many small runs of a process, and no run's models stay for long."""

import gc
import weakref
from pathlib import Path

import pytest

from sim.core import process
from sim.core.process import simulating
from sim.core.simulation import Simulation
from tests.simulation.worlds import QUADRATIC, simulation


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generations that are collected in full, from a process that has not run anything yet."""
    found: list[int] = []
    collect = gc.collect

    def counted(generation: int = 2) -> int:
        found.append(generation)
        return collect(generation)

    monkeypatch.setattr(process, "_finished", process._MemoryOfFinishedRuns())
    monkeypatch.setattr("sim.core.simulation.run_finished", lambda held: process._finished.add(held))
    monkeypatch.setattr(gc, "collect", counted)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)  # which collects garbage between tests
    return found


def run_once(folder: Path) -> weakref.ref[Simulation]:
    with simulating(), simulation(folder, QUADRATIC, "run.duration=1 s", "run.evaluate_every=1 s") as built:
        built.run()
        return weakref.ref(built)


def test_small_runs_share_a_full_collection(tmp_path: Path, collections: list[int]) -> None:
    for _ in range(5):
        run_once(tmp_path)
    assert collections == [2]


def test_runs_that_held_much_are_collected_before_the_next(
    tmp_path: Path, collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_once(tmp_path)
    assert first() is not None, "the parts of a simulation refer to each other"
    monkeypatch.setattr(process, "_FINISHED_BYTES_MAX", 1)
    run_once(tmp_path)
    assert collections == [2, 2]
    assert first() is None


def test_the_number_of_finished_runs_is_limited(collections: list[int]) -> None:
    for _ in range(40):
        with simulating():
            process._finished.add(0)
    assert collections == [2] * 3
