"""Statistics over the clients of all runs, against brute force, scipy and the results of each client."""

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.studies.cells import Plan, plan
from sim.studies.comparison import Comparison
from sim.studies.latex import robust_latex
from sim.studies.pages import write_comparison
from sim.studies.pictures import _profile
from sim.studies.statistics import trimmed_mean
from sim.studies.study import load_study
from sim.studies.sweep import SweepResult, run_sweep
from sim.studies.tables import over_clients_table
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

STUDIES = (Path(__file__).parents[2] / "docs/how-to/studies.md").read_text(encoding="utf-8")

Small = tuple[Plan, SweepResult]


def runs(*sizes: int) -> list[NDArray[np.float64]]:
    """Results of the clients of some runs."""
    rng = np.random.default_rng(sum(sizes))
    return [rng.normal(number, 1, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [(1,), (3,), (5, 5, 5), (7, 2, 4), (10, 10)])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.25])
def test_a_trimmed_mean_is_scipys(sizes: tuple[int, ...], share: float) -> None:
    found, values = trimmed_mean(runs(*sizes), share), np.concatenate(runs(*sizes))
    assert found.mean == pytest.approx(stats.trim_mean(values, share))
    assert found.runs == len(sizes) and math.isnan(found.low) == (len(sizes) == 1)


@pytest.mark.parametrize("sizes", [(4, 4), (4, 4, 4), (5, 1, 3), (2, 6, 3, 4)])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_an_interval_is_that_of_all_resamples(sizes: tuple[int, ...], share: float) -> None:
    drawn = itertools.product(runs(*sizes), repeat=len(sizes))
    means = [stats.trim_mean(np.concatenate(resample), share) for resample in drawn]
    found = trimmed_mean(runs(*sizes), share)
    assert (found.low, found.high) == pytest.approx(
        tuple(np.quantile(means, [0.025, 0.975], method="inverted_cdf"))
    )


def test_with_many_seeds_the_interval_is_that_of_scipys_bootstrap() -> None:
    rows = runs(*[8] * 15)

    def statistic(drawn: NDArray[np.int64]) -> float:
        return float(stats.trim_mean(np.concatenate([rows[run] for run in drawn]), 0.25))

    expected = stats.bootstrap(
        (np.arange(15),), statistic, method="percentile", n_resamples=2000, vectorized=False, rng=1
    ).confidence_interval
    found = trimmed_mean(rows, 0.25)
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.06 * width)


def test_values_that_are_unknown_do_not_count() -> None:
    known, unknown = np.array([1.0, 2.0, 4.0, 9.0]), np.array([math.nan, math.nan])
    found = trimmed_mean([np.append(known, math.nan), unknown], 0.25)
    assert found.mean == 3.0 and found.runs == 1 and math.isnan(found.high)
    assert trimmed_mean([unknown], 0.25).runs == trimmed_mean([], 0.25).runs == 0


def test_extreme_clients_do_not_move_it() -> None:
    worse = [np.array([-9.0, 0.6, 0.7, 0.8]), np.array([0.5, 0.6, 0.7, 9.0])]
    assert trimmed_mean(worse, 0.25) == pytest.approx((0.65, 0.65, 0.65, 2))


@pytest.fixture(scope="module")
def beside_alone(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """The small study with two losses, in which each client is also trained alone; gossip excludes one."""
    folder = tmp_path_factory.mktemp("alone")
    text = STUDY.replace("[clients]", "compare_alone = true\n\n[clients]", 1)
    text = text.replace('"protocol.period=500 ms"]\n', '"protocol.period=500 ms"]\nexcluded = [1]\n')
    return run_sweep(plan(study(folder, text), seeds=3), out=folder / "runs", execute=here)


@pytest.mark.long
def test_the_statistics_are_those_of_each_clients_results(beside_alone: SweepResult) -> None:
    comparison = Comparison(load_study([beside_alone.directory]))
    counted = {"alone": [0, 1, 2, 3], "gossip": [0, 2, 3]}
    for group in comparison.groups:
        clients = counted[str(group.values["method"])]
        ends = np.array([run.view.at_the_end for run in group.runs])
        found = comparison.line(group, "distance").robust
        assert found is not None and comparison.line(group, "distance.worst_decile").robust is None
        assert found.middle.mean == pytest.approx(stats.trim_mean(ends[:, clients], 0.25, axis=None))
        gains = {(run.seed, gain.client): gain.difference for run in group.runs for gain in run.view.gains}
        hurt = [gain < 0 for (_, client), gain in gains.items() if client in clients]
        for run in group.runs:
            own = {client: gain for (seed, client), gain in gains.items() if seed == run.seed}
            assert run.gains_over_alone("distance") == {client: own[client] for client in clients}
            assert run.gains_over_alone("messages.sent") == {}
        assert len(hurt) == 3 * len(clients) and found.hurt.mean == np.mean(hurt)
        if (other := comparison.baseline_of(group)) is None:
            assert found.improvement.runs == 0
            continue
        theirs = np.array([run.view.at_the_end for run in other.runs])[:, clients]
        ours = ends[:, clients]
        expected = np.mean(ours < theirs) + np.mean(ours == theirs) / 2  # smaller distances are better
        assert found.improvement.mean == pytest.approx(expected) and found.improvement.runs == 3


@pytest.mark.long
def test_table_page_latex_and_csv_agree(beside_alone: SweepResult, tmp_path: Path) -> None:
    comparison = Comparison(load_study([beside_alone.directory]), metrics=["distance", "messages.sent"])
    shown = over_clients_table(comparison)
    assert shown is not None and shown.heads == [
        "distance to the local optimum, IQM",
        "better than baseline [%]",
        "worse than alone [%]",
    ]
    page = write_comparison(comparison, tmp_path).read_text(encoding="utf-8")
    tex = (tmp_path / "robust.tex").read_text(encoding="utf-8")
    command = ["compare", str(beside_alone.directory), "--metric", "distance", "--out", str(tmp_path / "two")]
    said = CliRunner().invoke(app, command).stdout
    with (tmp_path / "table.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "distance"]
    assert shown.note in page and shown.note in said and shown.note in tex and tex == robust_latex(comparison)
    for cells, row in zip(shown.rows, rows, strict=True):
        assert cells[:2] == [row["method"], row["network.loss"]]
        for cell, name, scale in zip(cells[2:], ("iqm", "improvement", "hurt"), (1, 100, 100), strict=True):
            assert f"<td>{cell}</td>" in page and cell in said
            assert cell.replace("\N{EN DASH}", "--").replace("\N{PLUS-MINUS SIGN}", r"$\pm$") in tex
            mean = "" if row[name] == "" else f"{scale * float(row[name]):.{3 if scale == 1 else 4}g}"
            assert not mean or float(cell.split()[0]) == pytest.approx(float(mean), abs=0.05)
            assert (row[name] == "") == (cell == "\N{EN DASH}")


def test_a_profile_has_the_share_of_clients_that_reach_each_result(beside_alone: SweepResult) -> None:
    comparison = Comparison(load_study([beside_alone.directory]))
    figure = _profile(comparison)
    assert figure is not None and _profile(Comparison(comparison.study, metrics=["messages.sent"])) is None
    drawn = {ax.get_title(): {line.get_label(): line for line in ax.lines} for ax in figure.axes}
    for group in comparison.groups:
        line = drawn[f"lost messages = {group.values['network.loss']}"][group.values["method"]]
        ends = np.concatenate([run.finals("distance") for run in group.runs])
        expected = [
            100 * np.mean(ends <= result) for result in line.get_xdata()
        ]  # smaller distances are better
        assert line.get_ydata() == pytest.approx(expected)


def test_metrics_that_are_not_of_clients_have_none(small: Small, tmp_path: Path) -> None:
    comparison = Comparison(load_study([small[1].directory]), metrics=["messages.sent"])
    assert over_clients_table(comparison) is None
    write_comparison(comparison, tmp_path)
    assert not (tmp_path / "robust.tex").exists()
    whole = Comparison(load_study([small[1].directory]))
    shown = over_clients_table(whole)
    assert shown is not None and "worse than alone [%]" not in shown.heads  # no run measured it


def test_without_common_seeds_nobody_is_compared_with_the_baseline(small: Small) -> None:
    comparison = Comparison(load_study([small[1].directory]))
    group = next(group for group in comparison.groups if comparison.baseline_of(group) is not None)
    other = comparison.baseline_of(group)
    assert other is not None
    for run in other.runs:
        run.view.summary["seed"] += 100
    comparison.__dict__.pop("lines", None)
    found = comparison.line(group, "distance").robust
    assert found is not None and found.improvement.runs == 0 and found.middle.runs == 2


def test_with_three_seeds_an_interval_is_the_range_of_the_runs() -> None:
    """It misses the mean of a symmetric distribution if all three are on one side: 2 times in 8."""
    runs = [np.array([value]) for value in (0.2, 0.7, 0.4)]
    found = trimmed_mean(runs, 0.0)
    assert (found.low, found.high) == pytest.approx((0.2, 0.7))


@pytest.mark.slow
@pytest.mark.parametrize("seeds, stated", [(3, 0.75), (5, 0.84), (10, 0.90)])
def test_intervals_contain_the_true_value_as_often_as_the_page_states(seeds: int, stated: float) -> None:
    draws, inside, count = np.random.default_rng(1), 0, 4000
    for values in draws.normal(size=(count, seeds, 1)):
        found = trimmed_mean(list(values), 0.0)
        inside += found.low <= 0 <= found.high
    assert inside / count == pytest.approx(stated, abs=0.015)
    assert f"{stated:.0%}".replace("%", " %") in STUDIES
