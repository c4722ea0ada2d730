"""Warnings of runs as numbered footnotes of tables, with the number of runs that have each warning."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sim.errors import one_line
from sim.results.text import counted

DAGGER = "\N{DAGGER}"
_NUMBERS = re.compile(r"\d[\d.,]*")
_GROUPS_MAX = 3  # groups that a footnote names
_TEXT_MAX = 600


class Footnote(NamedTuple):
    """A warning. mark: its sign in tables. where: numbers of runs with it and of all runs, by group."""

    mark: str
    text: str
    where: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        found = [
            f"{count:,} of {counted(runs, 'run')} of {group}" for group, (count, runs) in self.where.items()
        ]
        more = len(found) - _GROUPS_MAX
        shown = "; ".join(found[:_GROUPS_MAX]) + (
            f"; and in {counted(more, 'other group')}" if more > 0 else ""
        )
        return f"{self.mark} {shown}: {self.text}"


class Footnotes:
    """Footnotes about groups of runs. groups: the warnings of each run, by the name of its group.

    Warnings that differ only in their numbers share a footnote, which has the numbers of the first run.
    """

    def __init__(self, groups: Mapping[str, Sequence[Sequence[str]]]) -> None:
        first: dict[str, str] = {}
        where: dict[str, dict[str, tuple[int, int]]] = {}
        self._kinds: dict[str, list[str]] = {}
        for group, runs in groups.items():
            for warnings in runs:
                for warning in warnings:
                    first.setdefault(_kind(warning), warning)
            counts = {kind: sum(kind in map(_kind, warnings) for warnings in runs) for kind in first}
            self._kinds[group] = [kind for kind, count in counts.items() if count]
            for kind in self._kinds[group]:
                where.setdefault(kind, {})[group] = (counts[kind], len(runs))
        several = len(first) > 1
        self._marks = {kind: f"{DAGGER}{n if several else ''}" for n, kind in enumerate(first, start=1)}
        self.lines = [
            Footnote(self._marks[kind], one_line(text, _TEXT_MAX), where[kind])
            for kind, text in first.items()
        ]

    def marks(self, group: str) -> str:
        """Return the marks of a group's warnings, such as "†1,2"; empty without warnings."""
        numbers = [self._marks[kind].removeprefix(DAGGER) for kind in self._kinds[group]]
        return f"{DAGGER}{','.join(numbers)}" if numbers else ""

    def of(self, group: str) -> list[Footnote]:
        """Return the footnotes of a group."""
        return [each for each in self.lines if group in each.where]

    def text(self, group: str) -> str:
        """Return the warnings of a group in a line, each with its number of runs; empty without warnings."""
        rows = [(*each.where[group], each.text) for each in self.of(group)]
        return "; ".join(f"{count:,} of {counted(runs, 'run')}: {text}" for count, runs, text in rows)


def _kind(warning: str) -> str:
    return _NUMBERS.sub("#", warning)
