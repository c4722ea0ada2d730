"""Warnings of runs: every kind reaches every place with the figures of these runs."""

import csv
import html
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.studies import app
from sim.cli.watch import state
from sim.results.outcome import cautions
from sim.results.store.run_directory import RunDirectory
from sim.run import code_warnings
from sim.run.local_work import IterationWork, short_run_warning
from sim.studies.cells import Plan
from sim.studies.comparison import Comparison
from sim.studies.footnotes import Footnotes
from sim.studies.index import INDEX
from sim.studies.study import load_study
from sim.studies.sweep import SweepResult
from tests.results.synthetic import as_if_written
from tests.scenario.texts import SMALL, changed, write

Small = tuple[Plan, SweepResult]

FAILURE = {"actor": "client-1", "seconds": 2.0, "place": None, "error": "ValueError: mine"}
FAILED = {"stopped": ["client-1"], "errors": 1, "first": FAILURE, "restarts": 0}
PROBLEMS: dict[str, dict[str, Any]] = {
    "ended early": {"ended_by": "a full disk"},
    "ValueError: mine": {"failed": FAILED},
    "followed by a restart": {"failed": FAILED | {"stopped": [], "restarts": 2}},
    "diverged": {
        "non_finite": {"at_end": ["client-1"], "found": "nan", "client": "client-1", "seconds": 1.0}
    },
    "waits for a round": {"rounds": {"waits": 4, "in_vain": 4}},
    "no formula counts the operations": {"uncounted": ["aten.erf"]},
}
"""Facts of a summary, by a part of the text that reports them."""
LINES = [
    code_warnings._NOTHING_LEARNED,
    "no round ended by the end at 30 s: every model is the initial model",
    "no client ended an iteration by the end at 30 s: every model is the initial model",
    "the run is too short for 6 of 6 clients: one iteration",
    "no client was in a coalition by the end at 5 s: all metrics are from before the coalitions",
    "3 of 3 clients ended no iteration from 6 s to the end at 20 s",
    "auc is undefined for 1 of 3 clients (client-1), whose test samples are of one class",
    "reference cycles held 12 otherwise unreachable vectors until the next evaluation",
    "client-1 called self.send() at own.py:3 without await, which has no effect",
    "own.py:3 draws from random, whose numbers are not those of the seed",
    "2 errors were caught and not reported in the code of client-1; the first: own.py:3: ValueError",
    "own.py:3 reads the wall clock",
    "the hook Failing failed in started() and was removed: ValueError: mine",
    "<script>alert(1)</script> & 50% of_it",
]
"""Lines under `warnings`; each is the start of the line of its kind."""


def plain(text: str) -> str:
    """Undo the escapes of LaTeX."""
    return text.replace("\\textbackslash{}", "").replace("\\", "").replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture
def with_facts(small: Small, tmp_path: Path) -> Any:
    """Return a function that copies the study, with these facts in the summary of one gossip run."""

    def copied(facts: dict[str, Any]) -> Path:
        copy = tmp_path / "runs"
        shutil.copytree(small[1].directory.parent, copy)
        sweep = copy / small[1].directory.name
        cells = json.loads((sweep / INDEX).read_text())["cells"]
        own = next(cell for cell in cells if cell["values"] == {"method": "gossip", "network.loss": 0})
        summary = copy / own["directory"] / "summary.json"
        summary.write_text(json.dumps(json.loads(summary.read_text()) | facts))
        as_if_written(summary.parent)
        return sweep

    return copied


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "facts"), [*PROBLEMS.items(), *[(line, {"warnings": [line]}) for line in LINES]]
)
def test_every_kind_of_warning_reaches_every_place(
    with_facts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, facts: dict[str, Any]
) -> None:
    monkeypatch.setattr("sim.studies.pages.write_pictures", lambda *_: {})
    sweep, out = with_facts(facts), tmp_path / "out"
    [text] = cautions(json.loads(json.dumps(RunDirectory.load(_warned(sweep)).summary())))
    assert part in text
    done = CliRunner().invoke(app, ["compare", str(sweep), "--out", str(out)])
    assert done.exit_code == 0
    said = "\N{DAGGER} 1 of 2 runs of gossip, lost messages 0: "
    assert f"{said}{text}".replace("\N{NO-BREAK SPACE}", " ") in plain(done.stdout)
    marked = [line for line in done.stdout.splitlines() if " \N{DAGGER}" in line]
    assert marked and all(line.split()[:2] == ["gossip", "0"] for line in marked)
    with (out / "table.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    own = [row for row in rows if row["method"] == "gossip" and row["network.loss"] == "0"]
    assert {part in row["warnings"] for row in own} == {True}
    assert sum(bool(row["warnings"]) for row in rows) == len(own)
    tex = (out / "table.tex").read_text()
    assert "$\\dagger$" in tex and part in plain(tex)
    page = (out / "comparison.html").read_text()
    assert part in html.unescape(page) and "<script>alert" not in page


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "facts"), [*PROBLEMS.items(), *[(line, {"warnings": [line]}) for line in LINES]]
)
def test_every_kind_of_warning_is_in_the_lists_of_runs(
    with_facts: Any, part: str, facts: dict[str, Any]
) -> None:
    sweep = with_facts(facts)
    folder = str(sweep.parent)
    listed = CliRunner().invoke(app, ["runs", folder])
    assert listed.exit_code == 0 and "\N{DAGGER} " in listed.stdout and part in plain(listed.stdout)
    rows = csv.DictReader(CliRunner().invoke(app, ["runs", folder, "--csv"]).stdout.splitlines())
    assert sum(part in row["warnings"].lstrip("'") for row in rows) == 1
    found = state(sweep.parent)
    [ended] = [each for each in found["ended"] if each["bad"]]
    assert any(part in line for line in ended["bad"])
    # Other tests of this process may have run the study again, with fewer cells.
    runs = {cell["directory"] for cell in json.loads((sweep / INDEX).read_text())["cells"]}
    assert found["sweeps"][0]["bad"] == [f"1 of {len(runs)} runs with warnings"]


def _warned(sweep: Path) -> Path:
    folders = [sweep.parent / cell["directory"] for cell in json.loads((sweep / INDEX).read_text())["cells"]]
    [found] = [folder for folder in folders if cautions(RunDirectory.load(folder).summary())]
    return found


def test_footnotes_are_numbered_and_alike_ones_are_one() -> None:
    first, second = "3 of 6 clients ended nothing", "4 of 6 clients ended nothing"
    notes = Footnotes({"a": [[first, "no round ended"], [second]], "b": [[], []], "c": [["no round ended"]]})
    assert [notes.marks(group) for group in "abc"] == ["\N{DAGGER}1,2", "", "\N{DAGGER}2"]
    assert list(map(str, notes.lines)) == [
        f"\N{DAGGER}1 2 of 2 runs of a: {first}",
        "\N{DAGGER}2 1 of 2 runs of a; 1 of 1 run of c: no round ended",
    ]
    assert notes.text("a") == f"2 of 2 runs: {first}; 1 of 2 runs: no round ended"


def test_a_footnote_names_few_groups() -> None:
    notes = Footnotes({str(n): [["no round ended"]] for n in range(9)})
    [line] = map(str, notes.lines)
    assert line.endswith("1 of 1 run of 2; and in 6 other groups: no round ended")


# --- causes -------------------------------------------------------------------------------------------------

FEDAVG = changed(SMALL, 'name = "gossip"\nperiod = "500 ms"', 'name = "fedavg"')
SLOW = "devices.override=[{clients=[1],slowdown=150}]"  # an epoch takes 150 s in a run of 1 min


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["devices.step_time=70 s"], "the run is too short for 4 of 4 clients"),
        ([SLOW], "the run is too short for 1 of 4 clients"),
        (
            ["network.latency=40 s", "protocol.patience=2 min"],
            "no round ended by the end at 1 min: every model is",
        ),
    ],
)
def test_a_run_without_a_round_says_why_and_blames_no_method(
    tmp_path: Path, overrides: list[str], said: str
) -> None:
    sets = [word for each in overrides for word in ("--set", each)]
    out = tmp_path / "runs"
    words = ["run", str(write(tmp_path, FEDAVG)), *sets, "--quiet", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    [folder] = out.iterdir()
    warnings = RunDirectory.load(folder).summary()["warnings"]
    assert any(said in line for line in warnings), done.output
    assert not any("self.params" in line for line in warnings)
    assert f"warning: {warnings[0]}" in done.stderr
    table = Comparison(load_study([folder]))
    assert any(said in str(each) for each in table.footnotes.lines)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["devices.step_time=70 s"], "the run is too short for 4 of 4 clients: one iteration"),
        ([SLOW], "the run is too short for 1 of 4 clients"),
        (["protocol={name='local', local_epochs=500}"], "(protocol.local_epochs = 500) takes"),
        (["run.duration=2 min", "devices.step_time=1 s"], ""),
    ],
)
def test_a_check_says_before_the_run_that_it_is_too_short(
    tmp_path: Path, overrides: list[str], said: str
) -> None:
    sets = [word for each in overrides for word in ("--set", each)]
    done = CliRunner().invoke(app, ["check", str(write(tmp_path, FEDAVG)), *sets])
    assert done.exit_code == 0, done.output
    assert said in done.stderr and bool(said) == ("the run is too short" in done.stderr)


def test_a_budget_shortens_the_training_of_an_iteration() -> None:
    class Settings:
        model_fields = code_warnings.RoundSettings.model_fields
        local_steps, local_epochs = None, 2

    long = IterationWork(Settings(), steps_per_epoch=10, step_s=2.0)
    assert "protocol.local_epochs = 2) takes 40" in short_run_warning([long], 30.0)[0].replace(
        "\N{NO-BREAK SPACE}", " "
    ).replace("takes them", "takes")
    assert short_run_warning([long._replace(most=15)], 30.0) == []
    assert short_run_warning([long], None) == short_run_warning([long], 40.0) == []
    assert (
        short_run_warning([long._replace(settings=object.__new__(type("S", (), {"model_fields": {}})))], 1.0)
        == []
    )
