"""The runs of an archive that can be repeated, and the sample of them that is repeated."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from types import MappingProxyType

from sim.results.store.output_dir import CELL
from sim.results.store.run_directory import RunDirectory
from sim.studies.artifacts.archive import PackedRun


def choose_spread_runs(
    runs: Sequence[PackedRun],
    values: Mapping[str, Mapping[str, object]],
    size: int,
    code: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> list[PackedRun]:
    """Choose `size` runs that together execute much of the authors' code, and have many values and seeds.

    Each step adds the run with the most code that no chosen run executes. Of equal runs, it adds the one with
    the most new values on the axes (its seed counts as a value); if no value is new, the one whose values
    have been chosen least often; if several are left, the first. The result is in the order of `runs`.
    values: values on the axes, by folder of the run; runs without them count by `alike`. code: names of the
    authors' code, by folder.
    """
    keys = [[("seed", run.seed), *values.get(run.directory, {"alike": run.alike}).items()] for run in runs]
    named = [frozenset(code.get(run.directory, ())) for run in runs]
    used, executed = Counter[tuple[str, object]](), set[str]()

    def order(number: int) -> tuple[int, int, int]:
        new = sum(not used[key] for key in keys[number])
        times = 0 if new else sum(used[key] for key in keys[number])
        return -len(named[number] - executed), -new, times

    waiting, chosen = [(order(number), number) for number in range(len(runs))], list[int]()
    waiting.sort()
    while waiting and len(chosen) < size:
        before, number = heappop(waiting)
        now = order(number)
        if now > before:  # places only get worse, so the first run with an unchanged place is the best
            heappush(waiting, (now, number))
        else:
            chosen.append(number)
            used.update(keys[number])
            executed |= named[number]
    return [runs[number] for number in sorted(chosen)]


def unrepeatable_reason(path: Path) -> str | None:
    """Return why a run cannot be repeated from its scenario alone. Raises UserError for damaged results."""
    summary = RunDirectory.load(path).summary()
    if "live" in summary:
        return "a live run, whose wall-clock times differ in each repetition"
    if not summary["finished"]:
        return "the run is unfinished"
    if summary.get("fork") and not (path / CELL).is_file():  # forks of a sweep equal the whole run
        return "a fork, whose parent has other settings"
    return None
