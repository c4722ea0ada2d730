"""Runs that are killed at random moments: finished results are always whole; what stays hidden goes on."""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from sim.results.store.output_dir import CHECKPOINT
from sim.results.store.run_directory import RunDirectory, load_checked
from tests.simulation.worlds import QUADRATIC, write

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
WAYS = ("run", "rerun", "rerun --overwrite")


class Killer:
    """Starts runs of one scenario and kills them; `fates` counts how they ended."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.fates: Counter[str] = Counter()
        self.file = write(folder, QUADRATIC)
        self.finished = folder / "finished"
        started = time.monotonic()
        process = self._start(self.finished)
        self._wait_for_hidden(process, self.finished)
        self.hidden_s = time.monotonic() - started
        assert process.wait(100) == 0
        self.end_s = time.monotonic() - started
        [self.first] = self.finished.iterdir()
        self.trace_hash = load_checked(self.first).summary()["trace_hash"]
        (self.first / "notes.txt").write_text("mine")

    def kill_one(self, number: int) -> None:
        """Kill one more run; half of them anywhere, half after it has begun to write."""
        way, sent = WAYS[number % len(WAYS)], self.random.choice(SIGNALS)
        out = self.folder / f"run-{number}" if way == "run" else self.finished
        process = self._start(out, *way.split()[1:])
        if self.random.random() < 0.5:
            time.sleep(self.random.uniform(0, self.end_s))
        else:
            self._wait_for_hidden(process, out)
            time.sleep(self.random.uniform(0, self.end_s - self.hidden_s))
        if self.random.random() < 0.2:  # a second one, soon after
            process.send_signal(sent)
            time.sleep(self.random.uniform(0, 0.2))
        process.send_signal(sent)
        code = process.wait(100)
        # By its own answer, by the system's where it had not begun to answer, or not at all: it was done.
        assert code in (0, -sent, 128 + sent), (number, way, sent, code)
        self.fates[f"{way}, {sent.name}: {code}"] += 1
        self.check(out)

    def check(self, out: Path) -> None:
        """What can be seen is whole; and when the next run has begun, so is everything."""
        for swept in (False, True):
            if swept and out.exists():
                RunDirectory.create(out, "next", 0, "0").discard()
                for left in out.glob(".*"):
                    assert (left / CHECKPOINT).is_file(), "else it is cleared away"
                    assert self._command("resume", left).wait(100) == 0
                assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
            for path in out.glob("[!.]*"):
                summary = load_checked(path).summary()
                assert summary["trace_hash"] == self.trace_hash or not summary["finished"]
            assert load_checked(self.first).summary()["finished"] is True
        assert (self.first / "notes.txt").read_text() == "mine"

    def _start(self, out: Path, *options: str) -> subprocess.Popen[bytes]:
        return self._command("run", self.file, "--out", out, *options)

    def _command(self, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "sim", name, *map(str, words), "--quiet"],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _wait_for_hidden(self, process: subprocess.Popen[bytes], out: Path) -> None:
        while process.poll() is None and not any(out.glob(".*")):
            time.sleep(0.001)


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path: Path) -> None:
    seed = int(os.environ.get("COTERIE_TEST_SEED") or secrets.randbelow(2**32))
    print(f"COTERIE_TEST_SEED={seed}")
    killer = Killer(tmp_path, seed)
    for number in range(int(os.environ.get("COTERIE_TEST_KILLS") or 100)):
        killer.kill_one(number)
    for fate, times in sorted(killer.fates.items()):
        print(f"{times:4} {fate}")
    assert killer._start(killer.finished).wait(100) == 0
    killer.check(killer.finished)
