"""A comparison of methods by energy: until a target, at the end, and unknown where a constant is not set."""

from pathlib import Path

import numpy as np
import pytest

from sim.studies.cells import plan
from sim.studies.comparison import Comparison
from sim.studies.page_data import study_page_content
from sim.studies.study import load_study
from sim.studies.sweep import run_sweep
from sim.studies.tables import csv_frames, tables_to_show
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

POWER = 'step_time = "100 ms"\npower = { busy = "8 W", idle = "2 W" }\n'
STATED = STUDY.replace('step_time = "100 ms"\n', POWER).replace("[0, 0.2]", "[0]")
ENERGY = '\n[energy]\nprice = 0.36\ncurrency = "EUR"\n'


def compared(folder: Path, text: str) -> Comparison:
    result = run_sweep(plan(study(folder, text)), out=folder / "runs", execute=here)
    return Comparison(load_study([result.directory]), target=1.2)


@pytest.mark.long
def test_energy_stands_beside_time_and_bytes(tmp_path: Path) -> None:
    text = STATED.replace('downlink = "10 Mbit/s"', 'downlink = "10 Mbit/s"\nenergy_per_byte = "2 uJ/B"')
    comparison = compared(tmp_path, text.replace("\n[sweep]", f"{ENERGY}\n[sweep]", 1))
    assert comparison.kinds == ["seconds", "bytes", "joules", "steps", "FLOPs"]
    for target in comparison.targets:
        if target.kind == "joules":
            costs = [run.cost("joules") for run in target.group.runs]
            until = [min(at, target.until) for at in target.reached.at]
            spent = [
                cost.values[cost.times <= at][-1]
                for cost, at in zip(costs, until, strict=True)
                if cost is not None
            ]
            assert target.spent.mean == pytest.approx(np.mean(spent))
    shown = next(table for table in tables_to_show(comparison) if table.title == "Energy of a run")
    assert (
        shown.heads == ["energy per run", "cost [EUR] per run", "CO2 per run"]
        and "energy.carbon" in shown.note
    )
    for row, group in zip(shown.rows, comparison.groups, strict=True):
        assert row[-3].endswith("J") and row[-1] == "\N{EN DASH}", group.label
    for row in csv_frames(comparison)["runs"].iter_rows(named=True):
        assert row["cost"] == pytest.approx(row["joules"] / 3.6e6 * 0.36) and row["co2_grams"] is None
    scales = study_page_content(comparison, tmp_path).facts["scales"]
    assert {"kind": "joules", "label": "energy, all clients"} in scales


@pytest.mark.long
def test_an_unknown_energy_is_no_cost_of_a_target(tmp_path: Path) -> None:
    """Without energy_per_byte, energy is known for the method that sends nothing, not for the other."""
    comparison = compared(tmp_path, STATED)
    assert "joules" not in comparison.kinds
    shown = next(table for table in tables_to_show(comparison) if table.title == "Energy of a run")
    cells = {row[shown.axes.index("method")]: row[-3] for row in shown.rows}
    assert cells["gossip"] == "\N{EN DASH}" and cells["alone"].endswith("J")
    assert "does not set energy.price, energy.carbon, network.energy_per_byte" in shown.note


@pytest.mark.long
def test_without_constants_nothing_is_shown(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STUDY.replace("[0, 0.2]", "[0]"))
    assert "Energy of a run" not in [table.title for table in tables_to_show(comparison)]
    assert "joules" not in csv_frames(comparison)["runs"].columns
