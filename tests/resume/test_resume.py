"""A run that was interrupted, killed or has ended goes on as if it had not been."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results.store.output_dir import CHECKPOINT, READS
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.resume.checkpoint import Checkpoint
from sim.run.running import run_scenario
from sim.run.save.progress import Progress
from sim.scenario.scenario import load_scenario
from tests.draws import examples
from tests.resume.same import checkpoint_in, require_same
from tests.simulation.worlds import DIGITS, QUADRATIC, run, write

BUSY = f"""\
{DIGITS.replace('name = "gossip"', 'name = "cobo"').replace('period = "500 ms"', "local_steps = 2")}
[[churn]]
at = "300 ms"
event = "crash"
clients = [4]

[[churn]]
at = "700 ms"
event = "rejoin"
clients = [4]
state = "stale"
backup_every = "100 ms"
"""
SHORTLY = ["run.duration=1500 ms", "run.evaluate_every=500 ms"]


def coterie(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def went_on(path: Path, *words: object) -> Path:
    """Where the results of a run are that goes on."""
    result = coterie("resume", path, "--quiet", "--device", "cpu", *words)
    assert result.exit_code == 0, result.output
    return Path(result.stdout.splitlines()[-1].removeprefix("report: ")).parent


def interrupted(folder: Path, text: str, time_s: float, *overrides: str) -> Path:
    """The results of a run to which SIGTERM comes at the first look at or after `time_s`."""

    def look(progress: Progress) -> None:
        if progress.virtual_s >= time_s and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    sent: list[bool] = []
    scenario = load_scenario(write(folder, text), overrides)
    result = run_scenario(scenario, RunOptions(out=folder, device="cpu", progress=look))
    assert result.directory is not None and result.interrupted
    return result.directory


def test_a_run_goes_on_with_another_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (*SHORTLY, "engine.way=loop")
    monkeypatch.setattr("sim.run.setup.engine.cores", lambda: 1)
    whole = run(tmp_path, BUSY, *own).directory
    path = interrupted(tmp_path, BUSY, 0.6, *own)
    monkeypatch.setattr("sim.run.setup.engine.cores", lambda: 3)
    assert whole is not None
    require_same(whole, went_on(path))


@pytest.mark.long
@pytest.mark.hypothesis
def test_an_interrupted_run_goes_on_at_any_time(tmp_path: Path) -> None:
    whole = run(tmp_path, BUSY, *SHORTLY).directory
    assert whole is not None

    @examples(2)
    @given(st.floats(0.0, 1.4))
    def goes_on(time_s: float) -> None:
        path = interrupted(tmp_path, BUSY, time_s, *SHORTLY)
        assert went_on(path) == path  # though there are other results of this scenario
        require_same(whole, path)

    goes_on()


@pytest.mark.long
def test_a_checkpoint_that_is_due_on_the_way_to_the_last_one_ends_nothing(tmp_path: Path) -> None:
    whole = run(tmp_path, BUSY, *SHORTLY).directory
    assert whole is not None
    path = interrupted(tmp_path, BUSY, 0.9, *SHORTLY)
    require_same(whole, went_on(path, "--checkpoint-every", "1 us"))


def test_a_run_is_prolonged(tmp_path: Path) -> None:
    first = run(tmp_path, BUSY, "run.duration=900 ms", "run.evaluate_every=300 ms").directory
    whole = run(tmp_path / "..", BUSY, "run.duration=1500 ms", "run.evaluate_every=300 ms").directory
    assert first is not None and whole is not None
    longer = went_on(first, "--until", "1500 ms")
    assert longer.name == whole.name and longer.parent == first.parent
    require_same(longer, whole)
    given = ["run.duration=900 ms", "run.evaluate_every=300 ms", "run.duration=1500 ms"]
    assert RunDirectory.load(longer).summary()["overrides"] == given


@pytest.mark.long
@pytest.mark.parametrize("state", ["keep", "stale"])
def test_a_run_is_prolonged_in_which_clients_come_back_later(tmp_path: Path, state: str) -> None:
    """What they come back with was kept, though nobody came back before the end of the shorter run."""
    text = f"""{QUADRATIC}
[[churn_process]]
kind = "poisson"
every = "2 s"
session = {{ kind = "exponential", mean = "3 s" }}
clients = [1, 2, 3, 4]
up_at_start = 1
state = "{state}"
backup_every = "1 s"
"""
    folders = [tmp_path / name for name in ("whole", "3", "7")]
    for folder in folders:
        folder.mkdir()
    whole = run(folders[0], text, "run.duration=20 s", "run.evaluate_every=1 s").directory
    assert whole is not None
    for folder in folders[1:]:
        first = run(folder, text, f"run.duration={folder.name} s", "run.evaluate_every=1 s").directory
        assert first is not None
        require_same(went_on(first, "--until", "20 s"), whole)


DIES = """\
import os, signal
from protocols.decentralized.gossip import Gossip

class Dies(Gossip):
    async def step(self):
        await super().step()
        if self.now > 1 and "DIES" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """In another process, with another hash seed; what it left is hidden, until another run has its place."""
    (tmp_path / "dies.py").write_text(DIES)
    text = DIGITS.replace('"gossip"', '"dies.py:Dies"')
    file, options = write(tmp_path, text), [word for each in SHORTLY for word in ("--set", each)]
    out = ["--quiet", "--out", str(tmp_path / "killed"), "--device", "cpu"]
    command = [sys.executable, "-m", "sim", "run", str(file), *out, *options, "--checkpoint-every", "1 us"]
    hash_seed = "11" if os.environ.get("PYTHONHASHSEED") != "11" else "12"
    environment = os.environ | {"DIES": "1", "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [hidden] = (tmp_path / "killed").iterdir()
    place = hidden.with_name(re.sub(r"^\.(.*)\..{8}$", r"\1", hidden.name))
    found, damaged = Checkpoint.latest(hidden)
    assert found is not None and not damaged and 0.9 < found.time_s <= 1.2
    whole = run(tmp_path, text, *SHORTLY).directory
    assert whole is not None and whole.name == place.name
    assert went_on(place) == place
    assert list((tmp_path / "killed").iterdir()) == [place]
    require_same(whole, place)
    assert RunDirectory.load(place).summary()["overrides"] == SHORTLY


def test_what_cannot_go_on_is_refused(tmp_path: Path) -> None:
    def refusal(path: Path, *words: str) -> str:
        result = coterie("resume", path, "--quiet", "--device", "cpu", *words)
        assert result.exit_code == 2, result.output
        return result.stderr

    first = run(tmp_path, QUADRATIC, "run.duration=1 s", "run.evaluate_every=500 ms").directory
    assert first is not None
    assert "nothing: no such folder" in refusal(tmp_path / "nothing")
    assert "ended at 1 s; pass a later --until to extend it" in refusal(first)
    crash = tmp_path / "crash"
    crash.mkdir()
    late = '\n[[churn]]\nat = "800 ms"\nevent = "crash"\nclients = [1]\n'
    second = run(crash, QUADRATIC + late, "run.duration=1 s", "run.evaluate_every=500 ms").directory
    assert second is not None
    assert "ended at 1 s; pass a later --until" in refusal(second, "--until", "500 ms")
    file = first / CHECKPOINT
    checkpoint = checkpoint_in(file.parent)
    kept, log = file.read_bytes(), (first / READS).read_bytes()

    checkpoint.made_by["torch"] = "1.0"
    checkpoint.write(file)
    assert f"torch was 1.0 and is now {torch.__version__}" in refusal(first, "--until", "2 s")
    result = coterie("resume", first, "--until", "2 s", "--anyway", "--quiet", "--device", "cpu")
    assert result.exit_code == 0 and "no longer exact: torch was 1.0" in result.stderr

    file.write_bytes(kept[: len(kept) // 2])
    assert f"{file} is damaged" in refusal(first, "--until", "2 s")
    file.write_bytes(kept)
    (first / READS).write_bytes(log[: len(log) // 2])
    assert "cannot continue from 1 s" in refusal(first, "--until", "2 s")
    (first / READS).write_bytes(log)
    text = (first / "scenario.toml").read_text()
    (first / "scenario.toml").write_text(text.replace("seed = 1", "seed = 2"))
    assert "scenario.toml does not match checksums.json" in refusal(first, "--until", "2 s")
    assert [path.name for path in first.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path: Path) -> None:
    """The results are those of the uninterrupted run each time, whatever was left."""
    whole = run(tmp_path, BUSY, *SHORTLY).directory
    assert whole is not None
    generator = random.Random(int(os.environ.get("COTERIE_TEST_SEED") or 1))
    options = [word for each in SHORTLY for word in ("--set", each)]
    fates = {"never began": 0, "from the start": 0, "from a checkpoint": 0, "had ended": 0}
    for number in range(int(os.environ.get("COTERIE_TEST_KILLS") or 50)):
        out = tmp_path / f"killed-{number}"
        command = [sys.executable, "-m", "sim", "run", str(tmp_path / "world.toml"), "--quiet", "--device"]
        command += ["cpu", "--out", str(out), *options, "--checkpoint-every", "10 ms"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(out.glob(f".*/{READS}")):
            time.sleep(0.005)
        time.sleep(generator.uniform(0, 3))
        process.kill()
        process.wait(100)
        place = out / whole.name
        if place.exists():
            fates["had ended"] += 1
        elif not any(out.glob(f".*/{READS}")):
            fates["never began"] += 1
            continue
        else:
            fates["from a checkpoint" if any(out.glob(f".*/{CHECKPOINT}")) else "from the start"] += 1
            assert went_on(place) == place
        assert list(out.iterdir()) == [place]
        require_same(whole, place)
    print(fates)
