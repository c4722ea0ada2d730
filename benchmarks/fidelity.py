"""What the tables of runs share: the papers' figures beside ours, and all methods in bad weather."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.kernel.clock import Deadlock
from sim.results.store import RunDirectory
from sim.run.running import run_scenario
from sim.scenario.scenario import digest, load_scenario

Overrides = Sequence[str]


def run(
    path: Path, overrides: Overrides, seed: int, out: Path, data_dir: Path | None, device: str = "auto"
) -> RunDirectory:
    """The results of a scenario file, those of an earlier run where there is one under `out`.

    A run that got stuck has results, too, which say so. Raises KeyboardInterrupt where a signal ends one.
    """
    scenario = load_scenario(path, ["run.compare_alone=false", *overrides], seed)
    # A folder of its own: the name in it is that of the resolved scenario, which is not known before.
    there = out / f"{scenario.name}-{seed}-{digest(scenario)}"
    if (found := _finished(there)) is None:
        try:
            done = run_scenario(scenario, out=there, overwrite=True, data_dir=data_dir, device=device)
            interrupted = done.interrupted
        except Deadlock:
            interrupted = False
        if interrupted:
            raise KeyboardInterrupt
        found = _finished(there)
        assert found is not None
    return found


def _finished(folder: Path) -> RunDirectory | None:
    """The results in a folder, unless a signal cut them short."""
    directories = [RunDirectory.load(summary.parent) for summary in sorted(folder.glob("*/summary.json"))]
    return next((found for found in directories if not found.summary()["interrupted"]), None)


def measure(path: Path, overrides: Overrides, seed: int, out: Path, data_dir: Path | None) -> dict[str, Any]:
    """Summary of one run of a scenario file, from an earlier one where there is one under `out`."""
    return run(path, overrides, seed, out, data_dir).summary()
