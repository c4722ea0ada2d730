"""Ctrl-C, SIGTERM and SIGHUP at every stage of the command: what is finished stays, nothing else does."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import sim.run.verifying
from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from sim.run.interrupts import Interrupts
from tests.simulation.worlds import QUADRATIC, simulation, write

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
BEGIN = """\
import os, signal, sys, time
from pathlib import Path
from protocols.decentralized.local import Local

class Own(Local):
    async def step(self):
        await super().step()
"""
SIGNALS_ITSELF = """
        if self.name == "client-3" and self.now == 1 and "COTERIE_TEST_SIGNAL" in os.environ:
            os.kill(os.getpid(), int(os.environ["COTERIE_TEST_SIGNAL"]))
"""
SIGNALS_WHO_VERIFIES = """
        if os.getppid() == int(os.environ["COTERIE_TEST_FIRST"]):
            Path(os.environ["COTERIE_TEST_SECOND"]).write_text(str(os.getpid()))
            os.kill(os.getppid(), int(os.environ["COTERIE_TEST_SIGNAL"]))
            time.sleep(600)
"""


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Result]:
    """Run a protocol whose step goes on like that; results go to `tmp_path`/runs."""

    def invoked(step: str, *options: str) -> Result:
        (tmp_path / "own.py").write_text(BEGIN + step)
        file = write(tmp_path, QUADRATIC.replace('name = "local"', 'name = "own.py:Own"'))
        return CliRunner().invoke(
            app, ["run", str(file), "--quiet", "--out", str(tmp_path / "runs"), *options]
        )

    return invoked


def results(folder: Path) -> dict[str, RunDirectory]:
    return {path.name: RunDirectory.load(path) for path in sorted((folder / "runs").iterdir())}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_they_end_a_run_between_two_events(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    before = signal.getsignal(number)
    monkeypatch.setenv("COTERIE_TEST_SIGNAL", str(int(number)))
    # What is answered by default would end this process.
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
    result = invoke(SIGNALS_ITSELF)
    monkeypatch.undo()
    signal.signal(number, before)
    assert result.exit_code == code, result.output
    assert result.stderr == "interrupted; the results so far are in that directory\n"
    [run] = results(tmp_path).values()
    summary = run.summary()
    assert (summary["virtual_seconds"], summary["interrupted"], summary["finished"]) == (1.0, True, False)


def test_one_that_is_ignored_stays_ignored(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by nohup."""
    monkeypatch.setenv("COTERIE_TEST_SIGNAL", str(int(signal.SIGHUP)))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert invoke(SIGNALS_ITSELF).exit_code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_an_interrupted_rerun_leaves_finished_results_alone(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    assert invoke(SIGNALS_ITSELF).exit_code == 0
    [(name, first)] = results(tmp_path).items()
    (first.path / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in first.path.iterdir() if path.is_file()}
    monkeypatch.setenv("COTERIE_TEST_SIGNAL", str(int(signal.SIGINT)))
    result = invoke(SIGNALS_ITSELF, *options)
    assert result.exit_code == 130
    assert f"{tmp_path / 'runs' / name} " in result.stderr, "it says that there are results"
    assert {path.name: path.read_bytes() for path in first.path.iterdir() if path.is_file()} == before
    assert list(results(tmp_path)) == [name, f"{name}-2"]
    assert results(tmp_path)[f"{name}-2"].summary()["interrupted"] is True
    said = "\nthe run was interrupted: earlier results are kept\n"
    assert (said in result.stderr) is ("--overwrite" in options)


@pytest.mark.parametrize(
    "end", ["raise RuntimeError('not today')", "await self.collect(str, self.peers, timeout=None)"]
)
def test_neither_a_failed_nor_a_deadlocked_run_replaces_finished_results(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    step = f"\n        if 'COTERIE_TEST_SIGNAL' in os.environ and self.now > 1:\n            {end}\n"
    assert invoke(step).exit_code == 0
    [(name, first)] = results(tmp_path).items()
    monkeypatch.setenv("COTERIE_TEST_SIGNAL", "0")
    result = invoke(step, "--overwrite")
    assert result.exit_code == 1
    if "raise" in end:
        assert "\nthe run failed: earlier results are kept\n" in result.stderr
    assert first.summary()["finished"] is True
    assert results(tmp_path)[f"{name}-2"].summary()["finished"] is False


def test_an_unfinished_rerun_takes_the_place_of_an_unfinished_one(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_TEST_SIGNAL", str(int(signal.SIGINT)))
    assert invoke(SIGNALS_ITSELF).exit_code == 130
    [(name, first)] = results(tmp_path).items()
    (first.path / "report.html").write_text("old")
    result = invoke(SIGNALS_ITSELF, "--overwrite")
    assert result.exit_code == 130
    assert f"{first.path} will be replaced when this run ends\n" in result.stderr
    assert "replaced nothing" not in result.stderr
    assert list(results(tmp_path)) == [name]
    assert (first.path / "report.html").read_text() != "old"


def test_a_finished_rerun_takes_the_place_if_asked_to(invoke: Callable[..., Result], tmp_path: Path) -> None:
    invoke("")
    [first] = results(tmp_path).values()
    (first.path / "notes.txt").write_text("mine")
    (first.path / "summary.json").write_text("{}")
    result = invoke("", "--overwrite")
    assert result.exit_code == 0
    [second] = results(tmp_path).values()
    assert result.stderr == f"{second.path} will be replaced when this run finishes\n"
    assert second.summary()["finished"] is True
    assert (second.path / "notes.txt").read_text() == "mine"


def test_before_the_simulation_starts_there_is_nothing_to_keep(tmp_path: Path) -> None:
    interrupts = Interrupts()
    with simulation(tmp_path, QUADRATIC) as built, interrupts.answered():
        monitored = built.run
        built.run = lambda: (os.kill(os.getpid(), signal.SIGINT), monitored())  # type: ignore[method-assign,assignment]
        with pytest.raises(KeyboardInterrupt):
            interrupts.run(built)
        assert built.loop.time() == 0.0


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_while_modules_are_imported(tmp_path: Path, number: int, code: int) -> None:
    """A module that this command imports early takes for ever, and would swallow an exception."""
    (tmp_path / "typer.py").write_text(
        f"import os, time\ntry:\n    os.kill(os.getpid(), {int(number)})\n    time.sleep(60)\n"
        "except BaseException:\n    pass\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-m", "sim", "run", "world.toml"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "interrupted\n")


@pytest.mark.long
def test_a_terminal_that_is_closed_does_not_cost_the_results(tmp_path: Path) -> None:
    started = tmp_path / "started"
    (tmp_path / "own.py").write_text(BEGIN + f"        Path({str(started)!r}).touch()\n")
    file = write(tmp_path, QUADRATIC.replace('name = "local"', 'name = "own.py:Own"'))
    terminal, process_side = os.openpty()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sim",
            "run",
            str(file),
            "--set",
            "run.duration=100000 h",
            "--out",
            str(tmp_path),
        ],
        stdin=process_side,
        stdout=process_side,
        stderr=process_side,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # it is told when its terminal goes
    )
    os.close(process_side)
    try:
        while not started.exists():
            assert process.poll() is None
            if select.select([terminal], [], [], 0.05)[0]:
                os.read(terminal, 10_000)
        os.close(terminal)
        assert process.wait(60) == 129
    finally:
        process.kill()
    [directory] = tmp_path.glob("world-1-*")
    assert RunDirectory.load(directory).summary()["interrupted"] is True


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), SIGNALS[1:2])
def test_verifying_ends_with_both_processes(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    second, temporary = tmp_path / "second", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("COTERIE_TEST_FIRST", str(os.getpid()))
    monkeypatch.setenv("COTERIE_TEST_SECOND", str(second))
    monkeypatch.setenv("COTERIE_TEST_SIGNAL", str(int(number)))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = signal.signal(number, signal.default_int_handler)
    try:
        result = invoke(SIGNALS_WHO_VERIFIES, "--verify")
    finally:
        signal.signal(number, before)
    assert result.exit_code == code, result.output
    assert result.stderr.endswith("interrupted before the end of the second run; the run is not verified\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(second.read_text()), 0)
    assert list(temporary.iterdir()) == []
    [run] = results(tmp_path).values()
    assert run.summary()["finished"] is True


def test_a_signal_while_the_second_run_is_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return popen(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sim.run.verifying._run_command([sys.executable, "-c", "import time; time.sleep(600)"], os.environ)
    assert time.monotonic() - before < 300
