"""Values of a sweep without effect: their runs have the same messages and the same evaluations."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.studies.cells import SweepCell


def values_without_effect(cells: Iterable[tuple[SweepCell, Path]]) -> list[str]:
    """Return a line per axis with values that had no effect: "local_steps = 1, 5: the same runs".

    cells: done cells with their results folders. Two values have no effect if all pairs of runs that differ
    only in them are the same. Seeds are no axis.
    """
    runs = [
        (cell.values, cell.seed, found)
        for cell, folder in cells
        if (found := _run_hashes(folder)) is not None
    ]
    lines = []
    for axis in dict.fromkeys(axis for values, _, _ in runs for axis in values):
        by_value: dict[Any, dict[Hashable, Hashable]] = defaultdict(dict)
        for values, seed, found in runs:
            if axis in values:
                others = tuple((key, value) for key, value in values.items() if key != axis)
                by_value[values[axis]][others, seed] = found
        lines += [
            f"{axis} = {', '.join(map(str, same))}: the same runs" for same in _groups_of_same_runs(by_value)
        ]
    return lines


def _groups_of_same_runs(by_value: Mapping[Any, Mapping[Hashable, Hashable]]) -> list[list[Any]]:
    """Return groups of at least two values that have the same runs."""
    groups: dict[frozenset[tuple[Hashable, Hashable]], list[Any]] = defaultdict(list)
    for value, runs in by_value.items():
        groups[frozenset(runs.items())].append(value)
    return [values for values in groups.values() if len(values) > 1]


def _run_hashes(folder: Path) -> tuple[str, ...] | None:
    """Return the hashes of a run's messages, evaluations and energy; None for damaged results."""
    try:
        directory = RunDirectory.load(folder)
        tables = ["metrics", *["energy"] * directory.has("energy")]
        measured = [hashlib.blake2b(directory.table_path(each).read_bytes()).hexdigest() for each in tables]
        return directory.summary()["trace_hash"], *measured
    except (OSError, UserError):
        return None
