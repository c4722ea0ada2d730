"""Tuning: equal trials for each method, selection by held-out samples, and interruptions."""

import csv
import math
import os
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import sim
from sim.cli.live import app
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.studies.cells import StatedScenario, plan
from sim.studies.comparison import Comparison
from sim.studies.index import SweepIndex
from sim.studies.study import load_study
from sim.studies.sweep import run_sweep
from sim.studies.tuning.best_of import expected_best_of, numbers_of_trials, smaller_search_spread
from sim.studies.tuning.files import BEST, BEST_OF, TRIALS, TUNED, best_rows, write_files
from sim.studies.tuning.methods import conditions_of, tuned_methods
from sim.studies.tuning.sampler_names import SamplerName
from sim.studies.tuning.samplers import Sobol, make_sampler
from sim.studies.tuning.tuning import Tuning, TuningResult, tune, tuning_seeds
from sim.studies.worker import CellResult, CellTask, run_cells
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

METHOD = """\
from protocols import Client
from protocols.framework.search_space import OneOf, SearchSpace


class Still(Client):
    \"\"\"A client that trains for a while.\"\"\"

    search_space = SearchSpace("a test", {"steps": OneOf((0, 3, 5))})

    class Settings(Client.Settings):
        steps: int = 1

    async def run(self) -> None:
        if self.settings.steps == 5:
            raise RuntimeError("five")
        while True:
            self.params = await self.train(max(1, self.settings.steps))
"""


def tuning_of(path: Path, names: list[str], trials: int = 4, **options: object) -> Tuning:
    methods = tuned_methods(StatedScenario(path, (), (), True), names, 0.2)
    settings = {"seeds": (11, 12), "sampler": SamplerName.sobol, "seed": 3} | options
    return Tuning(path, methods, trials, **settings)  # type: ignore[arg-type]


def rows_of(result: TuningResult, name: str = TRIALS) -> list[dict[str, str]]:
    with (result.directory / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> TuningResult:
    folder = tmp_path_factory.mktemp("tuned")
    tuning = tuning_of(study(folder), ["alone", "gossip"])
    result = tune(tuning, out=folder / "out", execute=here)
    write_files(result)
    return result


@pytest.mark.long
def test_every_method_gets_the_same_number_of_trials_and_of_runs(tuned: TuningResult) -> None:
    assert {name: len(trials) for name, trials in tuned.trials.items()} == {"alone": 4, "gossip": 4}
    cells = [cell for trials in tuned.trials.values() for trial in trials for cell in trial.cells]
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 4 * 2
    assert {cell.seed for cell in cells} == {11, 12}


def test_trial_0_has_the_settings_of_the_scenario(tuned: TuningResult) -> None:
    for trials in tuned.trials.values():
        assert not trials[0].settings
        assert all(set(trial.settings) == set(trial.method.space) for trial in trials[1:])
    assert "training.learning_rate" in tuned.trials["alone"][1].settings
    assert "protocol.local_steps" in tuned.trials["gossip"][1].settings


def test_the_score_is_the_mean_of_the_last_tenth_of_the_evaluations(tuned: TuningResult) -> None:
    trial = tuned.trials["gossip"][2]
    expected = []
    for cell in trial.cells:
        (folder,) = [
            mark.parent for mark in tuned.directory.parent.glob("*/cell.json") if cell.key in mark.read_text()
        ]
        frame = RunDirectory.load(folder).scan("metrics").collect()
        frame = frame.filter((pl.col("name") == "distance") & pl.col("actor").str.starts_with("client"))
        means = frame.group_by("time").agg(pl.col("value").mean()).sort("time")["value"].to_list()
        expected.append(np.mean(means[-math.ceil(len(means) / 10) :]))
    assert trial.selection == pytest.approx(np.mean(expected), rel=1e-12)


def test_the_best_trial_has_the_best_selection_of_all(tuned: TuningResult) -> None:
    for name, trials in tuned.trials.items():
        best = tuned.best(name)
        assert best is not None
        assert best.selection == min(trial.selection for trial in trials)  # a distance: smaller is better


def test_points_differ_by_seed_and_method() -> None:
    points = [Sobol(2, seed, name).ask(8) for seed, name in ((3, "alone"), (4, "alone"), (3, "gossip"))]
    assert points[0] == Sobol(2, 3, "alone").ask(8)
    assert points[0] != points[1] != points[2] != points[0]


@pytest.mark.long
def test_an_interrupted_tuning_goes_on_where_it_stopped(tuned: TuningResult, tmp_path: Path) -> None:
    tuning, ran = tuning_of(study(tmp_path), ["alone", "gossip"]), []

    def killed(tasks: list[CellTask], done: Callable[[CellTask, CellResult], None], look: object) -> None:
        for task in tasks[:7]:
            ran.append(task.cell.key)
            done(task, *run_cells([task]))
        raise KeyboardInterrupt

    def counted(tasks: list[CellTask], done: Callable[[CellTask, CellResult], None], look: object) -> None:
        for task in tasks:
            ran.append(task.cell.key)
            done(task, *run_cells([task]))

    with pytest.raises(KeyboardInterrupt):
        tune(tuning, out=tmp_path / "out", execute=killed)
    result = tune(tuning, out=tmp_path / "out", execute=counted)
    assert len(ran) == len(set(ran)) == 16
    write_files(result)
    for name in (TRIALS, BEST, BEST_OF):  # of another folder, and run in one go
        assert (result.directory / name).read_bytes() == (tuned.directory / name).read_bytes()


def test_the_tuned_study_runs_with_the_selected_settings(tuned: TuningResult, tmp_path: Path) -> None:
    planned = plan(tuned.directory / TUNED, seeds=(21,))
    assert planned.axes == {"method": ("alone", "gossip")}
    result = run_sweep(planned, out=tmp_path, execute=here)
    assert not result.errors
    for run in load_study([result.directory]).runs:
        best = tuned.best(str(run.values["method"]))
        assert best is not None
        assert run.view.get("tuned", "study") == tuned.directory.name
        assert run.view.get("tuned", "trial") == best.number
        scenario = (run.directory / "scenario.toml").read_text()
        for key, value in best.settings.items():
            assert f"{key.partition('.')[2]} = {value}" in scenario or f'"{value}"' in scenario


def test_a_comparison_says_which_methods_are_tuned(tuned: TuningResult, tmp_path: Path) -> None:
    here_tuned = run_sweep(plan(tuned.directory / TUNED, seeds=(21,)), out=tmp_path, execute=here)
    as_written = run_sweep(
        plan(study(tmp_path), seeds=(21,), only=["network.loss=0"]), out=tmp_path, execute=here
    )
    of_both = [
        tmp_path / cell.parent.name
        for directory in (here_tuned.directory, as_written.directory)
        for cell in tmp_path.glob("*/cell.json")
        if cell.parent.name in (directory / "sweep.json").read_text()
    ]
    warnings = Comparison(load_study([here_tuned.directory])).warnings
    assert not any("tuned" in line for line in warnings)
    warnings = Comparison(load_study(of_both)).warnings
    assert any(line.startswith("only some methods are tuned; not tuned: ") for line in warnings)
    text = (
        (tuned.directory / TUNED)
        .read_text()
        .replace(f"tuned.study={tuned.directory.name}", "tuned.study=other", 1)
    )
    base = os.path.relpath(tuned.tuning.file, tmp_path)
    (tmp_path / "two.toml").write_text(re.sub(r"scenario = .*", f'scenario = "{base}"', text))
    of_two = run_sweep(plan(tmp_path / "two.toml", seeds=(21,)), out=tmp_path, execute=here)
    warnings = Comparison(load_study([of_two.directory])).warnings
    assert f"settings were tuned by different studies: other; {tuned.directory.name}" in warnings


def test_results_with_a_seed_of_the_tuning_are_warned_about(tuned: TuningResult, tmp_path: Path) -> None:
    result = run_sweep(plan(tuned.directory / TUNED, seeds=(11, 21)), out=tmp_path, execute=here)
    comparison = Comparison(load_study([result.directory]))
    assert "seed 11 was also used for tuning; use other seeds for results" in comparison.warnings
    assert all(group.tuned == tuned.directory.name for group in comparison.groups)


@pytest.mark.long
def test_failed_and_refused_trials_count_as_the_worst(tmp_path: Path) -> None:
    (tmp_path / "still.py").write_text(METHOD, encoding="utf-8")
    path = study(tmp_path, STUDY.partition("[sweep]")[0].replace('name = "local"', 'name = "still.py:Still"'))
    result = tune(tuning_of(path, [], trials=8, seeds=(11,)), out=tmp_path / "out", execute=here)
    (trials,) = result.trials.values()
    by_steps = {trial.settings["protocol.steps"]: trial for trial in trials[1:]}
    assert set(by_steps) == {0, 3, 5}
    assert "five" in str(by_steps[5].reason)
    assert by_steps[5].score == -math.inf
    assert math.isnan(by_steps[5].selection)
    best = result.best("Still")
    assert best is not None and best.settings.get("protocol.steps") != 5
    (row,) = best_rows(result)
    assert row["failed"] == sum(trial.reason is not None for trial in trials) > 0


def test_held_back_samples_select_where_there_are_classes(tmp_path: Path) -> None:
    text = STUDY.partition("[sweep]")[0]
    data = 'name = "digits"\npartition = { kind = "iid", samples_per_client = 20 }\ntest_samples = 50'
    text = text.replace('name = "quadratic"\ndimension = 3\nclusters = 2', data)
    text = text.replace('[model]\nname = "point"', '[model]\nname = "mlp"\nhidden = [8]')
    path = study(tmp_path, text)
    (method,) = tuned_methods(StatedScenario(path, (), (), True), [], 0.25)
    assert method.selected_by.name == "validation_accuracy"
    assert method.tested_by.name == "accuracy"
    assert "data.validation_share=0.25" in method.stated.overrides
    assert "data.validation_share=0.25" not in method.chosen.overrides
    result = tune(tuning_of(path, [], trials=1), out=tmp_path / "out", execute=here)
    trial = result.trials["local"][0]
    assert 0 < trial.selection <= 1
    right = 32 * trial.selection  # of 4 held-out samples of each of 4 clients, with 2 seeds
    assert right == pytest.approx(round(right))


def test_a_seed_without_enough_samples_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    path = Path(sim.__path__[0]).parent / "scenarios" / "l2c_fashion_mnist.toml"
    overrides = ["data.name=digits", "data.test_samples=20", "clients.count=8", "protocol.name=local"]
    overrides += ["data.partition={kind='classes-per-client', classes=2, samples_per_client=80}"]
    methods = tuned_methods(StatedScenario(path, overrides, (), True), [], 0.2)
    tuning = Tuning(path, methods, 2, (1, 2), SamplerName.sobol, 3)  # seed 2 draws a class too often
    with pytest.raises(UserError, match="23 of them not yet taken") as caught:
        tune(tuning, out=tmp_path / "out", execute=here)
    assert "in the runs with method = local, seed = 2" in "\n".join(caught.value.__notes__)
    assert not (tmp_path / "out").exists()


def test_a_selection_by_validation_needs_samples_that_are_held_out() -> None:
    path = Path(sim.__path__[0]).parent / "scenarios" / "fedavg.toml"
    with pytest.raises(UserError, match="--validation-share 0: trials are selected by validation_accuracy"):
        tuned_methods(StatedScenario(path, ("data.name=digits",), (), True), [], 0.0)


def test_the_best_of_k_is_the_mean_over_all_subsets() -> None:
    scores = [0.3, 0.9, -math.inf, 0.5, 0.9, 0.1]
    tests = [0.2, 0.7, math.nan, 0.6, 0.8, 0.0]
    for k in range(2, 7):
        chosen = [max(subset, key=lambda index: scores[index]) for subset in combinations(range(6), k)]
        assert expected_best_of(scores, tests, k) == pytest.approx(
            np.mean([tests[index] for index in chosen])
        )
    assert math.isnan(expected_best_of(scores, tests, 1))  # the only trial may be the failed one


def test_more_trials_never_lower_the_expected_selection(tuned: TuningResult) -> None:
    for trials in tuned.trials.values():
        scores = [trial.score for trial in trials]
        found = [expected_best_of(scores, scores, k) for k in numbers_of_trials(len(scores))]
        assert found == sorted(found)
        assert found[-1] == max(scores)


def test_the_spread_is_that_of_four_smaller_studies() -> None:
    scores = [float(number) for number in (1, 2, 3, 4, 8, 7, 6, 5)]
    assert smaller_search_spread(scores, scores) == (6.5, pytest.approx(np.std([8, 7, 6, 5], ddof=1)))
    assert all(map(math.isnan, smaller_search_spread(scores[:7], scores[:7])))


@pytest.mark.parametrize(("trials", "numbers"), [(1, [1]), (7, [1, 2, 4]), (16, [1, 2, 4, 8, 16])])
def test_numbers_of_trials_double(trials: int, numbers: list[int]) -> None:
    assert numbers_of_trials(trials) == numbers


def test_tpe_asks_the_same_in_every_session(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (method,) = tuning_of(study(tmp_path), ["gossip"]).methods
    values = list(method.space.values())

    def asked() -> list[list[tuple[float, ...]]]:
        sampler, found = make_sampler(SamplerName.tpe, values, 3, "gossip"), []
        for batch in range(3):
            points = sampler.ask(20 - 8 * batch)
            sampler.tell(
                points, [-math.inf if index == 1 else sum(point) for index, point in enumerate(points)]
            )
            found.append(points)
        return found

    first = asked()
    assert list(map(len, first)) == [8, 8, 4]
    assert first == asked()
    assert all(0 <= share <= 1 for points in first for point in points for share in point)


@pytest.mark.long
def test_tpe_runs_batches_after_each_other(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    tuning = tuning_of(study(tmp_path), ["alone"], trials=10, seeds=(11,), sampler=SamplerName.tpe)
    result = tune(tuning, out=tmp_path / "out", execute=here)
    assert [trial.number for trial in result.trials["alone"]] == list(range(10))
    assert [path.name for path in (tmp_path / "out").glob("*-tune-*")] == [result.directory.name]


def test_a_later_batch_does_not_run_failed_cells_again(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    ran, failures = [], []

    def broken(tasks: list[CellTask], done: Callable[[CellTask, CellResult], None], look: object) -> None:
        for task in tasks:
            ran.append(task.cell.key)
            done(task, CellResult(None, "broken"))
        assert callable(look)
        look(())

    tuning = tuning_of(study(tmp_path), ["alone"], trials=18, seeds=(11,), sampler=SamplerName.tpe)
    result = tune(
        tuning,
        out=tmp_path / "out",
        execute=broken,
        show=lambda progress: failures.append((progress.failed, progress.share)),
    )
    assert len(ran) == len(set(ran)) == 18
    assert [trial.reason for trial in result.trials["alone"]] == ["broken"] * 18
    assert failures == [(1, 1.0), (9, 1.0), (17, 1.0), (18, 1.0)]
    assert [cell.state for cell in SweepIndex.read(result.directory).cells] == ["failed"] * 18
    tune(tuning, out=tmp_path / "out", execute=broken)  # a new search tries them again
    assert len(ran) == 36


@pytest.mark.parametrize("steps", [6, 20])
def test_unequal_budgets_of_selected_trials_are_named(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gossip takes 8 steps in the duration."""
    path = study(tmp_path, STUDY.replace("[clients]", f"budget = {{ steps = {steps} }}\n\n[clients]"))
    monkeypatch.setattr("sim.cli.tuning.executor", lambda *how: (here, 1))
    words = ["tune", str(path), "--methods", "alone,gossip", "--trials", "1", "--seeds", "11,", "--quiet"]
    ended = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    said = (
        "warning: unequal budgets: training steps per client from 8 (gossip) to 20 (alone); 1 run ended "
        "before all clients had used run.budget; for equal budgets, set a longer run.duration"
    )
    assert ended.exit_code == 0
    assert [line for line in ended.stderr.splitlines() if "budgets" in line] == [said][: steps > 6]


def test_seeds_are_a_number_from_9001_on_or_a_list() -> None:
    assert tuning_seeds(2) == (9001, 9002)
    assert tuning_seeds((5, 3)) == (5, 3)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["nope"], "--methods nope: unknown method; must be a protocol"),
        (["alone", "alone"], "--methods: alone appears twice"),
        (["nope.py:Nope"], "nope.py"),
    ],
)
def test_unknown_methods_are_refused(tmp_path: Path, names: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=problem.replace("(", r"\(")):
        tuning_of(study(tmp_path), names)


def test_a_search_with_too_many_runs_is_refused(tmp_path: Path) -> None:
    tuning = tuning_of(study(tmp_path), ["alone"], trials=50_001)
    with pytest.raises(UserError, match="the search has 100,002 runs; must be at most 100,000"):
        tune(tuning, out=tmp_path / "out", execute=here)
    assert not (tmp_path / "out").exists()


def test_the_command_lists_the_search_and_refuses_what_it_cannot_search(tmp_path: Path) -> None:
    path = study(tmp_path)
    listed = CliRunner().invoke(app, ["tune", str(path), "--methods", "gossip", "--trials", "3", "--dry-run"])
    assert listed.exit_code == 0
    assert listed.output.splitlines()[:2] == [
        "gossip: 3 trials with seeds 9001, 9002",
        "  training.learning_rate: 0.003 to 1, log scale",
    ]
    for words in (
        ["--methods", "nope"],
        ["--methods", ""],
        ["--methods", "gossip,"],
        ["--trials", "0"],
        ["--seeds", "x"],
        ["--sampler", "nope"],
    ):
        refused = CliRunner().invoke(app, ["tune", str(path), *words])
        assert refused.exit_code == 2, words


def test_a_kept_setting_is_not_searched(tmp_path: Path) -> None:
    stated = StatedScenario(study(tmp_path), (), (), True)
    searched, kept = (
        tuned_methods(stated, ["gossip", "alone"], 0.2, keep) for keep in ((), ["protocol.merge"])
    )
    assert [*searched[0].space] == ["training.learning_rate", "protocol.merge", "protocol.local_steps"]
    assert [*kept[0].space] == ["training.learning_rate", "protocol.local_steps"]
    assert kept[1].space == searched[1].space
    with pytest.raises(UserError, match=r"--keep protocol\.nope: no method searches this key"):
        tuned_methods(stated, ["gossip"], 0.2, ["protocol.nope"])


LINKS = """
[[sweep.case]]
axis = "link"
name = "calm"

[[sweep.case]]
axis = "link"
name = "lossy"
set = ["network.loss=0.5"]

[[sweep.case]]
axis = "pace"
name = "slow"
set = ["devices.step_time=200 ms"]
"""


def test_a_trial_over_several_cases_has_the_mean_of_their_scores(tmp_path: Path) -> None:
    path = study(tmp_path, STUDY + LINKS)
    over = conditions_of(StatedScenario(path, (), (), True), ["link=calm", "link=lossy"], [])
    both = tune(tuning_of(path, ["gossip"], conditions=over), out=tmp_path / "both", execute=here)
    alone = []
    for condition in over:
        tuning = tuning_of(path, ["gossip"], conditions=[condition])
        alone.append(tune(tuning, out=tmp_path / "alone", execute=here).trials["gossip"])
    for trial, calm, lossy in zip(both.trials["gossip"], *alone, strict=True):
        assert trial.settings == calm.settings == lossy.settings
        assert trial.selection == pytest.approx((calm.selection + lossy.selection) / 2, rel=1e-12)
        assert calm.selection != lossy.selection
        assert [cell.values["link"] for cell in trial.cells] == ["calm", "calm", "lossy", "lossy"]
        assert [cell.key for cell in trial.cells] == [cell.key for cell in (*calm.cells, *lossy.cells)]
    write_files(both)
    assert "# Trials ran with link = lossy." in (both.directory / TUNED).read_text(encoding="utf-8")
    assert both.directory.name not in {path.name for path in (tmp_path / "alone").iterdir()}


def test_cases_of_several_axes_are_combined(tmp_path: Path) -> None:
    stated = StatedScenario(study(tmp_path, STUDY + LINKS), (), (), True)
    both = conditions_of(stated, ["pace=slow", "link=lossy", "link=calm"], [])
    assert [each.values for each in both] == [
        {"pace": "slow", "link": "lossy"},
        {"pace": "slow", "link": "calm"},
    ]
    assert both[0].overrides == ("devices.step_time=200 ms", "network.loss=0.5")
    assert [each.values for each in conditions_of(stated, [], [])] == [{}]


@pytest.mark.parametrize(
    "over, words",
    [
        (
            ["link=none"],
            "--over link=none: must be an axis and one of its values: method=alone|gossip; link=calm|lossy",
        ),
        (["link"], "--over link: must be an axis and one of its values: method="),
        (["link=calm", "link=calm"], "--over link=calm: appears twice; name each case once"),
    ],
)
def test_unknown_cases_are_refused(tmp_path: Path, over: list[str], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        conditions_of(StatedScenario(study(tmp_path, STUDY + LINKS), (), (), True), over, [])


def test_a_case_that_sets_a_searched_setting_is_refused(tmp_path: Path) -> None:
    fast = '[[sweep.case]]\naxis = "pace"\nname = "fast"\nset = ["training.learning_rate=0.3"]\n'
    path = study(tmp_path, STUDY + LINKS + fast)
    words = ["tune", str(path), "--methods", "gossip", "--over", "pace=fast", "--dry-run"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    said = (
        "--over pace=fast: sets training.learning_rate, but the search of gossip varies "
        "training.learning_rate; exclude it from the search with --keep training.learning_rate, or name "
        "another case"
    )
    assert said in " ".join(refused.output.split())
    assert CliRunner().invoke(app, [*words, "--keep", "training.learning_rate"]).exit_code == 0
    table = fast.replace("training.learning_rate=0.3", "protocol={name='gossip',period='1 s'}")
    path = study(tmp_path, STUDY + table)
    with pytest.raises(UserError, match=r"sets protocol, but the search of gossip varies protocol\.merge; "):
        conditions_of(
            StatedScenario(path, (), (), True), ["pace=fast"], tuning_of(path, ["alone", "gossip"]).methods
        )


def test_the_command_says_that_no_trial_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "still.py").write_text(METHOD.replace("== 5", "!= 9"), encoding="utf-8")
    path = study(tmp_path, STUDY.partition("[sweep]")[0].replace('name = "local"', 'name = "still.py:Still"'))
    monkeypatch.setattr("sim.cli.tuning.executor", lambda *how: (here, 1))
    words = ["tune", str(path), "--trials", "2", "--seeds", "11,", "--out", str(tmp_path / "out"), "--quiet"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 1
    assert "all trials failed: Still" in ended.output
    assert "To run the tuned methods" not in ended.output
    assert not [*(tmp_path / "out").glob(f"*/{TUNED}")]
