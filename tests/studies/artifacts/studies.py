"""Three small studies: a sweep, a folder of runs, and a single run with its own method and data."""

from pathlib import Path

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from sim.studies.cells import plan
from sim.studies.sweep import run_sweep
from tests.simulation.worlds import QUADRATIC
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

METHOD = """\
from protocols.framework.client import Client
from helper import PERIOD


class Mine(Client):
    async def step(self):
        update = await self.train(steps=1)
        self.params = self.params + update
        await self.sleep(PERIOD)
"""
MATRIX = "\n".join(",".join("20" for _ in range(6)) for _ in range(6)) + "\n"  # ms
SHORT = ["run.duration=2 s", "run.evaluate_every=1 s"]


def write_method(folder: Path) -> None:
    (folder / "mine.py").write_text(METHOD, encoding="utf-8")
    (folder / "helper.py").write_text("PERIOD = 0.25\n", encoding="utf-8")


def sweep_of(folder: Path) -> Path:
    """The folder of a sweep."""
    result = run_sweep(plan(study(folder), SHORT, seeds=3), out=folder / "runs", execute=here)
    assert not result.errors
    return result.directory


OWN = """
[[sweep.case]]
axis = "method"
name = "slow gossip"
set = ["protocol.name=gossip", "protocol.period=1 s"]

[[sweep.case]]
axis = "method"
name = "mine"
set = ["protocol.name=mine.py:Mine"]

[sweep.full]"""


def own_sweep_of(folder: Path) -> Path:
    """The folder of a sweep of three methods of the library and, as the last value, the authors' own."""
    write_method(folder)
    path = study(folder, STUDY.replace("\n[sweep.full]", OWN, 1))
    result = run_sweep(plan(path, SHORT, seeds=2), out=folder / "runs", execute=here)
    assert not result.errors
    return result.directory


def runs_of(folder: Path) -> Path:
    """A folder of runs without a sweep."""
    path = folder / "world.toml"
    path.write_text(QUADRATIC, encoding="utf-8")
    for seed in (1, 2):
        run_scenario(load_scenario(path, SHORT, seed), RunOptions(out=folder / "runs", report=seed == 1))
    return folder / "runs"


def run_of(folder: Path) -> Path:
    """A run with its own method, and a file of latencies."""
    write_method(folder)
    (folder / "delays.csv").write_text(MATRIX, encoding="utf-8")
    latency = '{ kind = "matrix", file = "delays.csv", unit = "ms" }'
    text = QUADRATIC.replace('latency = "20 ms"', f"latency = {latency}")
    path = folder / "world.toml"
    path.write_text(text.replace('name = "local"', 'name = "mine.py:Mine"'), encoding="utf-8")
    result = run_scenario(load_scenario(path, SHORT), RunOptions(out=folder / "runs"))
    assert result.directory is not None
    return result.directory
