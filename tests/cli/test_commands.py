"""The command line: what it prints, and how it ends. Runs are replaced by stand-ins."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import pytest
from rich.console import Console
from typer.testing import CliRunner

import sim.run
from sim.cli.commands import app
from sim.cli.console import ProgressLine, results_table
from sim.cli.studies import app as app_of_studies
from sim.cli.tuning import app as app_of_tuning
from sim.errors import UserError
from sim.kernel.clock import Deadlock
from sim.results import text
from sim.results.measures import measure_called
from sim.run import verifying
from sim.run.interrupts import Interrupted
from sim.run.options import RunOptions
from sim.run.save.progress import ALONE, RUNNING, Progress
from sim.scenario.scenario import Scenario
from tests.scenario.texts import SMALL, write

SCENARIOS = Path(sim.__path__[0]).parent / "scenarios"

SUMMARY: dict[str, Any] = {
    "scenario": "small",
    "protocol": "gossip",
    "seed": 3,
    "virtual_seconds": 60.0,
    "wall_seconds": 2.0,
    "trace_hash": "abc123",
    "client_names": [f"client-{k}" for k in range(4)],
    "clients": {"initial": 3, "joined": 1, "rejoined": 1, "left": 0, "crashed": 2, "failed": 0, "alive": 3},
    "accuracy": {"clients": 3, "mean": 0.9, "std": 0.05, "worst_decile": 0.8},
    "settled": {"iterations": 30, "clients": 2, "mean": 0.95, "std": 0.01, "worst_decile": 0.94},
    "better_than_alone": 0.75,
    "help": {
        "better": 3,
        "worse": 1,
        "mean_alone": 0.8,
        "mean_gain": 0.1,
        "least": {"client": "client-2", "gain": -0.05},
        "most": {"client": "client-0", "gain": 0.2},
    },
    "membership": {"sent": 150, "bytes": 40_000},
    "population": {
        "newcomers": 2,
        "came_back": 0,
        "caught_up": 1,
        "went_before": 1,
        "still_behind": 0,
        "catch_up_seconds": {"median": 5.0, "max": 5.0},
        "departures": 3,
        "recovered": 2,
        "recovery_seconds": {"median": 12.0, "max": 18.0},
        "deepest_dip": 0.125,
    },
    "graph": {"l1": 0.125, "edge_precision": 1.0, "edge_recall": None},
    "messages": {
        "sent": 1200,
        "delivered": 1190,
        "lost": 10,
        "dropped": 0,
        "duplicated": 3,
        "in_flight": 0,
        "bytes": 4_000_000,
    },
    "engine": {
        "jobs": 500,
        "batches": 10,
        "mean_batch": 50.0,
        "seconds": 1.0,
        "updates": 450,
        "device": "cpu",
        "ways": ["dense"],
        "memory": 3_000_000,
        "memory_per_client": 1_000_000.0,
    },
    "device_time": {"busy": 1.0, "waiting": 1.0, "down": 0.0},
    "failures": [],
}
POPULATION = SUMMARY["population"]
WORK = {name: {"min": 1000, "max": 1767} for name in ("steps", "samples")} | {
    "gradients": {"min": 5, "max": 5}
}
END = {"client": "client-0", "gain": 0.0}

AT_HALF_TIME = Progress(
    phase=RUNNING,
    elapsed_s=40.2,
    remaining_s=38.9,
    virtual_s=30.0,
    duration_s=60.0,
    iterations=None,
    last_iteration=None,
    budget_spent=None,
    reached=0.5,
    diverged=0,
    clients_up=4,
    messages=600,
    updates_per_s=250.0,
)


REPORT = Path("runs/small-3/report.html")


class Runs(ModuleType):
    """Stands in for sim.run.running."""

    def __init__(self) -> None:
        super().__init__("sim.run.running")
        self.calls: list[tuple[str, Scenario, dict[str, Any]]] = []
        self.summary = SUMMARY
        self.signal: int | None = None
        self.interrupted = False
        self.unwritten: tuple[str, ...] = ()
        self.difference: str | None = None
        self.error: BaseException | None = None

    def run_scenario(self, scenario: Scenario, options: RunOptions, **earlier: Any) -> SimpleNamespace:
        self.calls.append(("run", scenario, vars(options) | earlier))
        if self.error is not None:
            raise self.error
        if options.progress is not None:
            options.progress(AT_HALF_TIME)
        return SimpleNamespace(
            directory=Path("runs/small-3"),
            summary=self.summary,
            interrupted=self.interrupted,
            signal=self.signal,
            unwritten=self.unwritten,
        )

    def verify(self, scenario: Scenario, result: SimpleNamespace, options: RunOptions) -> str | None:
        assert result.summary is self.summary
        self.calls.append(("verify", scenario, vars(options)))
        return self.difference


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    stand_in = Runs()
    monkeypatch.chdir(tmp_path)
    REPORT.parent.mkdir(parents=True)
    REPORT.touch()
    monkeypatch.setitem(sys.modules, "sim.run.running", stand_in)
    monkeypatch.setattr(sim.run, "running", stand_in, raising=False)
    monkeypatch.setattr(verifying, "verify", stand_in.verify)
    return stand_in


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Any]:
    path = write(tmp_path, SMALL)
    return lambda *options: CliRunner().invoke(app, ["run", str(path), *options])


def rendered(summary: Mapping[str, Any]) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(results_table(summary))
    return " ".join(console.file.getvalue().split()).replace("\N{NO-BREAK SPACE}", " ")  # type: ignore[attr-defined]


def test_a_run_ends_with_the_table_and_the_report(runs: Runs, invoke: Callable[..., Any]) -> None:
    result = invoke("--seed", "3", "--set", "clients.count=5", "--out", "there", "--device", "cpu")
    assert result.exit_code == 0
    assert "abc123" in result.stdout
    assert result.stdout.splitlines()[-1] == f"report: {REPORT}"
    [(kind, scenario, settings)] = runs.calls
    assert (kind, scenario.run.seed, scenario.clients.count) == ("run", 3, 5)
    assert settings["out"] == Path("there")
    assert settings["device"] == "cpu"
    assert settings["data_dir"] is None


def test_a_checkpoint_that_would_come_after_the_end_is_refused(
    runs: Runs, invoke: Callable[..., Any]
) -> None:
    result = invoke("--set", "run.duration=60 s", "--checkpoint-at", "60 s", "--checkpoint-at", "90 s")
    assert result.exit_code == 2 and not runs.calls
    said = "--checkpoint-at 90 s is after the end of the run; must be at most run.duration (1 min)"
    assert said in result.stderr
    assert invoke("--set", "run.duration=60 s", "--checkpoint-at", "60 s").exit_code == 0
    assert runs.calls[0][2]["checkpoints_s"] == [60.0]


def test_quiet_shows_no_progress(runs: Runs, invoke: Callable[..., Any]) -> None:
    result = invoke("--quiet")
    assert result.stderr == ""
    assert runs.calls[0][2]["progress"] is None


def test_verified(runs: Runs, invoke: Callable[..., Any]) -> None:
    result = invoke("--verify", "--device", "cpu", "--data-dir", ".")
    assert result.exit_code == 0
    assert [kind for kind, *_ in runs.calls] == ["run", "verify"]
    (_, _, of_run), (_, _, of_verify) = runs.calls
    repeated = [each.name for each in fields(RunOptions) if each.name not in verifying.WITHOUT_EFFECT]
    assert [of_verify[name] for name in repeated] == [of_run[name] for name in repeated]
    assert result.stdout.splitlines()[-1] == "verified: the second run has the same trace"


def test_a_difference_fails(runs: Runs, invoke: Callable[..., Any]) -> None:
    runs.difference = "event 12 at 3.5 s"
    result = invoke("--verify")
    assert result.exit_code == 1
    assert result.stderr.endswith("\nthe second run differs: event 12 at 3.5 s\n")


def test_without_a_report_the_results_are_named(runs: Runs, invoke: Callable[..., Any]) -> None:
    REPORT.unlink()
    result = invoke()
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"results: {REPORT.parent}"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_with_results(runs: Runs, invoke: Callable[..., Any], number: int, code: int) -> None:
    runs.interrupted, runs.signal = True, number
    result = invoke("--verify")
    assert result.exit_code == code
    assert [kind for kind, *_ in runs.calls] == ["run"]
    assert "report: " in result.stdout
    assert result.stderr == "interrupted; the results so far are in that directory\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted before there were results\n"),
        (Interrupted(signal.SIGTERM), 143, "interrupted before there were results\n"),
        (UserError("data.name: no such data"), 2, "small.toml: data.name: no such data\n"),
        (Deadlock(3.5, [("client-1", "answer to Pull")]), 1, "the run failed: "),
    ],
)
def test_endings(
    runs: Runs, invoke: Callable[..., Any], error: BaseException, code: int, message: str
) -> None:
    runs.error = error
    result = invoke()
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_what_could_not_be_written_is_said(runs: Runs, invoke: Callable[..., Any]) -> None:
    runs.unwritten = ("events.parquet: No space left on device",)
    result = invoke("--verify")
    assert result.exit_code == 1
    assert "abc123" in result.stdout, "the outcome is shown all the same"
    assert "report: " not in result.stdout
    assert [kind for kind, *_ in runs.calls] == ["run"]
    assert result.stderr.splitlines()[-3:] == [
        "not all results could be written:",
        "events.parquet: No space left on device",
        f"the others are in {Path('runs/small-3')}",
    ]


def test_an_error_in_a_run_keeps_its_traceback(runs: Runs, invoke: Callable[..., Any]) -> None:
    runs.error = ZeroDivisionError("a bug")
    result = invoke()
    assert result.exit_code == 1
    assert result.exception is runs.error


def test_a_run_with_failed_clients_has_failed(runs: Runs, invoke: Callable[..., Any]) -> None:
    first = {"actor": "client-1", "seconds": 2.0, "error": "ValueError: bug"}
    failed = {"stopped": ["client-1"], "restarts": 0, "errors": 1, "first": first}
    runs.summary = SUMMARY | {"failures": ["client-1: bug"], "failed": failed}
    result = invoke()
    assert result.exit_code == 1
    assert "failed: client-1: bug" in result.stdout
    said = "the run failed: 1 of 4 clients failed: ValueError: bug (first: client-1 at 2 s)\n"
    assert result.stderr.replace("\N{NO-BREAK SPACE}", " ").endswith(said)


def test_the_table_of_results() -> None:
    table = rendered(SUMMARY)
    for part in (
        "small, seed 3",
        f"{text.share(0.9)} ± {text.share(0.05)}, worst 10%: {text.share(0.8)} (3 of 4 clients)",
        f"{text.share(0.75)} of the clients",
        f"+10.0 points on average, {text.percentage_points(-0.05)} (client-2) to +20.0 (client-0), "
        "1 worse off",
        f"precision {text.share(1.0)}, recall {text.NOTHING}; L1 distance 0.125",
        "3 at the start, 1 joined, 1 rejoined, 2 crashed, 3 at the end",
        f"{text.share(0.95)} ± {text.share(0.01)}, worst 10%: {text.share(0.94)} (2 with at least 30",
        "1 of 2 reached 90% of the other clients' accuracy, 1 departed earlier; median 5 s (Kaplan-Meier)",
        f"accuracy fell by 12.5 points at most; recovered after 2 of 3, in at most {text.duration(18.0)}",
        f"1,200 ({text.size(4_000_000)}), 10 lost, 3 duplicated",
        f"150 ({text.size(40_000)}, {text.share(0.01)} of all bytes)",
        f"{text.duration(60.0)} virtual, simulated in {text.duration(2.0)}",
        "450 (225/s)",
        "abc123",
    ):
        assert part.replace("\N{NO-BREAK SPACE}", " ") in table


def test_the_table_leaves_out_what_a_run_has_not() -> None:
    nothing = {
        "accuracy": {"clients": 0, "mean": None, "std": None, "worst_decile": None},
        "settled": None,
        "better_than_alone": None,
        "help": None,
        "population": None,
        "graph": {"l1": None, "edge_precision": None, "edge_recall": None},
    }
    table = rendered(SUMMARY | nothing)
    for part in ("accuracy", "settled", "alone", "graph", "newcomers", "departures"):
        assert part not in table


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alone": True}, "gossip, alone"),
        ({"work": WORK}, "1,000 to 1,767 steps, 5 gradients, 1,000 to 1,767 samples"),
        ({"interrupted": True, "virtual_seconds": 30.0}, "interrupted │ after 30 s"),
        (
            {"help": SUMMARY["help"] | {"least": END, "most": END}},
            "+10.0 points on average, the same",
        ),
        (
            {"population": POPULATION | {"catch_up_seconds": {"median": None}}},
            "fewer than half reached it (Kaplan",
        ),
        (
            {"population": POPULATION | {"deepest_dip": 0.0001}},
            "accuracy fell by less than 0.1 points",
        ),
    ],
)
def test_what_the_table_says_of_other_runs(changes: dict[str, Any], said: str) -> None:
    assert said in rendered(SUMMARY | changes)
    assert said not in rendered(SUMMARY)


def test_departures_that_cost_nothing_are_not_told_of() -> None:
    assert "departures" not in rendered(SUMMARY | {"population": POPULATION | {"deepest_dip": 0.0}})


def told(*steps: Progress, **console: Any) -> str:
    """What is shown of a run's progress."""
    output = StringIO()
    with ProgressLine(Console(file=output, width=console.pop("width", 40), **console)) as progress:
        for step in steps:
            progress(step)
    return output.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def test_progress_elsewhere_than_on_a_terminal_is_a_line_a_minute() -> None:
    of_seconds = [replace(AT_HALF_TIME, elapsed_s=float(s), messages=1000 * s) for s in range(1, 200)]
    rest = "about 39 s left, virtual time 30 s of 1 min, accuracy 50.0%, 4 clients up"
    assert told(*of_seconds).splitlines() == [
        f"{elapsed} elapsed, {rest}, {messages} messages, 250 updates/s"
        for elapsed, messages in [("1 min", "60,000"), ("2 min", "120,000"), ("3 min", "180,000")]
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"iterations": 1200, "last_iteration": 5000, "diverged": 2}, "1,200 of 5,000 iterations"),
        ({"diverged": 2}, "accuracy 50.0%, 2 models not finite, 4 clients up"),
        ({"budget_spent": 0.25}, "25.0% of the budget used"),
        ({"measure": measure_called("perplexity"), "reached": 12.5}, "perplexity 12.5, 4 clients up"),
    ],
)
def test_progress_of_runs_that_end_by_something_else_than_time(changes: dict[str, Any], said: str) -> None:
    line = told(replace(AT_HALF_TIME, duration_s=None, elapsed_s=75.0, remaining_s=None, **changes))
    assert line.startswith("1 min 15 s elapsed, virtual time 30 s, ") and said in line


@pytest.mark.parametrize(("first_s", "lines"), [(10.0, 0), (61.0, 2)])
def test_what_follows_a_long_run_is_said_when_it_begins(first_s: float, lines: int) -> None:
    begun = replace(AT_HALF_TIME, elapsed_s=first_s)
    said = told(begun, replace(begun, elapsed_s=first_s + 1, phase=ALONE)).splitlines()
    assert len(said) == lines
    assert said[1:] == ["1 min 2 s elapsed, training alone for comparison"] * (lines > 0)


def test_progress_on_a_terminal_is_a_bar_that_goes_away() -> None:
    shown = told(AT_HALF_TIME, width=150, force_terminal=True)
    assert "about 39 s left, virtual time 30 s of 1 min, accuracy 50" in shown
    assert "4 clients up, 600 messages, 250 updates/s" in shown
    assert "0:00:00" in shown, "the time that has elapsed, which goes on by itself"
    assert shown.endswith("\x1b[2K")


def test_progress_on_a_narrow_terminal_is_one_line() -> None:
    shown = told(AT_HALF_TIME, width=80, force_terminal=True)
    [line] = [line for line in shown.split("\n") if "about 39" in line]
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in line.rpartition("\r")[2], "the bar is still there"
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("protocols", "cobo"),
        ("datasets", "fashion-mnist"),
        ("models", "resnet9"),
        ("partitions", "permuted-clusters"),
    ],
)
def test_lists(what: str, name: str) -> None:
    result = CliRunner().invoke(app, ["list", what])
    assert result.exit_code == 0
    [line] = [line for line in result.stdout.splitlines() if line.startswith(f"{name} ")]
    assert len(line.split()) > 3


def test_the_list_of_scenarios_shows_their_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> list[list[str]]:
        result = CliRunner().invoke(app, ["list", "scenarios"])
        assert result.exit_code == 0
        return [line.split(maxsplit=1) for line in result.stdout.splitlines()]

    monkeypatch.chdir(tmp_path)
    question = "Does CoBo find the clients with the same labels "
    question += "while one client is slow, one joins late and one crashes?"
    assert [str(SCENARIOS / "quickstart.toml"), question] in listed()
    (tmp_path / "scenarios").mkdir()
    write(tmp_path / "scenarios", SMALL)
    write(tmp_path / "scenarios", SMALL, "quickstart.toml")
    (tmp_path / "scenarios" / "folder.toml").mkdir()
    assert listed()[:3] == [
        [str(Path("scenarios/folder.toml")), "cannot be read: it is a folder; name a scenario file in it"],
        [str(Path("scenarios/quickstart.toml")), "Does a small scenario load?"],
        [str(Path("scenarios/small.toml")), "Does a small scenario load?"],
    ]
    names = [Path(path).stem for path, _ in listed()]
    assert len(names) == len(set(names))  # one's own comes before ours of that name


@pytest.mark.parametrize("name", ["quickstart", "quickstart.toml"])
def test_a_scenario_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Runs, name: str
) -> None:
    def ran() -> Path | None:
        assert CliRunner().invoke(app, ["run", name, "--quiet"]).exit_code == 0
        return runs.calls[-1][1].path

    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # a folder is no scenario
    assert ran() == SCENARIOS / "quickstart.toml"
    (tmp_path / "scenarios").mkdir()
    write(tmp_path / "scenarios", SMALL, "quickstart.toml")
    assert ran() == Path("scenarios/quickstart.toml")
    write(tmp_path, SMALL, "quickstart.toml")
    assert ran() == Path("quickstart.toml")


@pytest.mark.parametrize(
    "path", ["quikstart", "quikstart.toml", "scenaros/quickstart.toml", "../quickstart.toml"]
)
def test_a_mistyped_path_is_answered_with_what_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", path])
    assert result.exit_code == 2
    meant = SCENARIOS / "quickstart.toml"
    assert result.stderr == f"{path}: no such scenario file; did you mean {meant}?\n"


def test_a_name_like_none_is_answered_with_where_names_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "zzz"])
    expected = "zzz: no such scenario file; `coterie list scenarios` lists the known scenarios\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"coterie {version('coterie')}\n")


@pytest.mark.long
def test_the_schema_is_json() -> None:
    result = CliRunner().invoke(app, ["schema"])
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    assert schema["else"]["required"][0] == "run"  # but for a file that holds a sweep alone
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"sweep": {"scenario": "other.toml"}})
    assert not validator.is_valid({"sweep": {}})


def test_a_sweep_alone_is_checked_with_the_scenario_whose_runs_it_has(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    file = tmp_path / "alone.toml"
    file.write_text('[sweep]\nscenario = "small.toml"\nseeds = 2\n[sweep.grid]\nclients.count = [4, 5]\n')

    def said(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["check", str(file), *options])
        return result.exit_code, result.output

    code, output = said()
    assert code == 0 and "clients   4" in output and "sweep     4 runs\n" in output
    assert "sweep     6 runs\n" in said("--set", "sweep.seeds=3")[1]
    assert "sweep     2 runs\n" in said("--unset", "sweep.seeds")[1]
    code, output = said("--set", "sweep.seeds=0")
    assert code == 2 and output.startswith(f"{file}: sweep.seeds = 0 (from --set): must be a whole number")
    code, output = said("--set", "clients.count=0")
    assert code == 2 and "small.toml: clients.count = 0" in output


def test_each_combination_of_a_sweep_is_checked_with_its_data(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    file = tmp_path / "alone.toml"
    file.write_text('[sweep]\nscenario = "small.toml"\n[sweep.grid]\nclients.count = [4, 2000]\n')
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2 and "ok" not in result.stdout and "samples" in result.stderr
    assert result.stderr.endswith("in the runs with clients.count = 2000\n")
    counts = [*range(4, 25)]
    file.write_text(f'[sweep]\nscenario = "small.toml"\nseeds = 2\n[sweep.grid]\nclients.count = {counts}\n')
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 0 and "sweep     42 runs\n" in result.stdout
    assert result.stderr == f"{file}: checking 21 combinations of values\n"


def test_a_study_is_checked_as_its_runs_are_and_not_without_its_cases(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    file = tmp_path / "study.toml"
    file.write_text(
        '[sweep]\nscenario = "small.toml"\nset = ["protocol.name=fedsim"]\n'
        '[[sweep.case]]\naxis = "model"\nname = "small"\n'
        "set = [\"model={name = 'decoupled', backbones = ['small-mlp']}\"]\n"
        '[[sweep.case]]\naxis = "model"\nname = "slow"\n'
        "set = [\"model={name = 'decoupled', backbones = ['deep-mlp']}\", \"devices.step_time=1 h\"]\n"
    )
    result = CliRunner().invoke(app, ["check", str(file), "--seed", "3"])
    assert result.exit_code == 0, result.stderr
    assert "protocol  fedsim\n" in result.stdout and "sweep     2 runs\n" in result.stdout
    (too_short,) = [line for line in result.stderr.splitlines() if "the run is too short" in line]
    assert too_short.endswith(" (in the runs with model = slow)")


def test_a_scenario_that_is_invalid_without_its_sweep_is_checked_as_its_runs_are(tmp_path: Path) -> None:
    base = SMALL + "[[sweep.case]]\naxis = 'm'\nname = 'many'\nset = ['clients.count=4']\n"
    file = write(tmp_path, base.replace("count = 4", "count = 2000"))
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 0, result.stderr
    assert "clients   4\n" in result.stdout and "sweep     1 run\n" in result.stdout
    assert f"{file}: coterie run, which ignores the [sweep], refuses this file: " in result.stderr


def test_the_data_of_each_seed_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    base = SCENARIOS / "l2c_fashion_mnist.toml"
    partition = "data.partition={kind='classes-per-client', classes=2, samples_per_client=80}"
    file.write_text(
        f'[sweep]\nscenario = "{base}"\nseeds = [1, 2]\n'
        f'set = ["data.name=digits", "{partition}", "data.test_samples=20", "clients.count=8"]\n'
        "[sweep.grid]\nnetwork.loss = [0, 0.1]\n"
    )
    assert CliRunner().invoke(app, ["check", str(file), "--set", "sweep.seeds=[1]"]).exit_code == 0
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2 and "samples, 23 of them not yet taken" in result.stderr
    assert result.stderr.endswith("in the runs with network.loss = 0, seed = 2\n")


def test_an_error_in_a_key_that_a_study_sets_for_all_runs_names_the_sweep(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    file = tmp_path / "study.toml"
    file.write_text(
        '[sweep]\nscenario = "small.toml"\nset = ["protocol.name=gossip", "protocol.gamma=0.1"]\n'
        '[[sweep.case]]\naxis = "method"\nname = "local"\nset = ["protocol.name=local"]\n'
    )
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2 and "small.toml: protocol.gamma = 0.1 (from the sweep): " in result.stderr
    lines = result.stderr.splitlines()
    assert lines[1:] == [
        "in the runs with method = local",
        "put a key that only some runs have into `set` of a [[sweep.case]]",
    ]


@pytest.mark.parametrize(("asked", "seeds"), [("1", "1"), ("2", "1 2"), ("7,", "7"), ("7,5", "7 5")])
def test_seeds_of_a_sweep_are_so_many_or_these(asked: str, seeds: str) -> None:
    words = ["sweep", "gossip", "--set", "network.loss=0", "--seeds", asked, "--dry-run"]
    done = CliRunner().invoke(app_of_studies, words)
    assert done.stdout.splitlines() == [f"seed {seed}" for seed in seeds.split()]


SHORT_GOSSIP = ("--set", "run.duration=2 s", "--set", "run.evaluate_every=2 s")


@pytest.mark.long
@pytest.mark.parametrize("command", ["run gossip", "sweep gossip --set network.loss=0"])
def test_a_cluster_that_is_not_used_is_refused_unless_the_environment_names_it(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def said(*options: str) -> tuple[int, str]:
        words = [*command.split(), "--out", str(tmp_path), *SHORT_GOSSIP, *options]
        result = CliRunner().invoke(app_of_studies, words)
        return result.exit_code, result.output

    code, output = said("--address", "10.0.0.5:6379")
    assert code == 2 and "--address" in output and "needs --on ray" in output
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.5:6379")
    assert said("--quiet")[0] == 0


@pytest.mark.parametrize("command", ["sweep gossip --set network.loss=0", "tune gossip"])
def test_gpus_are_refused_without_ray(command: str, tmp_path: Path) -> None:
    for gpus in ("0", "0.5"):
        words = [*command.split(), "--out", str(tmp_path), "--gpus", gpus]
        result = CliRunner().invoke(app_of_tuning, words)
        assert result.exit_code == 2
        assert "--gpus" in result.output and "needs --on ray" in result.output
    assert not list(tmp_path.iterdir())


_HEAVY = ("torch", "sklearn", "scipy", "pandas", "polars", "pyarrow", "plotly")


@pytest.mark.long
@pytest.mark.parametrize(
    ("commands", "forbidden"),
    [
        ([["--help"], ["--version"]], (*_HEAVY, "numpy", "pydantic", "asyncio")),
        ([["list", "protocols"], ["list", "models"], ["list", "scenarios"]], _HEAVY),
        ([["check", "quickstart"], ["check", "gossip"], ["check", "fedavg"]], _HEAVY),
        ([["check", "REFUSED"]], _HEAVY),
    ],
)
def test_commands_import_no_more_than_they_need(
    commands: list[list[str]], forbidden: tuple[str, ...], tmp_path: Path
) -> None:
    """None of these: they take up to a second each."""
    refused = write(tmp_path, SMALL.replace("count = 4", "count = 0"))
    program = (
        "import json, sys\n"
        "from sim.cli.live import app\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    app(arguments, standalone_mode=False)\n"
        "print(*[name for name in sys.argv[2:] if name in sys.modules], file=sys.stderr)\n"
    )
    stated = json.dumps([[str(refused) if each == "REFUSED" else each for each in one] for one in commands])
    finished = subprocess.run(
        [sys.executable, "-c", program, stated, *forbidden], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    *said, imported = finished.stderr.splitlines()
    assert imported == ""
    assert ("clients.count = 0" in "".join(said)) == (commands[0][1:] == ["REFUSED"])
