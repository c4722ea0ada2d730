"""The sample of an archive's runs that is repeated: first the authors' code, then many values."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType

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
