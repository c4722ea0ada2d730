"""What `make run` shows is what the scenario's first comment promises: on the shipped seed, and on others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.toml"
SEEDS = (*range(1, 21), *range(31, 41))


def summary_of(seed: int, folder: Path, *overrides: str) -> dict[str, Any]:
    scenario = load_scenario(QUICKSTART, overrides, seed)
    return run_scenario(scenario, RunOptions(out=folder, device="cpu")).summary


def test_the_shipped_seed_shows_the_four_blocks(tmp_path: Path) -> None:
    graph = summary_of(1, tmp_path, "run.compare_alone=false", "run.keep_messages=false")["graph"]
    assert graph["edge_precision"] >= 0.9 and graph["edge_recall"] >= 0.9
    assert graph["l1"] < 0.08


@pytest.mark.slow
def test_every_seed_shows_the_four_blocks_and_nobody_loses(tmp_path: Path) -> None:
    found = [summary_of(seed, tmp_path, "run.keep_messages=false") for seed in SEEDS]
    for measure in ("edge_precision", "edge_recall"):
        values = [summary["graph"][measure] for summary in found]
        assert min(values) >= 0.9 and np.mean(values) >= 0.98, (measure, values)
    least = sorted(summary["help"]["least"]["gain"] for summary in found)
    # A point is 3.6 of 359 test samples. Seed 19's client 2, whose own model is the best of all, loses 1.7.
    assert least[1] > -0.01 and least[0] > -0.02, least[:2]
