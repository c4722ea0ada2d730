"""The command line: what it prints, and how it ends. Runs are replaced by stand-ins."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sim import console
from sim.cli import app
from sim.console import ProgressLine, results_table
from sim.errors import UserError
from sim.interrupts import Interrupted
from sim.results import text
from sim.scenario import Scenario
from sim.world.clock import Deadlock
from tests.scenario.texts import SMALL, write

SUMMARY: dict[str, Any] = {
    "scenario": "small",
    "protocol": "gossip",
    "seed": 3,
    "virtual_seconds": 60.0,
    "wall_seconds": 2.0,
    "trace_hash": "abc123",
    "clients": {"initial": 3, "joined": 1, "left": 0, "crashed": 1, "alive": 3},
    "accuracy": {"mean": 0.9, "std": 0.05, "worst_decile": 0.8},
    "better_than_alone": 0.75,
    "membership": {"sent": 150, "bytes": 40_000},
    "population": {
        "newcomers": 2,
        "caught_up": 1,
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


class Runs(ModuleType):
    """Stands in for sim.run."""

    def __init__(self) -> None:
        super().__init__("sim.run")
        self.calls: list[tuple[str, Scenario, dict[str, Any]]] = []
        self.summary = SUMMARY
        self.signal: int | None = None
        self.interrupted = False
        self.unwritten: tuple[str, ...] = ()
        self.difference: str | None = None
        self.error: BaseException | None = None

    def run_scenario(self, scenario: Scenario, **settings: Any) -> SimpleNamespace:
        self.calls.append(("run", scenario, settings))
        if self.error is not None:
            raise self.error
        if (progress := settings["progress"]) is not None:
            progress(30.0, scenario.run.duration, 0.5, 4, 600, 250.0)
        return SimpleNamespace(
            directory=Path("runs/small-3"),
            summary=self.summary,
            interrupted=self.interrupted,
            signal=self.signal,
            unwritten=self.unwritten,
        )

    def verify(self, scenario: Scenario, result: SimpleNamespace, **settings: Any) -> str | None:
        assert result.summary is self.summary
        self.calls.append(("verify", scenario, settings))
        return self.difference


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    import sim

    stand_in = Runs()
    monkeypatch.setitem(sys.modules, "sim.run", stand_in)
    monkeypatch.setattr(sim, "run", stand_in, raising=False)
    return stand_in


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Any]:
    path = write(tmp_path, SMALL)
    return lambda *options: CliRunner().invoke(app, ["run", str(path), *options])


def rendered(summary: Mapping[str, Any]) -> str:
    console = Console(file=StringIO(), width=100)
    console.print(results_table(summary))
    return " ".join(console.file.getvalue().split()).replace("\N{NO-BREAK SPACE}", " ")  # type: ignore[attr-defined]


def test_a_run_ends_with_the_table_and_the_report(runs: Runs, invoke: Callable[..., Any]) -> None:
    result = invoke("--seed", "3", "--set", "clients.count=5", "--out", "there", "--device", "cpu")
    assert result.exit_code == 0
    assert "abc123" in result.stdout
    assert result.stdout.splitlines()[-1] == f"report: {Path('runs/small-3/report.html')}"
    [(kind, scenario, settings)] = runs.calls
    assert (kind, scenario.run.seed, scenario.clients.count) == ("run", 3, 5)
    assert settings["out"] == Path("there")
    assert settings["device"] == "cpu"
    assert settings["data_dir"] is None


def test_quiet_shows_no_progress(runs: Runs, invoke: Callable[..., Any]) -> None:
    result = invoke("--quiet")
    assert result.stderr == ""
    assert runs.calls[0][2]["progress"] is None


def test_verified(runs: Runs, invoke: Callable[..., Any]) -> None:
    result = invoke("--verify")
    assert result.exit_code == 0
    assert [kind for kind, *_ in runs.calls] == ["run", "verify"]
    assert result.stdout.splitlines()[-1] == "verified: the second run has the same trace"


def test_a_difference_fails(runs: Runs, invoke: Callable[..., Any]) -> None:
    runs.difference = "event 12 at 3.5 s"
    result = invoke("--verify")
    assert result.exit_code == 1
    assert result.stderr.endswith("\nthe second run differs: event 12 at 3.5 s\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_with_results(runs: Runs, invoke: Callable[..., Any], number: int, code: int) -> None:
    runs.interrupted, runs.signal = True, number
    result = invoke("--verify")
    assert result.exit_code == code
    assert [kind for kind, *_ in runs.calls] == ["run"]
    assert "report: " in result.stdout
    assert result.stderr == "interrupted; the results up to then are in that directory\n"


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


def test_a_run_that_nobody_survived_has_failed(runs: Runs, invoke: Callable[..., Any]) -> None:
    runs.summary = SUMMARY | {"failures": ["client-1: bug"], "clients": SUMMARY["clients"] | {"alive": 0}}
    result = invoke()
    assert result.exit_code == 1
    assert "failed: client-1: bug" in result.stdout
    assert result.stderr.endswith("no client survived; the first failure: client-1: bug\n")


def test_the_table_of_results() -> None:
    table = rendered(SUMMARY)
    for part in (
        "small, seed 3",
        f"{text.share(0.9)} ± {text.share(0.05)}, worst 10 %: {text.share(0.8)}",
        f"{text.share(0.75)} of the clients",
        f"precision {text.share(1.0)}, recall {text.NOTHING}; L1 distance 0.125",
        "3 at first, 1 joined, 1 crashed, 3 at the end",
        f"1 of 2 reached 90 % of the others' accuracy after {text.duration(5.0)} (median)",
        f"accuracy fell by {text.share(0.125)} at most; back after 2 of 3, at most {text.duration(18.0)}",
        f"1,200 ({text.size(4_000_000)}), 10 lost, 3 duplicated",
        f"150 ({text.size(40_000)}, {text.share(0.01)} of all bytes)",
        f"{text.duration(60.0)} virtual, {text.duration(2.0)} real",
        "450 (225/s)",
        "abc123",
    ):
        assert part.replace("\N{NO-BREAK SPACE}", " ") in table


def test_the_table_leaves_out_what_a_run_has_not() -> None:
    nothing = {
        "accuracy": {"mean": None, "std": None, "worst_decile": None},
        "better_than_alone": None,
        "population": None,
        "graph": {"l1": None, "edge_precision": None, "edge_recall": None},
    }
    table = rendered(SUMMARY | nothing)
    for part in ("accuracy", "alone", "graph", "newcomers", "departures"):
        assert part not in table


def test_progress_elsewhere_than_on_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    output = StringIO()
    with ProgressLine(Console(file=output, width=40)) as progress:
        for step in range(1, 26):
            now[0] += 1.0
            progress(float(step), 60.0, None, 4, 1000 * step, 250.0)
    lines = output.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert lines == [
        "10 s of 1 min, 4 clients up, 10,000 messages, 250 updates/s",
        "20 s of 1 min, 4 clients up, 20,000 messages, 250 updates/s",
    ]


def test_progress_on_a_terminal_is_a_bar_that_goes_away() -> None:
    output = StringIO()
    with ProgressLine(Console(file=output, width=120, force_terminal=True)) as progress:
        progress(30.0, None, 0.5, 4, 600, 250.0)
        progress(30.0, 60.0, 0.5, 4, 600, 250.0)
    shown = output.getvalue().replace("\N{NO-BREAK SPACE}", " ")
    assert "30 s of 1 min, accuracy 50" in shown
    assert "4 clients up, 600 messages, 250 updates/s" in shown
    assert shown.endswith("\x1b[2K")


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
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["list", "scenarios"]).exit_code == 2
    (tmp_path / "scenarios").mkdir()
    write(tmp_path / "scenarios", SMALL)
    result = CliRunner().invoke(app, ["list", "scenarios"])
    assert result.stdout == f"{Path('scenarios/small.toml')}  Does a small scenario load?\n"


def test_the_schema_is_json() -> None:
    result = CliRunner().invoke(app, ["schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["required"][0] == "run"


def test_a_report_of_no_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not a result directory" in result.output


@pytest.mark.parametrize("options", [["--device", "tpu"], ["--seed", "x"], ["--nonsense"]])
def test_wrong_options_are_refused(invoke: Callable[..., Any], options: list[str]) -> None:
    assert invoke(*options).exit_code == 2


def test_lists_and_refusals_do_not_import_torch(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL.replace("count = 4", "count = 0"))
    program = (
        "import sys\n"
        "from sim.cli import app\n"
        "for arguments in (['list', 'protocols'], ['list', 'models'], ['check', sys.argv[1]]):\n"
        "    app(arguments, standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "clients.count = 0" in finished.stderr
