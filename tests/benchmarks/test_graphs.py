"""What is said of the graphs of a sweep's runs is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import graphs
from sim.results.view import RunView
from sim.studies.cells import plan
from sim.studies.study import load_study
from sim.studies.sweep import run_sweep
from tests.studies.conftest import here
from tests.studies.worlds import STUDY

SWEEP = (
    STUDY[: STUDY.index("[sweep]")]
    .replace("count = 4", "count = 6")
    .replace('name = "local"', 'name = "cobo"\nmode = "asynchronous"')
    .replace('duration = "4 s"', 'duration = "5 s"')
    .replace('step_time = "100 ms"', 'step_time = "20 ms"')
    + '[[churn]]\nat = "4 s"\nevent = "crash"\nclients = [2]\n\n[sweep]\nseeds = 2\n'
)


def test_rows_that_are_shared_out_as_the_true_ones_have_no_distance() -> None:
    clusters = [0, 0, 0, 1, 1]
    inside = {(i, j): 0.25 for i in range(5) for j in range(5) if i != j and clusters[i] == clusters[j]}
    assert graphs.row_distance(inside, clusters, range(5)) == pytest.approx(0.0)
    # All of client 0's weight is on the other cluster, 2 off; all other rows are right.
    wrong = {pair: weight for pair, weight in inside.items() if pair[0] != 0} | {(0, 3): 1.0}
    assert graphs.row_distance(wrong, clusters, range(5)) == pytest.approx(2 / 5)
    # Client 0 is gone; half of client 1's weight is on client 3.
    half = inside | {(1, 3): 0.25}
    assert graphs.row_distance(half, clusters, [1, 2, 3, 4]) == pytest.approx(1.0 / 4)


def matrix(view: RunView, time_s: float) -> np.ndarray:
    """The learned weights at a time, all in one table."""
    times = view.snapshot_times(1_000_000)
    found = np.zeros((len(view.clients), len(view.clients)))
    source, target, weight = view.snapshot(times[times <= time_s][-1])
    found[source, target] = weight
    return found


def distance(weights: np.ndarray, clusters: np.ndarray) -> float:
    """The l1 of rows, written once more."""
    rows = []
    for number, row in enumerate(weights):
        truth = (clusters == clusters[number]).astype(float)
        truth[number] = 0
        rows.append(np.abs(row / max(row.sum(), 1e-12) - truth / truth.sum()).sum())
    return float(np.mean(rows))


def test_the_table_has_what_the_runs_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "graphs.toml"
    file.write_text(SWEEP)
    result = run_sweep(plan(file), out=tmp_path / "runs", execute=here)
    runs = load_study([result.directory]).runs
    views: list[RunView] = [run.view for run in runs]
    monkeypatch.setattr("sys.argv", ["graphs", str(result.directory), "--round", "10"])
    graphs.main()
    [row] = capsys.readouterr().out.splitlines()[2:]
    precision, recall, l1, early_precision, early_l1, gone = [c.strip() for c in row.strip("|").split("|")]
    for key, shown in (("edge_precision", precision), ("edge_recall", recall)):
        assert shown == " / ".join(f"{view.get('graph', key):.2f}" for view in views)
    up = [0, 1, 3, 4, 5]
    rounds = views[0].panel("iterations")
    assert rounds is not None
    there = rounds.times[np.nanmean(rounds.values, axis=1) >= 10][0]
    assert graphs.time_of_round(views[0], 10) == there > 0
    for place, view in enumerate(views):
        last, early = matrix(view, view.end_s), matrix(view, graphs.time_of_round(view, 10))
        assert l1.split(" / ")[place] == f"{distance(last[np.ix_(up, up)], view.clusters[up]):.2f}"
        assert early_l1.split(" / ")[place] == f"{distance(early, view.clusters):.2f}"
        edges = early > view.get("graph", "edge_threshold")
        right = (edges & (view.clusters[:, None] == view.clusters)).sum() / edges.sum()
        assert early_precision.split(" / ")[place] == f"{right:.2f}"
        assert gone.split(" / ")[place] == f"{last[:, 2].sum():.2f}"
