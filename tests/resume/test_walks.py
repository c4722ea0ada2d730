"""A walk through the log of a run's reads gives the same run, and computes nothing."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import tomli_w

from sim.files.journal import Journal, frames
from sim.learning.engine.graph.operations import Mix, Operation
from sim.learning.engine.replay_log import ReplayedReadLog
from sim.results.store.output_dir import READS
from sim.results.store.run_directory import RunDirectory
from sim.run.local_baseline import record_final_metrics
from sim.run.options import RunOptions
from sim.run.resume.explain import replaying
from sim.run.running import RunResult, run_scenario
from sim.scenario.scenario import load_scenario
from tests.fuzz.worlds import SHORT, short
from tests.simulation.worlds import write

FEW = ["quickstart", "l2c_synthetic"]


def ran(folder: Path, name: str, *overrides: str) -> RunResult:
    """The short form of a shipped scenario."""
    table = short(name)
    table["run"]["compare_alone"] = False  # which is no part of a walk
    file = write(folder, tomli_w.dumps(table), f"{name}.toml")
    return run_scenario(load_scenario(file, overrides), RunOptions(out=folder / "runs", device="cpu"))


def computes(operation: Operation, nodes: object) -> None:
    raise AssertionError(f"{operation.subject} is computed")


def require_same_walk(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result.directory is not None
    directory = RunDirectory.load(result.directory)
    for kind in operations(Operation):
        if "run" in vars(kind):
            monkeypatch.setattr(kind, "run", computes)
    scenario = load_scenario(result.directory / "scenario.toml")
    with replaying(scenario, directory, device="cpu") as simulation:
        simulation.run()
        record_final_metrics(simulation, None)
        assert simulation.trace.hash() == result.summary["trace_hash"]
        assert same(simulation.observer.metrics.to_table(), directory, "metrics")
        assert same(simulation.observer.metrics.graph_table(), directory, "graph")
        assert isinstance(simulation.engine.read_log, ReplayedReadLog) and simulation.engine.read_log.ended
        assert {pool.data.device.type for pool in simulation.engine.pools.values()} == {"meta"}
    monkeypatch.undo()


def same(table: pa.Table, directory: RunDirectory, name: str) -> bool:
    """With nan equal to nan."""
    there = directory.scan(name).collect()
    return there.equals(pl.DataFrame(table, schema=there.schema))


def operations(kind: Any) -> list[Any]:
    """This kind of operation, and all that are made of it."""
    return [kind, *[each for below in kind.__subclasses__() for each in operations(below)]]


@pytest.mark.parametrize("name", FEW)
def test_a_walk_is_the_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Mix in operations(Operation)
    require_same_walk(ran(tmp_path, name), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHORT if name not in FEW])
def test_a_walk_of_every_scenario_is_the_run(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_same_walk(ran(tmp_path, name), monkeypatch)


def test_a_log_is_read_up_to_its_last_whole_frame(tmp_path: Path) -> None:
    file = tmp_path / READS
    journal = Journal(file)
    written = [b"one", b"2", b"three" * 100]
    sizes = [0]
    for frame in written:
        journal.append(frame)
        sizes.append(journal.size)
    journal.close()
    whole = file.read_bytes()
    assert list(frames(file)) == written
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert list(frames(file)) == written[: sum(end <= size for end in sizes[1:])]
    with file.open("wb") as opened:  # as long as a disk, all of it zeros behind the second
        opened.write(whole[: sizes[2]])
        opened.truncate(1 << 40)
    assert list(frames(file)) == written[:2]
    for place in (0, 5, sizes[2] + 9, len(whole) - 1):  # what one bit does to it and to all that follows
        spoiled = bytearray(whole)
        spoiled[place] ^= 4
        file.write_bytes(spoiled)
        assert list(frames(file)) == written[: sum(end <= place for end in sizes[1:])]


def test_a_log_goes_on_from_another(tmp_path: Path) -> None:
    old = Journal(tmp_path / "old")
    old.append(b"one")
    size = old.size
    old.append(b"two")
    new = Journal.continued(tmp_path / "new", tmp_path / "old", size)
    new.append(b"three")
    assert list(frames(tmp_path / "new")) == [b"one", b"three"]
    assert list(frames(tmp_path / "old", size)) == [b"one"]


def test_a_journal_that_goes_on_from_nothing_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"")
    journal = Journal.continued(tmp_path / "new", tmp_path / "before", 0)
    journal.append(b"first")
    journal.close()
    assert list(frames(tmp_path / "new")) == [b"first"]
