"""When a client's budget was spent is marked, and its rate of steps is of the time until then."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.results.report.curves import progress_over_time
from sim.results.report.one_client import client_measure_curves
from sim.results.report.page import write_report
from sim.results.report.tables import clients_table
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from tests.protocols.worlds import QUADRATIC, churn, loaded, ran
from tests.results.report.plotly_classes import as_plotly
from tests.results.synthetic import END_S, write_run

SPENT: list[float | None] = [None, 150.0, 60.0, None, 420.0, *[240.0] * 7]


def spent(folder: Path, **parts: Any) -> RunDirectory:
    run = write_run(folder, evaluations=5, steps=20, **parts)
    run.write_summary({**run.summary(), "budget": {"steps": 20, "finished": 10, "spent_seconds": SPENT}})
    return run


def test_a_run_says_when_each_budget_was_spent() -> None:
    from sim.run.summary import summarise

    options = ("run.budget.steps=5", "devices.override=[{clients=[2], slowdown=4}]", "run.duration=30 s")
    moves = churn("crash", 1, "2 s") + churn("crash", 3, "4 s") + churn("rejoin", 3, "6 s", "fresh")
    with ran(QUADRATIC + moves, *options) as world:
        found = summarise(loaded(QUADRATIC + moves, *options), world, None, 0.0, False)
        # Client 3 comes back with nothing left: its budget was spent in its first life.
        assert found["budget"] == {"steps": 5, "finished": 3, "spent_seconds": [2.5, None, 10.0, 2.5]}
        page = (Path(__file__).parents[3] / "docs" / "results.md").read_text(encoding="utf-8")
        assert [key for key in found if f"`{key}`" not in page] == [], "not in docs/results.md"
        assert found["samples"] == [client.compute.samples for client in world.clients]


def test_the_first_and_the_last_are_marked_in_the_curve_of_all(tmp_path: Path) -> None:
    run = spent(tmp_path, churn=False)
    figure = as_plotly(progress_over_time(RunView(run)))
    assert figure is not None
    marks = {note.hovertext: note.x for note in figure.layout.annotations}
    assert len(marks) == 2
    [first] = [at for text, at in marks.items() if text.startswith("client-2") and "first" in text]
    [last] = [at for text, at in marks.items() if text.startswith("client-4") and "last" in text]
    assert (first, last) == (1.0, 7.0)
    page = write_report(run).read_text(encoding="utf-8")
    assert "exhausted their budgets. A client with an exhausted budget only merges" in page
    other = write_report(write_run(tmp_path / "other", evaluations=5, steps=20)).read_text(encoding="utf-8")
    assert "exhausted their budgets" not in other


def test_one_client_is_marked_on_its_own_curve(tmp_path: Path) -> None:
    view = RunView(spent(tmp_path, churn=False))
    figure = as_plotly(client_measure_curves(view))
    assert figure is not None and view.measure is not None
    marks = {
        trace.meta: trace for trace in figure.data if (trace.name or "").startswith("budget exhausted at")
    }
    assert set(marks) == {name for name, at_s in zip(view.clients, SPENT, strict=True) if at_s is not None}
    mark = marks["client-1"]
    assert mark.x[0] == 150 / 60 and mark.y[0] == view.measure[1].values[1, 1]
    assert re.fullmatch(r"budget exhausted at 2\Wmin\W30\Ws", mark.name)


@pytest.mark.parametrize("moves", [True, False])
def test_steps_per_second_are_of_the_time_until_then(tmp_path: Path, moves: bool) -> None:
    view = RunView(spent(tmp_path, churn=moves))
    table = clients_table(view)
    column = table.heads.index("steps/s")
    rates = {str(row[0]): row[column].value for row in table.rows}  # type: ignore[union-attr]
    steps = view.last("training_steps")
    assert steps is not None
    until = [END_S if at_s is None else at_s for at_s in SPENT]
    if moves:  # client 0 was away for three minutes, and client 11 came after two
        until[0], until[11] = END_S - 180.0, 120.0
    np.testing.assert_allclose([rates[name] for name in view.clients], steps / until)
