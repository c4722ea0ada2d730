"""Comparisons: that tables and pictures say what the runs' directories say."""

import csv
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.errors import UserError
from sim.results.kaplan_meier import CensoredTimes
from sim.results.store.run_directory import RunDirectory
from sim.results.text import without_formula
from sim.studies.answer import answer
from sim.studies.cells import Plan, plan
from sim.studies.comparison import TIMES, Comparison, missing_run_lines
from sim.studies.groups import TargetCost
from sim.studies.index import INDEX
from sim.studies.latex import latex
from sim.studies.page_data import study_page_content
from sim.studies.pages import write_comparison
from sim.studies.pictures import write_pictures
from sim.studies.statistics import estimate
from sim.studies.study import CATCH_UP, StudiedRun, Study, direction, load_study
from sim.studies.sweep import SweepResult, run_sweep
from sim.studies.tables import (
    caption,
    cost_text,
    csv_frames,
    tables_to_show,
    target_cost_text,
    value_text,
    write_csv,
)
from tests.results.synthetic import as_if_written
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

Small = tuple[Plan, SweepResult]


@pytest.fixture(scope="module")
def comparison(small: Small) -> Comparison:
    return Comparison(load_study([small[1].directory]), target=1.2)


def runs_of(result: SweepResult) -> list[tuple[dict, RunDirectory]]:
    """Cells of a sweep, with their directories, read by themselves."""
    cells = json.loads((result.directory / INDEX).read_text())["cells"]
    return [(cell, RunDirectory.load(result.directory.parent / cell["directory"])) for cell in cells]


def finals(result: SweepResult, method: str, loss: float) -> list[float]:
    values = {"method": method, "network.loss": loss}
    return [run.summary()["distance"]["mean"] for cell, run in runs_of(result) if cell["values"] == values]


def test_means_and_intervals_are_those_of_the_summaries(small: Small, comparison: Comparison) -> None:
    assert comparison.metrics == ("distance", "distance.worst_decile") and comparison.by == "network.loss"
    for line in comparison.lines:
        if line.metric == "distance":
            found = finals(small[1], *line.group.values.values())
            low, high = stats.t.interval(0.95, 1, loc=np.mean(found), scale=stats.sem(found))
            expected = (np.mean(found), low, high)
            assert (line.estimate.mean, line.estimate.low, line.estimate.high) == pytest.approx(expected)


def test_differences_are_paired_and_corrected_for_all_of_the_table(
    small: Small, comparison: Comparison
) -> None:
    """Against the first value of the first axis, at the same value of the other."""
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    compared = [line for line in comparison.lines if line.against is not None]
    assert {line.group.values["method"] for line in compared} == {"gossip"} and len(compared) == 4
    for line in compared:
        if line.metric == "distance":
            loss = line.group.values["network.loss"]
            ours, theirs = finals(small[1], "gossip", loss), finals(small[1], "alone", loss)
            assert line.against.paired
            assert line.against.p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    p = [line.against.p for line in compared]
    assert [line.p for line in compared] == pytest.approx(list(multitest.multipletests(p, method="holm")[1]))


def test_curves_have_common_times(small: Small, comparison: Comparison) -> None:
    times, curves = comparison.curves("distance")
    assert (times[0], times[-1], len(times), len(curves)) == (0.0, 4.0, TIMES, 4)
    group, mean, _ = curves[0]
    rows = []
    for run in group.runs:
        frame = RunDirectory.load(run.directory).scan("metrics").collect()
        frame = frame.filter((frame["name"] == "distance") & (frame["time"] <= 2.0))
        last = frame.filter(frame["time"] == frame["time"].max())
        rows.append(last["value"].mean())
    assert mean[TIMES // 2] == pytest.approx(np.mean(rows))


@pytest.mark.long
def test_curves_of_runs_of_different_lengths_end_where_their_runs_do(tmp_path: Path) -> None:
    shorter = STUDY.replace('"protocol.period=500 ms"', '"protocol.period=500 ms", "run.duration=2 s"')
    result = run_sweep(
        plan(study(tmp_path, shorter), ["network.loss=0"]), out=tmp_path / "runs", execute=here
    )
    times, curves = Comparison(load_study([result.directory])).curves("distance")
    assert times[-1] == 4.0
    known = {str(group.values["method"]): times[~np.isnan(mean)].max() for group, mean, _ in curves}
    assert known == {"alone": 4.0, "gossip": 2.0}


def test_what_a_target_takes_counts_those_that_never_reach_it(comparison: Comparison) -> None:
    assert {target.kind for target in comparison.targets} == {"seconds", "bytes", "steps", "FLOPs"}
    for target in comparison.targets:
        reached, spent = 0, []
        for run in target.group.runs:
            series, cost = run.curve("distance"), run.cost(target.kind)
            there = series.times[series.values <= 1.2]
            reached += bool(there.size)
            until = min([*there[:1], target.until])
            spent.append(cost.values[cost.times <= until][-1])
        assert target.count == reached and target.is_least == (reached < 2)
        assert target.spent.mean == pytest.approx(np.mean(spent))


def test_nobody_reaches_what_is_out_of_reach(small: Small) -> None:
    comparison = Comparison(load_study([small[1].directory]), target=1e-9)
    assert all(target.count == 0 and target.median_s is None for target in comparison.targets)
    assert all(target.spent.mean == 4.0 for target in comparison.targets if target.kind == "seconds")


def test_only_some_clients_may_count(small: Small) -> None:
    study = load_study([small[1].directory], clients=[1, 2])
    frame = RunDirectory.load(study.runs[0].directory).scan("metrics").collect()
    last = frame.filter((frame["name"] == "distance") & (frame["time"] == 4.0))
    of = dict(zip(last["actor"], last["value"], strict=True))
    expected = (of["client-1"] + of["client-2"]) / 2
    assert study.runs[0].number("distance") == pytest.approx(expected)
    with pytest.raises(UserError, match="no client 9; clients are 0 to 3"):
        load_study([small[1].directory], clients=[9]).runs[0].number("distance")


def test_who_is_struck_counts_on_neither_side(tmp_path: Path) -> None:
    text = STUDY.replace('"protocol.period=500 ms"]\n', '"protocol.period=500 ms"]\nexcluded = [1]\n')
    result = run_sweep(plan(study(tmp_path, text), ["network.loss=0"]), out=tmp_path / "runs", execute=here)
    comparison = Comparison(load_study([result.directory]), metrics=["distance"])
    alone, gossip = [[run.view.at_the_end for run in group.runs] for group in comparison.groups]
    others = [0, 2, 3]
    means = {line.group.values["method"]: line for line in comparison.lines}
    assert means["alone"].estimate.mean == pytest.approx(np.mean(alone))
    assert means["gossip"].estimate.mean == pytest.approx(np.mean([end[others] for end in gossip]))
    against = [
        ours[others].mean() - theirs[others].mean() for ours, theirs in zip(gossip, alone, strict=True)
    ]
    assert means["gossip"].against.difference.mean == pytest.approx(np.mean(against))
    assert "Clients excluded by a case count neither" in caption(comparison)
    budgets = {group.values["method"]: group.budget("steps") for group in comparison.groups}
    steps = [run.view.last("training_steps")[others].mean() for run in comparison.groups[1].runs]
    assert budgets["gossip"] == pytest.approx(np.mean(steps))
    # Of the clients that the sweep counts those that are not excluded; and nobody, where nobody is left.
    run = comparison.groups[1].runs[0]
    some = StudiedRun(run.directory, run.values, clients=(0, 1), excluded=(1,))
    assert some.number("distance") == pytest.approx(run.view.at_the_end[0])
    nobody = StudiedRun(run.directory, run.values, excluded=(0, 1, 2, 3))
    assert math.isnan(nobody.number("distance")) and nobody.curve("distance") is None
    worst = StudiedRun(run.directory, run.values, excluded=(1,)).number("distance.worst_decile")
    assert worst == pytest.approx(run.view.at_the_end[others].max())
    # Who names the clients that count means them.
    named = Comparison(load_study([result.directory], clients=[1]), metrics=["distance"])
    found = {line.group.values["method"]: line.estimate.mean for line in named.lines}
    assert found["gossip"] == pytest.approx(np.mean([end[1] for end in gossip]))
    assert "Clients that a case excludes" not in caption(named)


def test_a_baseline_that_was_not_run_is_told(tmp_path: Path) -> None:
    text = f'{STUDY}\n[sweep.compare]\nby = "method"\nbaseline = "method=alone"\n'
    planned = plan(study(tmp_path, text), only=["method=gossip"], seeds=1)
    result = run_sweep(planned, out=tmp_path / "runs", execute=here)
    comparison = Comparison(load_study([result.directory]))
    told = "no run has the sweep's baseline method=alone; the baseline is network.loss = 0"
    assert told in comparison.warnings and comparison.baseline_text == "lost messages = 0"


def test_a_baseline_that_an_axis_cannot_affect_counts_for_all_its_values(tmp_path: Path) -> None:
    text = STUDY.replace('name = "alone"\n', 'name = "alone"\nwithout = ["network.loss"]\n')
    text += '\n[sweep.compare]\nbaseline = "method=alone"\n'
    result = run_sweep(plan(study(tmp_path, text)), out=tmp_path / "runs", execute=here)
    comparison = Comparison(load_study([result.directory]), metrics=["distance"])
    assert [group.label for group in comparison.groups] == ["alone, 0", "gossip, 0", "gossip, 0.2"]
    alone, *others = comparison.groups
    assert comparison.baseline_of(alone) is None
    for group in others:
        line = comparison.line(group, "distance")
        assert comparison.baseline_of(group) is alone and line.against is not None and line.robust is not None
        ours, theirs = [[run.number("distance") for run in each.runs] for each in (group, alone)]
        assert line.against.difference.mean == pytest.approx(np.mean(np.subtract(ours, theirs)))
        assert line.against.paired and not math.isnan(line.robust.improvement.mean)
    assert "on average over the 2 values of" in answer(comparison)[0]
    assert "no results" not in " ".join(answer(comparison))
    by_loss = Comparison(load_study([result.directory]), metrics=["distance"], baseline="network.loss=0.2")
    assert [by_loss.baseline_of(group) for group in by_loss.groups] == [None, by_loss.groups[2], None]


def test_runs_that_are_named_differ_by_the_keys_of_their_scenarios(small: Small) -> None:
    study = load_study([run.path for _, run in runs_of(small[1])])
    assert study.axes == {"protocol": ("local", "gossip"), "network.loss.probability": (0.0, 0.2)}
    by_name = Comparison(study)
    assert [len(group.runs) for group in by_name.groups] == [2, 2, 2, 2]
    with pytest.raises(UserError, match="have the same settings and the same seed"):
        Comparison(load_study([study.runs[0].directory, study.runs[0].directory]))


def test_a_number_of_the_summary_is_a_metric(small: Small) -> None:
    comparison = Comparison(load_study([small[1].directory]), metrics=["messages.sent"])
    sent = [
        run.summary()["messages"]["sent"]
        for cell, run in runs_of(small[1])
        if cell["values"] == {"method": "gossip", "network.loss": 0}
    ]
    [line] = [each for each in comparison.lines if list(each.group.values.values()) == ["gossip", 0]]
    assert line.estimate.mean == np.mean(sent) and comparison.curves("messages.sent")[1] == []


@pytest.mark.parametrize(("kind", "warned"), [("samples", False), ("steps", True)])
def test_who_was_given_as_many_samples_may_make_other_steps_of_them(
    small: Small, tmp_path: Path, kind: str, warned: bool
) -> None:
    copy = tmp_path / "runs"
    shutil.copytree(small[1].directory.parent, copy)
    for number, (cell, _) in enumerate(runs_of(small[1])):
        summary = copy / cell["directory"] / "summary.json"
        content = json.loads(summary.read_text())
        content["budget"] = {kind: 40, "finished": 4}
        content["work"]["samples"]["mean"], content["work"]["steps"]["mean"] = 40, 10 * (1 + number)
        summary.write_text(json.dumps(content))
        as_if_written(summary.parent)
    warnings = Comparison(load_study([copy / small[1].directory.name])).warnings
    assert any(warning.startswith("unequal budgets") for warning in warnings) == warned


def test_methods_with_less_data_are_named(small: Small, tmp_path: Path) -> None:
    """In one setting; data that differ between the settings of another axis are no difference of methods."""
    copy = tmp_path / "runs"
    shutil.copytree(small[1].directory.parent, copy)

    def with_samples(counts: Mapping[tuple[str, float], int]) -> list[str]:
        for cell, _ in runs_of(small[1]):
            folder = copy / cell["directory"]
            content = json.loads((folder / "summary.json").read_text())
            values = cell["values"]
            content["samples"] = [counts[values["method"], values["network.loss"]]] * len(content["samples"])
            (folder / "summary.json").write_text(json.dumps(content))
            as_if_written(folder)
        warnings = Comparison(load_study([copy / small[1].directory.name])).warnings
        return [each for each in warnings if each.startswith("unequal data")]

    assert with_samples({("alone", 0): 40, ("gossip", 0): 40, ("alone", 0.2): 20, ("gossip", 0.2): 20}) == []
    [warning] = with_samples({("alone", 0): 40, ("gossip", 0): 40, ("alone", 0.2): 40, ("gossip", 0.2): 32})
    lossy = "lost messages 0.2"
    assert warning == (
        f"unequal data: training samples per client from 32 (gossip, {lossy}) to 40 (alone, {lossy}); a "
        "method that holds out validation samples trains on fewer (data.validation_share)"
    )


def test_models_that_became_worse_after_the_budget_are_named(tmp_path: Path) -> None:
    options = ["run.budget={steps=30}", "run.duration=20 s", "network.loss=0"]
    options += ["devices.override=[{clients=[3],slowdown=5}]"]
    result = run_sweep(plan(study(tmp_path), options, seeds=1), out=tmp_path / "runs", execute=here)
    changes = {}
    for cell, run in runs_of(result):
        rows, lost = pl.read_parquet(run.table_path("metrics")), []
        for client, spent_s in enumerate(run.summary()["budget"]["spent_seconds"]):
            own = rows.filter(actor=f"client-{client}", name="distance").sort("time")
            later = own.filter(pl.col("time") >= spent_s)["value"]
            lost += [later[-1] - later[0]] if len(later) else []
        changes[cell["values"]["method"]] = np.mean(lost)
    assert changes["alone"] == 0 < changes["gossip"]
    found = Comparison(load_study([result.directory])).warnings
    said = f"gossip: distance became worse by {changes['gossip']:.3g} after clients had used run.budget"
    assert [warning.partition(", because")[0] for warning in found if "worse" in warning] == [said]


def test_a_budget_that_the_duration_cut_short_is_named(small: Small, tmp_path: Path) -> None:
    copy = tmp_path / "runs"
    shutil.copytree(small[1].directory.parent, copy)
    for number, (cell, _) in enumerate(runs_of(small[1])):
        summary = copy / cell["directory"] / "summary.json"
        content = json.loads(summary.read_text())
        spent = [1.0, 2.0, None if number < 2 else 3.0, 4.0]
        content["budget"] = {"steps": 40, "finished": 4 - (number < 2), "spent_seconds": spent}
        content["work"]["steps"]["mean"] = 10 * (1 + number)
        summary.write_text(json.dumps(content))
        as_if_written(summary.parent)
    [warning] = [
        each
        for each in Comparison(load_study([copy / small[1].directory.name])).warnings
        if each.startswith("unequal budgets")
    ]
    assert warning.endswith(
        "; 2 runs ended before all clients had used run.budget; for equal budgets, set a longer run.duration"
    )


@pytest.mark.parametrize(
    ("changes", "itself"),
    [
        ({}, True),
        ({"interrupted": True}, False),
        ({"ended_by": "all clients wait"}, False),
        (
            {
                "failed": {
                    "stopped": ["server"],
                    "restarts": 0,
                    "errors": 1,
                    "first": {"actor": "server", "seconds": 1.0, "error": "x"},
                }
            },
            False,
        ),
    ],
)
def test_a_run_that_was_cut_short_did_not_end_itself(
    small: Small, tmp_path: Path, changes: dict[str, Any], itself: bool
) -> None:
    _, run = next(iter(runs_of(small[1])))
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    content = json.loads((copy / "summary.json").read_text()) | {"planned_seconds": 1e6} | changes
    (copy / "summary.json").write_text(json.dumps(content))
    as_if_written(copy)
    assert StudiedRun(copy, {}).ended_itself is itself


def test_each_cost_says_what_it_is_per(comparison: Comparison) -> None:
    tables = {table.title: table for table in tables_to_show(comparison)}
    [costs] = [table for title, table in tables.items() if title.startswith("Costs of reaching")]
    used = tables["Resources used per client"]
    assert costs.title.endswith("at most 1.2")
    assert costs.heads[1:] == [
        "virtual time per run",
        "bytes sent, all clients",
        "training steps, all clients",
        "FLOPs, all clients",
        "virtual time per run, median",
    ]
    assert all(head.endswith(" per client") for head in used.heads) and "all clients of a run" in costs.note


@pytest.mark.long
def test_the_console_shows_the_time_where_it_differs(small: Small, tmp_path: Path) -> None:
    copy = tmp_path / "runs"
    shutil.copytree(small[1].directory.parent, copy)
    sweep = copy / small[1].directory.name
    code, output = run("compare", sweep, "--out", tmp_path / "same")
    assert code == 0 and "time up" not in output
    for cell, _ in runs_of(small[1]):
        summary = copy / cell["directory"] / "summary.json"
        content = json.loads(summary.read_text())
        content["work"]["time"]["mean"] *= 12 if "gossip" in str(cell["values"]) else 1
        summary.write_text(json.dumps(content))
        as_if_written(summary.parent)
    code, output = run("compare", sweep, "--out", tmp_path / "other")
    assert code == 0
    [heads] = [line for line in output.splitlines() if line.endswith("time up per client")]
    rows = output[output.index(heads) :].splitlines()[1:5]
    assert [("gossip" in row, row.rstrip().endswith("48\N{NO-BREAK SPACE}s")) for row in rows] == [
        ("gossip" in row, "gossip" in row) for row in rows
    ]
    assert sum("gossip" in row for row in rows) == 2


def test_missing_cells_and_unequal_budgets_are_pointed_out(small: Small, tmp_path: Path) -> None:
    copy = tmp_path / "runs"
    shutil.copytree(small[1].directory.parent, copy)
    file = copy / small[1].directory.name / INDEX
    index = json.loads(file.read_text())
    index["cells"][0] |= {"state": "failed", "error": "RuntimeError: no more"}
    file.write_text(json.dumps(index))
    summary = copy / index["cells"][1]["directory"] / "summary.json"
    content = json.loads(summary.read_text())
    content["work"]["steps"]["mean"] *= 2
    summary.write_text(json.dumps(content))
    as_if_written(summary.parent)
    warnings = Comparison(load_study([file.parent])).warnings
    assert "no results: method = alone, network.loss = 0, seed 3: RuntimeError: no more" in warnings
    assert any("paired if two or more are common" in each for each in warnings)
    lines = {line.group.label: line.against for line in Comparison(load_study([file.parent])).lines}
    assert {against.paired for against in lines.values() if against is not None} == {False, True}
    assert any(warning.startswith("unequal budgets: training steps per client from") for warning in warnings)


@pytest.mark.parametrize("count", [3, 4, 312])
def test_runs_without_results_for_one_reason_take_few_lines(count: int) -> None:
    missing = {f"seed {seed}": "not run yet" for seed in range(count)} | {"seed 999": "RuntimeError: no"}
    said = missing_run_lines(missing)
    assert said[-1] == "no results: seed 999: RuntimeError: no"
    if count == 3:
        assert said[:-1] == [f"no results: seed {seed}: not run yet" for seed in range(3)]
    else:
        assert said[:-1] == [f"no results: {count} runs, from seed 0 to seed {count - 1}: not run yet"]


def test_csv_holds_what_is_shown(comparison: Comparison, tmp_path: Path) -> None:
    assert [path.name for path in write_csv(comparison, tmp_path)] == [
        "table.csv",
        "target.csv",
        "curves.csv",
        "runs.csv",
    ]
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, line in zip(rows, comparison.lines, strict=True):
        assert (row["method"], row["metric"]) == (line.group.values["method"], line.metric)
        assert float(row["mean"]) == line.estimate.mean
        assert (row["p_holm"] == "") == math.isnan(line.p)
    with (tmp_path / "runs.csv").open() as file:
        found = {row["directory"]: row for row in csv.DictReader(file)}
    assert len(found) == 8
    for name, row in found.items():
        run = StudiedRun(comparison.study.runs[0].directory.parent / name, {})
        assert row["trace_hash"] == run.view.get("trace_hash")
        assert float(row["distance"]) == run.number("distance")


@pytest.mark.long
def test_names_are_no_formulas_and_no_mathematics(small: Small, tmp_path: Path) -> None:
    """Names of cases are the user's: a spreadsheet must not compute them, nor a picture set them as TeX."""
    copy = tmp_path / "runs"
    shutil.copytree(small[1].directory.parent, copy)
    file = copy / small[1].directory.name / INDEX
    odd = {"alone": "=1+2", "gossip": "-x $a^$ \\(b"}
    index = file.read_text().replace('"method"', '"@m$_{"')
    for name, other in odd.items():
        index = index.replace(f'"{name}"', json.dumps(other))
    file.write_text(index)
    write_comparison(Comparison(load_study([file.parent])), tmp_path)
    with (tmp_path / "runs.csv").open() as opened:
        assert {row["'@m$_{"] for row in csv.DictReader(opened)} == {f"'{name}" for name in odd.values()}
    assert odd["gossip"] in (tmp_path / "curves-distance.svg").read_text()


@pytest.mark.parametrize("text", ["=1", "+SUM(A1)", "-a", "@x", "\t=1", "\r=1", "--1", "-1+1"])
def test_a_text_that_a_spreadsheet_would_compute_is_made_none(text: str) -> None:
    assert without_formula(text) == f"'{text}"


@pytest.mark.parametrize("value", ["", "a=1", "-0.5", "+1e3", -0.5, None, "\N{MINUS SIGN}1"])
def test_other_values_stay_in_tables(value: object) -> None:
    assert without_formula(value) == value


def test_latex_has_a_row_for_each_group(comparison: Comparison) -> None:
    text = latex(comparison)
    lines = text.splitlines()
    assert lines[1] == r"\begin{tabular}{llrrrrrr}" and text.count(r" \\") == 5
    assert all(line.count("&") == 7 for line in lines if line.endswith(r" \\"))
    assert r"gossip & 0.2 & " in text and "\N{PLUS-MINUS SIGN}" not in text


def renamed(small: Small, axes: Mapping[str, str], values: Mapping[str, str] | None = None) -> Comparison:
    """Return the comparison of the small study with other names of its axes, and of some values."""
    names = values or {}
    found = load_study([small[1].directory])
    runs = [
        replace(run, values={axes[axis]: names.get(str(each), each) for axis, each in run.values.items()})
        for run in found.runs
    ]
    of_axes = {
        axes[axis]: tuple(names.get(str(each), each) for each in all_of)
        for axis, all_of in found.axes.items()
    }
    return Comparison(Study("small", "", of_axes, {}, tuple(runs)), metrics=["distance"])


def test_an_axis_with_the_name_of_a_column_keeps_its_values(small: Small) -> None:
    frames = csv_frames(renamed(small, {"method": "clients", "network.loss": "seeds"}))
    assert set(frames["table"]["clients (axis)"]) == {"alone", "gossip"}
    assert set(frames["table"]["seeds (axis)"]) == {"0", "0.2"}
    assert set(frames["table"]["seeds"]) == {len(small[0].seeds)} and set(frames["runs"]["seeds"]) == {
        "0",
        "0.2",
    }


def test_a_row_of_latex_is_no_argument_of_the_row_before(small: Small) -> None:
    same = {"method": "method", "network.loss": "network.loss"}
    lines = latex(renamed(small, same, {"alone": "[1, 8]", "gossip": "*"})).splitlines()
    rows = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert [row.partition(" & ")[0] for row in rows] == [r"\relax [1, 8]"] * 2 + [r"\relax *"] * 2


@pytest.mark.long
def test_more_lines_than_can_be_told_apart_are_a_map(tmp_path: Path) -> None:
    head = STUDY[: STUDY.index("[sweep]")]
    sweep = "[sweep]\n[sweep.grid]\nnetwork.loss = [0, 0.2]\ntraining.learning_rate = [" + ", ".join(
        f"0.{number}" for number in range(11, 20)
    )
    file = study(tmp_path, f'{head}{sweep}]\n[sweep.compare]\nby = "network.loss"\nmetrics = ["distance"]\n')
    result = run_sweep(plan(file), out=tmp_path / "runs", execute=here)
    comparison = Comparison(load_study([result.directory]))
    write_pictures(comparison, tmp_path)
    drawn = (tmp_path / "by-distance.svg").read_text(encoding="utf-8")
    assert drawn.count("<image") == 1 and "difference from lost messages = 0" in drawn
    for line in comparison.lines:
        assert f">{line.estimate.mean:.3g}<" in drawn
        assert f">{line.group.values['training.learning_rate']}<" in drawn
    assert "by-distance" in write_pictures(comparison, tmp_path)


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    return done.exit_code, done.output


def test_a_comparison_removes_the_files_of_the_one_before_and_no_others(small: Small, tmp_path: Path) -> None:
    study = load_study([small[1].directory])
    write_comparison(Comparison(study, target=1.2, metrics=["distance", "distance.worst_decile"]), tmp_path)
    own = [tmp_path / "curves-mine.png", tmp_path / "notes.csv"]
    for path in own:
        path.write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}
    write_comparison(Comparison(study, metrics=["distance"]), tmp_path)
    gone = before - {path.name for path in tmp_path.iterdir()}
    of_metric = {f"{kind}-distance-worst_decile.{end}" for kind in ("curves", "by") for end in ("png", "svg")}
    assert gone == {"target.csv", "target.png", "target.svg"} | of_metric
    options = json.loads((tmp_path / "options.json").read_text())
    assert "table.csv" in options["files"] and all((tmp_path / name).is_file() for name in options["files"])
    options["files"] = ["../notes.csv", "notes.csv"]
    (tmp_path / "options.json").write_text(json.dumps(options))
    write_comparison(Comparison(study, metrics=["distance"]), tmp_path)
    assert all(path.is_file() for path in own), "options with a path in a name are not read"


@pytest.mark.long
def test_the_command_writes_page_tables_and_pictures(small: Small, tmp_path: Path) -> None:
    code, said = run("compare", small[1].directory, "--target", 1.2, "--out", tmp_path)
    assert code == 0 and f"page: {tmp_path / 'comparison.html'}" in said
    names = {path.name for path in tmp_path.iterdir()}
    pictures = {
        f"{name}-{metric}" for name in ("curves", "by") for metric in ("distance", "distance-worst_decile")
    }
    for picture in (*pictures, "target", "profile"):
        assert (tmp_path / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{picture}.svg").read_text()
    assert {"table.csv", "target.csv", "curves.csv", "runs.csv", "table.tex"} <= names
    page = (tmp_path / "comparison.html").read_text()
    assert page.count("<figure>") == len(pictures) + 2 and "Which of two methods?" in page
    curves = (tmp_path / "curves-distance.svg").read_text()
    for words in (
        "virtual time [s]",
        "distance to the local optimum",
        "2 seeds, 95% intervals",
        "gossip",
        "alone",
    ):
        assert words in curves, words


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            85.0,
            r"--target 85: the target of accuracy must be more than 0 and at most 1; did you mean 0\.85\?",
        ),
        (101.0, r"at most 1$"),
        (0.0, "more than 0"),
        (math.nan, "--target nan"),
    ],
)
def test_a_target_that_no_share_can_be_is_refused(
    small: Small, monkeypatch: pytest.MonkeyPatch, target: float, said: str
) -> None:
    monkeypatch.setattr(Study, "measure", "accuracy")
    with pytest.raises(UserError, match=said):
        Comparison(load_study([small[1].directory]), target=target)


def test_equal_costs_have_no_interval() -> None:
    """Where no run reached the target, all costs are those of the end: rounding is no interval."""
    spent = estimate([0.1 + 0.2, 0.3, 0.3])
    assert spent.high > spent.mean
    never = CensoredTimes(np.full(3, math.inf), np.full(3, 0.3))
    shown = target_cost_text(TargetCost(None, "seconds", never, 0.3, spent))  # type: ignore[arg-type]
    assert shown.replace("\N{NO-BREAK SPACE}", " ") == "\N{GREATER-THAN OR EQUAL TO} 300 ms"


def test_no_interval_of_a_cost_reaches_below_zero(small: Small) -> None:
    comparison = Comparison(load_study([small[1].directory]), target=0.01)
    assert comparison.targets and all(target.spent.low >= 0 for target in comparison.targets)
    reached = CensoredTimes(np.array([1.0, 30.0]), np.full(2, 60.0))
    wide = estimate([1.0, 30.0])._replace(low=0.0)
    shown = target_cost_text(TargetCost(None, "seconds", reached, 60.0, wide))  # type: ignore[arg-type]
    high = cost_text(wide.high, "seconds")
    assert shown == f"{cost_text(15.5, 'seconds')} (0 to {high})"


def test_an_axis_may_be_named_by_its_label(small: Small) -> None:
    study = load_study([small[1].directory])
    label = study.label("network.loss")
    assert label != "network.loss"
    assert Comparison(study, by=label).by == Comparison(study, by="network.loss").by == "network.loss"
    choice = Comparison(study, baseline=f"{label}=0")
    assert choice.baseline_of(choice.groups[-1]) is not None


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.01234, "0.0123"), (999.4, "999"), (999.6, "1,000"), (-4000.0, "-4,000"), (1.5e6, "1.5e+06")],
)
def test_counts_are_shown_with_all_their_digits(number: float, shown: str) -> None:
    assert value_text(number, "messages.sent") == shown


def test_a_metric_that_is_unknown_is_answered_by_those_that_are_known(small: Small) -> None:
    with pytest.raises(
        UserError,
        match=r"\(distance, .*bytes_sent.*\), those of clients with or without .worst_decile, a path in ",
    ):
        Comparison(load_study([small[1].directory]), metrics=["acc"])


def test_no_method_is_the_best_in_a_count_without_a_direction(small: Small) -> None:
    study = load_study([small[1].directory])
    assert answer(Comparison(study, metrics=["bytes_sent", "messages.lost"])) == []
    both = ("bytes_sent", "distance")
    of_both = answer(Comparison(study, metrics=both))
    assert Comparison(study, metrics=[*both, *both]).metrics == both  # a repeated option changes no count
    assert "the best distance to the local optimum" in of_both[0]
    assert [direction(each) for each in ("graph.l1", "energy.joules", "accuracy", "loss", "mine")] == [
        False,
        False,
        True,
        False,
        None,
    ]


def test_each_metric_of_a_run_can_be_compared_and_totals_are_those_of_the_run(small: Small) -> None:
    study = load_study([small[1].directory])
    names = study.runs[0].view.metric_names
    assert "bytes_sent" in names and "distance" in names
    compared = Comparison(study, metrics=names)
    for group in compared.groups:
        sent = compared.numbers(group, "bytes_sent")
        assert sent == {run.seed: run.view.bytes_sent.values[-1] for run in group.runs}
    with pytest.raises(UserError, match=r"--metric bytes_sent\.worst_decile: unknown in all") as caught:
        Comparison(study, metrics=["bytes_sent.worst_decile"])
    assert "did you mean 'bytes_sent'?" in str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "nan"], "--target nan: the target of distance must be finite"),
        (["--by", "colour"], "--by colour: unknown axis; must be one of method, network.loss"),
        (
            ["--baseline", "method=fedavg"],
            "must be an axis and one of its values: method=alone|gossip; network.loss=0|0.2",
        ),
        (
            ["--metric", "colour"],
            "--metric colour: unknown in all runs; must be a metric of the runs (",
        ),
        (["--clients", "a"], "must be client numbers"),
    ],
)
def test_what_there_is_not_is_refused(small: Small, arguments: list[str], said: str) -> None:
    code, output = run("compare", small[1].directory, *arguments)
    assert code == 2 and said in " ".join(output.replace("│", " ").split())


def test_what_is_no_sweep_is_refused(small: Small, tmp_path: Path) -> None:
    code, output = run("compare", tmp_path)
    assert code == 2 and "is not a results folder" in output
    (tmp_path / INDEX).write_text("{}")
    code, output = run("compare", tmp_path)
    assert (
        code == 2 and f"{INDEX}: is not the index of a sweep, or is damaged: name: Field required" in output
    )
    later = (small[1].directory / INDEX).stat().st_mtime + 10
    os.utime(tmp_path / INDEX, (later, later))
    code, output = run("compare", small[1].directory, tmp_path)
    assert code == 2 and f"is one of 2 sweeps; name one sweep (the latest is {tmp_path})" in output


def test_the_list_of_runs_is_filtered_and_sorted(small: Small) -> None:
    folder = small[1].directory.parent
    code, said = run("runs", folder, "--where", "protocol=gossip", "--where", "overrides~loss=0.2", "--csv")
    rows = list(csv.DictReader(said.splitlines()))
    assert code == 0 and [row["seed"] for row in rows] in (["3", "4"], ["4", "3"])
    code, said = run("runs", folder, "--sort", "-result", "--csv")
    results = [float(row["result"]) for row in csv.DictReader(said.splitlines())]
    assert len(results) >= 8 and results == sorted(results)  # distances
    for wrong in (["--where", "colour=red"], ["--where", "seed"], ["--sort", "colour"]):
        assert run("runs", folder, *wrong)[0] == 2
    assert run("runs", folder / "nothing")[0] == 2


def waiting_run(method: str, world: str, at: Sequence[float], watched: Sequence[float]) -> StudiedRun:
    run = StudiedRun(Path(f"{method}-{world}"), {"method": method, "world": world})
    run.__dict__["waits"] = {CATCH_UP: CensoredTimes(np.array(at), np.array(watched))}
    return run


def test_waits_have_a_value_for_each_run(small: Small, tmp_path: Path) -> None:
    study = load_study([small[1].directory])
    for number, run in enumerate(study.runs):
        run.__dict__["waits"] = {CATCH_UP: CensoredTimes(np.array([1.0 + number]), np.array([1.0 + number]))}
    comparison = Comparison(study, metrics=[CATCH_UP])
    restricted = [
        comparison.numbers(group, CATCH_UP)[run.seed] for group in comparison.groups for run in group.runs
    ]
    assert csv_frames(comparison)["runs"][CATCH_UP].to_list() == restricted
    runs = study_page_content(comparison, tmp_path).facts["runs"]
    assert [run["ends"] for run in runs] == [[each] for each in restricted] and len(set(restricted)) > 1


def test_times_are_counted_as_far_as_they_are_known_of_those_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where newcomers go after 5 s nobody knows who would have needed 20: elsewhere it is known."""
    monkeypatch.setattr(StudiedRun, "seed", 1)
    never = np.inf
    runs = (
        waiting_run("fast", "short", [2.0, 4.0], [2.0, 4.0]),
        waiting_run("slow", "short", [3.0, never], [3.0, 5.0]),
        waiting_run("fast", "long", [2.0, 4.0], [2.0, 4.0]),
        waiting_run("slow", "long", [18.0, 22.0], [18.0, 22.0]),
        waiting_run("none", "calm", [], []),
    )
    axes = {"method": ("fast", "slow", "none"), "world": ("short", "long", "calm")}
    study = Study("waits", "", axes, {}, runs)
    found = Comparison(study, metrics=[CATCH_UP], by="world", baseline="world=short")
    slow_short, slow_long = found.groups[1], found.groups[3]
    assert found.until_s(CATCH_UP, slow_short) == 5.0
    assert found.until_s(CATCH_UP, slow_long) == 22.0
    assert np.isnan(found.until_s(CATCH_UP, found.groups[4]))
    assert found.numbers(slow_short, CATCH_UP) == {1: 4.0}  # (3 + 5) / 2
    assert found.numbers(slow_long, CATCH_UP) == {1: 20.0}
    assert found.until_s(CATCH_UP, slow_long, slow_short) == 5.0
    # Held against each other, both count as far as they are known of both.
    differences = [line.against.difference.mean for line in found.lines if line.against is not None]
    assert differences == [0.0, 1.0]  # 3 - 3, and 5 - (3 + 5) / 2
