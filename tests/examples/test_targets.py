"""Own targets with their own losses and measures: the examples, and measures that are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import ndcg_score
from typer.testing import CliRunner

import coterie
from sim.cli.studies import app
from sim.errors import UserError
from sim.results.measures import MEASURES, OF_COTERIE, Measure, measure_called
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.save.progress import Progress
from sim.run.save.progress_file import ProgressRecord
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from sim.studies.study import higher_is_better
from tests.simulation.worlds import DIGITS, QUADRATIC, write

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "targets"


def ran(folder: Path, name: str, *overrides: str) -> Path:
    """Run an example on copies of its files, and return the results."""
    for ending in ("py", "toml"):
        shutil.copy(EXAMPLES / f"{name}.{ending}", folder)
    scenario = load_scenario(folder / f"{name}.toml", overrides)
    directory = run_scenario(scenario, RunOptions(out=folder / "runs", device="cpu")).directory
    assert directory is not None
    return directory


def outputs_of(directory: Path, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of a client's last model for its test samples, and their targets."""
    test = build(load_scenario(directory / "scenario.toml"), device="cpu").engine.data.test
    x, y = test.of_each(np.array([client]), np.arange(test.counts[client]))
    return coterie.load(directory).predict(client, x[0]), y[0].numpy()


def last(directory: Path, client: int, name: str) -> float:
    rows = pl.read_parquet(directory / "metrics.parquet").filter(time=10.0, name=name)
    value: float = rows.filter(actor=f"client-{client}")["value"].item()
    return value


@pytest.mark.long
@pytest.mark.report
def test_segmentation_is_measured_by_the_overlap_of_masks(tmp_path: Path) -> None:
    directory = ran(tmp_path, "segmentation")
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["measure"] == "iou" and summary["iou"]["mean"] > 0.5
    assert summary["own_measures"] == [{"name": "iou", "label": "iou", "higher_is_better": True}]
    outputs, masks = outputs_of(directory, 1)
    overlaps = [
        (found & true).sum() / (found | true).sum()
        for found, true in zip(outputs > 0, masks > 0.5, strict=True)
    ]
    assert last(directory, 1, "iou") == pytest.approx(np.mean(overlaps), rel=1e-6)
    report = (directory / "report.html").read_text(encoding="utf-8")
    assert "iou" in report


@pytest.mark.long
def test_ranking_is_measured_by_order_alone_and_lower_ranks_are_better(tmp_path: Path) -> None:
    directory = ran(tmp_path, "ranking", "run.compare_alone=true", "training.learning_rate=0.01")
    outputs, relevances = outputs_of(directory, 2)
    assert last(directory, 2, "ndcg") == pytest.approx(ndcg_score(relevances, outputs, k=2))
    order = np.argsort(-outputs, axis=1)
    ranks = [1 + list(row).index(best) for row, best in zip(order, relevances.argmax(axis=1), strict=True)]
    assert last(directory, 2, "best_rank") == pytest.approx(np.mean(ranks))
    alone = [last(directory, client, "best_rank_alone") for client in range(4)]
    gained = [last(directory, client, "best_rank") < value for client, value in enumerate(alone)]
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["better_than_alone"] == np.mean(gained)

    better = ran(tmp_path, "ranking", "run.compare_alone=true", "training.learning_rate=0.3")
    MEASURES[:] = [each for each in MEASURES if each.name in OF_COTERIE]  # as in a new process
    assert higher_is_better("best_rank")
    RunDirectory.found(directory).summary()
    assert not higher_is_better("best_rank") and higher_is_better("ndcg")
    page = tmp_path / "comparison"
    done = CliRunner().invoke(app, ["compare", str(directory), str(better), "--out", str(page)])
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("0.3 ")]
    assert "best rank, IQM  better than baseline" in done.stdout
    assert [row[2] for row in rows if len(row) < 5] == ["100.0"]
    listed = CliRunner().invoke(app, ["runs", str(tmp_path / "runs")])
    assert listed.stdout.count("best_rank ") == 2


@pytest.mark.long
def test_a_run_with_own_measures_is_resumed_with_its_copy_of_the_code(tmp_path: Path) -> None:
    directory = ran(tmp_path, "ranking", "run.duration=5 s")
    (tmp_path / "ranking.py").write_text("raise OSError\n")
    done = CliRunner().invoke(app, ["resume", str(directory), "--until", "10 s", "--quiet"])
    assert done.exit_code == 0, done.output
    (report,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
    resumed = Path(report.removeprefix("report: ")).parent
    (tmp_path / "again").mkdir()
    whole = ran(tmp_path / "again", "ranking")
    for name in ("ndcg", "best_rank"):
        assert last(resumed, 3, name) == last(whole, 3, name)


@pytest.mark.long
def test_runs_with_two_directions_of_a_measure_are_not_compared(tmp_path: Path) -> None:
    folders = []
    for better in ("higher", "lower"):
        (tmp_path / better).mkdir()
        stated = ("run.duration=5 s", f"run.measures.0.better={better}")
        folders.append(ran(tmp_path / better, "ranking", *stated))
    done = CliRunner().invoke(app, ["compare", *map(str, folders)])
    assert done.exit_code == 2 and "has two directions" in done.stderr


FUNCTIONS = """
def good(outputs, targets): return 0.5
def accuracy(outputs, targets): return 0.5
def share_of_all(outputs, targets): return 0.5
def fails(outputs, targets): return 1 / 0
def text(outputs, targets): return "much"
def several(outputs, targets): return outputs
"""
REFUSED: dict[str, tuple[str, str]] = {
    "no direction": ('{name="own.py:good"}', r"run\.measures\.0\.better .*is missing"),
    "another direction": (
        '{name="own.py:good", better="more"}',
        'better = "more" .*must be one of higher, lower',
    ),
    "a key": ('{name="own.py:good", better="lower", k=3}', r"measures\.0\.k = 3 .*unknown key"),
    "no function": ('{name="own.py:missing", better="lower"}', "has no 'missing'"),
    "a name of coterie": (
        '{name="own.py:accuracy", better="lower"}',
        "a metric of coterie is already named accuracy",
    ),
    "one name twice": (
        '{name="own.py:good", better="lower"},{name="own.py:good", better="higher"}',
        "is also named good",
    ),
    "a name of parts": ('{name="own.py:share_of_all", better="lower"}', 'must not contain "_of_"'),
    "an error": ('{name="own.py:fails", better="lower"}', "own.py:5: fails failed: .*division by zero"),
    "text": ('{name="own.py:text", better="lower"}', "text returned 'much'; must return a number"),
    "an array": ('{name="own.py:several", better="lower"}', "several returned array"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsuitable_measures_are_refused(what: str, tmp_path: Path) -> None:
    stated, problem = REFUSED[what]
    write(tmp_path, FUNCTIONS, "own.py")
    with pytest.raises(UserError, match=problem):
        run_scenario(
            load_scenario(write(tmp_path, DIGITS), [f"run.measures=[{stated}]"]),
            RunOptions(out=tmp_path / "runs"),
        )


def test_data_without_targets_have_no_own_measures(tmp_path: Path) -> None:
    write(tmp_path, FUNCTIONS, "own.py")
    with pytest.raises(UserError, match=r"run\.measures = .*: need outputs and targets"):
        load_scenario(write(tmp_path, QUADRATIC), ['run.measures=[{name="own.py:good", better="lower"}]'])


def test_the_progress_of_another_process_names_its_measure() -> None:
    """Its direction is known only from the results."""
    measure = Measure("of_another", "of another", higher_is_better=False)
    progress = Progress("running", 1.0, 1.0, 2.0, 4.0, None, None, None, 0.5, 0, 4, 1, 1.0, measure)
    stored = ProgressRecord.of(progress, [(1.0, 0.5)]).model_dump_json()
    assert ProgressRecord.model_validate_json(stored).measure == "of_another"
    assert measure_called("of_another").label == "of another"
