"""Energy, cost and CO2 of the runs of a comparison."""

from collections.abc import Iterable

import numpy as np

from sim.results import text
from sim.studies.groups import SeedGroup
from sim.studies.study import ENERGY, StudiedRun

AMOUNTS = {"joules": text.energy, "cost": text.number, "co2_grams": text.mass}
"""Amounts of a run, and how they are shown."""

NAMES = {"joules": "energy", "cost": "cost of energy", "co2_grams": "CO2"}


def states_energy(runs: Iterable[StudiedRun]) -> bool:
    """Return True if any run states energy constants."""
    return any(run.view.get(ENERGY) is not None for run in runs)


def energy_amounts(run: StudiedRun) -> dict[str, float]:
    """Return energy, cost and CO2 of a run; NaN if unknown."""
    return {amount: run.number(f"{ENERGY}.{amount}") for amount in AMOUNTS}


def energy_cells(group: SeedGroup) -> list[str]:
    """Return the mean energy, cost and CO2 of a run of a group, as text."""
    found = [energy_amounts(run) for run in group.runs]
    means = {amount: float(np.mean([each[amount] for each in found])) for amount in AMOUNTS}
    return [shown(None if np.isnan(means[amount]) else means[amount]) for amount, shown in AMOUNTS.items()]


def energy_column_heads(runs: Iterable[StudiedRun]) -> list[str]:
    """Return the heads of the columns of `energy_cells`."""
    currencies = sorted({run.view.get(ENERGY, "currency") or "" for run in runs} - {""})
    cost = " ".join(["cost", *[f"[{each}]" for each in currencies]])
    return [f"{name} per run" for name in ("energy", cost, "CO2")]


def energy_note(runs: Iterable[StudiedRun]) -> str:
    """Return the note below the table: the constants that are not stated."""
    found = [key for run in runs for key in run.view.get(ENERGY, "unknown") or ()]
    keys = ", ".join(dict.fromkeys(found))
    unknown = f"; unknown where a scenario does not set {keys}" if keys else ""
    return f"Means over seeds, of all clients and servers of a run{unknown}."
