"""A method that computes on and on, without virtual time, is named, and the second signal ends it."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from protocols.decentralized.local import Local
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.watchdog import Watchdog
from sim.scenario.scenario import load_scenario
from tests.simulation.worlds import QUADRATIC, load, write

SPINS = """\
import os, time
from pathlib import Path
from protocols.decentralized.local import Local

class Own(Local):
    async def step(self):
        await super().step()
        if self.name == "client-3" and self.now == 1:
            self.spin()

    def spin(self):
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s and not Path("told").exists():
            time.sleep(0.001)  # it goes on here
"""
ALL_SPIN = """\
import asyncio, os, signal
from protocols.decentralized.local import Local

class Own(Local):
    async def step(self):
        await self.sleep(1.0)
        if self.name == "client-0":
            os.kill(os.getpid(), signal.SIGINT)
            while not asyncio.get_running_loop().paused:
                pass
            os.write(1, b"taken\\n")
        while True:
            pass
"""


SWALLOWS = """\
import asyncio, os, signal
from protocols.decentralized.local import Local

class Own(Local):
    async def step(self):
        await self.sleep(1.0)
        while True:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                while not asyncio.get_running_loop().paused:
                    pass
                os.write(1, b"taken\\n")
                while True:
                    pass
            except BaseException:
                continue
"""


def test_a_method_that_spins_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sim.run.watchdog.PATIENCE_S", 0.05)
    monkeypatch.setattr("sim.run.watchdog.LOOK_EVERY_S", 0.01)
    (tmp_path / "own.py").write_text(SPINS)
    said = []

    def notice(line: str) -> None:
        said.append(line)
        (tmp_path / "told").touch()

    scenario = load(tmp_path, QUADRATIC.replace('"local"', '"own.py:Own"'))
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu", notice=notice))
    assert result.summary["finished"] is True
    (tmp_path / "told").touch()
    unwatched = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert unwatched.summary["trace_hash"] == result.summary["trace_hash"]
    number = SPINS[: SPINS.index("  # it goes")].count("\n") + 1
    [line] = [each for each in said if "client-3" in each]
    assert line.startswith("client-3: step has run for 0.05 s without an await that lets time pass (own.py:")
    assert line.partition("own.py:")[2].partition(")")[0] in (str(number), str(number - 1))


@pytest.mark.long
@pytest.mark.parametrize("method", [ALL_SPIN, SWALLOWS])
def test_the_second_signal_ends_it_though_it_is_swallowed_or_others_would_spin_next(
    tmp_path: Path, method: str
) -> None:
    (tmp_path / "own.py").write_text(method)
    file = write(tmp_path, QUADRATIC.replace('"local"', '"own.py:Own"'))
    command = [sys.executable, "-m", "sim", "run", str(file), "--quiet", "--out", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "taken\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, errors) == (130, "", "interrupted before there were results\n")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_class_of_a_notebook_and_a_quiet_run_are_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In weights(), which the observer asks for: no task runs."""
    monkeypatch.setattr("sim.run.watchdog.PATIENCE_S", 0.05)
    monkeypatch.setattr("sim.run.watchdog.LOOK_EVERY_S", 0.01)
    said = threading.Event()

    def look(watchdog: Watchdog) -> str | None:
        line = looked(watchdog)
        if line is not None:
            said.set()
        return line

    looked = Watchdog._look
    monkeypatch.setattr(Watchdog, "_look", look)
    cell = (
        "class Written(Local):\n    def weights(self):\n"
        "        while self.now > 0 and not said.wait(30):\n            pass\n"
    )
    space: dict[str, Any] = {"Local": Local, "said": said, "__name__": "__main__"}
    exec(compile(cell, "<ipython-input-7-a1b2c3>", "exec"), space)
    run_scenario(
        load_scenario(write(tmp_path, QUADRATIC), method=space["Written"]),
        RunOptions(out=tmp_path, device="cpu"),
    )
    line = capsys.readouterr().err
    assert line.startswith("a client: weights has run for 0.05 s")
    assert "<ipython-input-7-a1b2c3>:" in line
