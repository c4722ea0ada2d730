"""Curves and figures of a run in Python, runs that are not repeated, and code that is rejected."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import coterie
from coterie import UserError
from sim.results.report.curves import measure_curve, observation_curve, progress_over_time
from sim.results.view import RunView
from tests.front.test_runs import CONTENTS, Halves
from tests.results.report.plotly_classes import as_plotly
from tests.simulation.worlds import DIGITS, QUADRATIC, write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> coterie.Run:
    out = tmp_path_factory.mktemp("runs")
    return coterie.run(CONTENTS, protocol=Halves, quiet=True, out=out, set={"run.evaluate_every": "2 s"})


def test_a_curve_has_the_mean_and_the_quantiles_of_the_clients(a_run: coterie.Run) -> None:
    curve = a_run.curve()
    assert curve.columns == ["time", "mean", "low", "high"] and curve["time"].to_list() == [0, 2, 4, 6, 8]
    for time_s, mean, low, high in curve.rows():
        values = a_run.metrics.filter(name="distance", time=time_s)["value"].to_numpy()
        assert len(values) == 4
        np.testing.assert_allclose([mean, low, high], [values.mean(), *np.percentile(values, [10, 90])])
    assert_frame_equal(a_run.curve("distance"), curve)
    sent = a_run.curve("steps_taken")
    assert sent["mean"].to_list() == a_run.metrics.filter(name="steps_taken")["value"].to_list()
    with pytest.raises(UserError, match="must be one of the run's metrics: distance, iterations"):
        a_run.curve("accuracy")
    with pytest.raises(UserError, match="metric = 3: must be a string"):
        a_run.curve(3)  # type: ignore[arg-type]


def test_values_that_are_not_finite_are_left_out(a_run: coterie.Run) -> None:
    other = coterie.load(a_run.directory)
    value = pl.when((pl.col("actor") == "client-1") & (pl.col("time") == 4)).then(np.nan).otherwise("value")
    other.metrics = a_run.metrics.with_columns(value=value)  # type: ignore[misc]
    at = pl.col("time") == 4
    rest = a_run.metrics.filter(at, pl.col("actor") != "client-1", name="distance")["value"]
    assert other.curve().filter(at)["mean"].item() == pytest.approx(rest.mean())


def test_a_plot_is_the_figure_of_the_report(a_run: coterie.Run) -> None:
    view = RunView(coterie.load(a_run.directory)._results)
    assert a_run.plot().to_json() == as_plotly(progress_over_time(view)).to_json()
    assert a_run.plot("distance").to_json() == a_run.plot().to_json()
    panel = view.panel("iterations")
    assert panel is not None
    expected = as_plotly(observation_curve(view, "iterations", "clients", panel))
    assert a_run.plot("iterations").to_json() == expected.to_json()
    with pytest.raises(UserError, match="'flops': has no values of clients or servers"):
        a_run.plot("flops")


def test_other_measures_are_drawn_as_in_the_report(here: Path) -> None:
    run = coterie.run(write(here, DIGITS), quiet=True)
    [(measure, panel)] = [each for each in run._view.others if each[0].name == "loss"]
    assert run.plot("loss").to_json() == as_plotly(measure_curve(run._view, measure, panel)).to_json()
    assert run.plot("accuracy").layout.height != run.plot("loss").layout.height


@pytest.mark.long
def test_finished_results_are_reused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(**more: object) -> coterie.Run:
        return coterie.run(CONTENTS, quiet=True, reuse=True, **more)  # type: ignore[arg-type]

    first, other = again(), again(seed=5)
    assert first.directory != other.directory
    assert again().directory == first.directory and again(device="cpu").directory == first.directory
    assert again(set={"run.duration": "9 s"}).directory != first.directory
    assert again(protocol=Halves).directory == again(protocol=Halves).directory != first.directory
    assert coterie.run(CONTENTS, quiet=True).directory.name == f"{first.directory.name}-2"

    summary = json.loads((first.directory / "summary.json").read_text(encoding="utf-8"))
    (first.directory / "summary.json").write_text(json.dumps(summary | {"finished": False}), encoding="utf-8")
    assert again().directory.name == f"{first.directory.name}-2"  # damaged results are not returned
    monkeypatch.setattr("coterie.reuse.package_version", lambda package: "99.0")
    assert again().directory.name == f"{first.directory.name}-3"


def test_code_is_rejected_as_on_the_command_line(here: Path) -> None:
    write(
        here,
        "from protocols import Client\n"
        "class Mine(Client):\n    async def step(self):\n        await self.sleep(1)\n",
        "mine.py",
    )
    write(here, QUADRATIC)
    own = {"protocol.name": "mine.py:Mine"}
    with pytest.raises(UserError, match="--no-code"):
        coterie.run("world.toml", set=own, no_code=True, quiet=True)
    with pytest.raises(UserError, match="no_code = True: protocol = Halves is code"):
        coterie.run("world.toml", protocol=Halves, no_code=True, quiet=True)
    with pytest.raises(UserError, match="no_code = 'yes': must be True or False"):
        coterie.run("world.toml", no_code="yes", quiet=True)  # type: ignore[arg-type]
    contents = {**CONTENTS, "protocol": {"name": "mine.py:Mine"}}
    with pytest.raises(UserError, match="--no-code"):
        coterie.run(contents, no_code=True, quiet=True)
    mine = coterie.run("world.toml", set=own, quiet=True)
    with pytest.raises(UserError, match="--no-code"):
        coterie.resume(mine, until="12 s", no_code=True, quiet=True)
    with pytest.raises(UserError, match="--no-code"):
        coterie.fork(mine, 5, {}, no_code=True, quiet=True)
    assert coterie.run(CONTENTS, no_code=True, quiet=True).summary["finished"]
