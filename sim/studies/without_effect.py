"""Which values of a sweep made no difference: the runs have the same messages, and the same numbers."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.studies.cells import SweepCell


def values_without_effect(cells: Iterable[tuple[SweepCell, Path]]) -> list[str]:
    """A line for each axis of which some values made no difference: "local_steps = 1, 5: the same runs".

    cells: those that are done, with their results. Values count only where each run with one of them is the
    same as that with the other which differs in nothing else; seeds are no values.
    """
    runs = [(cell.values, cell.seed, found) for cell, folder in cells if (found := _of(folder)) is not None]
    lines = []
    for axis in dict.fromkeys(axis for values, _, _ in runs for axis in values):
        by_value: dict[Any, dict[Hashable, Hashable]] = defaultdict(dict)
        for values, seed, found in runs:
            if axis in values:
                others = tuple((key, value) for key, value in values.items() if key != axis)
                by_value[values[axis]][others, seed] = found
        lines += [f"{axis} = {', '.join(map(str, same))}: the same runs" for same in _alike(by_value)]
    return lines


def _alike(by_value: Mapping[Any, Mapping[Hashable, Hashable]]) -> list[list[Any]]:
    """The values with the same runs, in groups of two at least."""
    groups: dict[frozenset[tuple[Hashable, Hashable]], list[Any]] = defaultdict(list)
    for value, runs in by_value.items():
        groups[frozenset(runs.items())].append(value)
    return [values for values in groups.values() if len(values) > 1]


def _of(folder: Path) -> tuple[str, str] | None:
    """What tells one run from another: its messages, and what was measured. None for damaged results."""
    try:
        directory = RunDirectory.load(folder)
        measured = hashlib.blake2b(directory.table_path("metrics").read_bytes()).hexdigest()
        return directory.summary()["trace_hash"], measured
    except (OSError, UserError):
        return None
