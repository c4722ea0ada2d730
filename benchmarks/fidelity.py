"""What the tables that hold the papers' figures against ours share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.results.store import RunDirectory
from sim.run import run_scenario
from sim.scenario import digest, load_scenario

Overrides = Sequence[str]


def measure(path: Path, overrides: Overrides, seed: int, out: Path, data_dir: Path | None) -> dict[str, Any]:
    """Summary of one run of a scenario file, from an earlier one where there is one under `out`."""
    scenario = load_scenario(path, ["run.compare_alone=false", *overrides], seed)
    there = out / f"{scenario.name}-{seed}-{digest(scenario)}"
    if there.is_dir():
        return RunDirectory.load(there).summary()
    return run_scenario(scenario, out=out, overwrite=True, data_dir=data_dir).summary
