"""Every scenario and every protocol goes on exactly at random times, in a process with another hash seed."""

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from sim.results.store.output_dir import READS
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import Scenario, load_scenario
from tests.fuzz.worlds import SHORT, short
from tests.protocols.test_survival import LOSSY, variants
from tests.resume.other_process import GoesOn, other_process
from tests.resume.same import require_same
from tests.simulation.worlds import write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[GoesOn]:
    with other_process() as do:
        yield do


@pytest.mark.parametrize("name", SHORT)
def test_every_scenario_goes_on(tmp_path: Path, name: str, elsewhere: GoesOn) -> None:
    table = short(name)
    table["run"].setdefault("name", name)
    goes_on(tmp_path, tomli_w.dumps(table), (), elsewhere)


@pytest.mark.parametrize("protocol", variants(), ids=" ".join)
def test_every_protocol_goes_on(tmp_path: Path, protocol: Sequence[str], elsewhere: GoesOn) -> None:
    goes_on(tmp_path, LOSSY, protocol, elsewhere)


def goes_on(folder: Path, text: str, overrides: Sequence[str], elsewhere: GoesOn) -> None:
    """A run that was cut short at two random times, and one ended at a third, come to the same."""
    random_of = random.Random(f"{text}{overrides}{os.environ.get('COTERIE_TEST_SEED') or 1}")
    scenario = load_scenario(write(folder, text), overrides)
    end_s = ended(folder / "first", scenario)
    times_s = [random_of.uniform(0, end_s) for _ in range(2)]
    whole = run_scenario(
        scenario, RunOptions(out=folder / "whole", device="cpu", checkpoints_s=times_s)
    ).directory
    assert whole is not None
    for time_s in times_s:
        path = cut_short(whole, folder / f"{time_s!r}", time_s)
        elsewhere("resume", path, "--quiet", "--device", "cpu")
        require_same(whole, path)
    if scenario.run.duration is None:
        return
    part_s = random_of.uniform(max(starts_s(scenario), default=0), scenario.run.duration)
    shorter = replace(scenario, run=scenario.run.model_copy(update={"duration": part_s}))
    part = run_scenario(shorter, RunOptions(out=folder / "part", device="cpu")).directory
    assert part is not None
    elsewhere("resume", part, "--until", f"{scenario.run.duration!r} s", "--quiet", "--device", "cpu")
    [longer] = [path for path in part.parent.iterdir() if path != part]
    require_same(whole, longer)


def ended(folder: Path, scenario: Scenario) -> float:
    """The virtual time at which it ends, in seconds; it is run to find out, unless it says so."""
    if scenario.run.duration is not None and scenario.run.budget is None:
        return scenario.run.duration
    return float(run_scenario(scenario, RunOptions(out=folder, device="cpu")).summary["virtual_seconds"])


def cut_short(whole: Path, folder: Path, time_s: float) -> Path:
    """The place of a run of which there is what a kill after its checkpoint at `time_s` would have left."""
    path = folder / f".{whole.name}.00000000"
    kept = [f"checkpoint-{repr(time_s).removesuffix('.0')}.pt", READS, "scenario.toml"]
    path.mkdir(parents=True)
    for name in kept:
        shutil.copy(whole / name, path / name)
    for code in whole.iterdir():  # of the user's models
        if code.is_dir():
            shutil.copytree(code, path / code.name)
    return folder / whole.name


def starts_s(scenario: Scenario) -> list[float]:
    """When entries begin, which a run must last for."""
    crashes = scenario.server.crash if scenario.server is not None else ()
    found = [entry.at for entry in scenario.churn] + [change.at for change in scenario.change]
    found += [cut.start for cut in scenario.network.partition]
    found += [slow.start for slow in scenario.devices.slowdown]
    return found + [crash.at for crash in crashes]
