"""The quickstart, ended by SIGKILL at random moments, is resumed, explained and forked exactly."""

import os
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from sim.results.store.output_dir import CHECKPOINT
from sim.results.store.run_directory import RunDirectory
from sim.run.resume.checkpoint import Checkpoint

SHORT = ("--set", "run.compare_alone=false")


def command(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sim", *map(str, words)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(*words: object) -> str:
    process = command(*words)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def only(folder: Path) -> Path:
    [found] = folder.iterdir()
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_quickstart_is_killed_at_random_moments(tmp_path: Path) -> None:
    seed = int(os.environ.get("COTERIE_TEST_SEED") or secrets.randbelow(2**32))
    print(f"COTERIE_TEST_SEED={seed}")
    draws = random.Random(seed)
    started = time.monotonic()
    done("run", "quickstart", "--quiet", "--out", tmp_path / "whole", *SHORT)
    took_s = time.monotonic() - started
    whole = RunDirectory.load(only(tmp_path / "whole"))
    moments = whole.scan("metrics").select(pl.col("time").unique().sort()).collect()["time"].to_list()
    for number in range(int(os.environ.get("COTERIE_TEST_KILLS") or 20)):
        out = tmp_path / str(number)
        words = ("run", "quickstart", "--quiet", "--out", out, "--checkpoint-every", "200 ms", *SHORT)
        while not (checkpoints := list(out.glob(f".*/{CHECKPOINT}"))):  # killed too early, or too late
            for place in out.glob("*"):
                place.rename(tmp_path / f"{number}-finished-{secrets.token_hex(4)}")
            started, process = time.monotonic(), command(*words)
            time.sleep(draws.uniform(0.2, 1) * took_s)
            if process.poll() is not None:  # the machine was busy when the first run was timed
                took_s = 0.8 * (time.monotonic() - started)
            process.kill()
            process.communicate()
        hidden = checkpoints[0].parent
        reached, _ = Checkpoint.latest(hidden)  # a run that was killed earlier has no later moments
        assert reached is not None
        at = draws.choice([each for each in moments[1:3] if each <= reached.time_s] or [reached.time_s])
        assert "client-3, up at" in done("explain", hidden, "--at", f"{at} s", "--client", 3)
        done("resume", hidden, "--quiet")
        [path] = out.glob("[!.]*")
        assert RunDirectory.load(path).summary()["trace_hash"] == whole.summary()["trace_hash"], number
        assert RunDirectory.load(path).scan("metrics").collect().equals(whole.scan("metrics").collect())
    fork = ("--at", "100 s", "--set", "network.loss=0.1", "--quiet")
    hashes = []
    for parent in (whole.path, path):
        done("fork", parent, *fork)
        [forked] = [each for each in parent.parent.glob("[!.]*") if each != parent]
        hashes.append(RunDirectory.load(forked).summary()["trace_hash"])
    assert hashes[0] == hashes[1] != whole.summary()["trace_hash"]
