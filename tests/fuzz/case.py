"""A case: something valid, spoiled in one or more places, and the commands that meet it."""

from __future__ import annotations

import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz import isolation, judge
from tests.fuzz.judge import Fault

_RUN_FOR_S = 4.0  # then a run is interrupted, as a person would who finds it too long
_MOST_CHANGES = 4
_LARGEST_MODELS_BYTES = 100_000_000  # of all clients; a run takes several times as much
_LARGEST_COPY_BYTES = 50_000_000

Commands = list[list[str]]


class Kind(ABC):
    """One kind of input. Its methods run in a fork, with a folder of the case's own as the current one."""

    name: ClassVar[str]

    @abstractmethod
    def begin(self, folder: Path, rng: Random) -> Any:
        """Something valid: a state that the other two methods take; it may write files already."""

    @abstractmethod
    def change(self, state: Any, rng: Random) -> str:
        """Spoil it in one place, and say how."""

    @abstractmethod
    def commands(self, state: Any) -> Commands:
        """Write what is not written yet; the arguments of commands, each for where the last succeeded."""


@dataclass(frozen=True)
class Case:
    """A kind, a seed, and which of the changes that the seed stands for are made."""

    kind: str
    seed: int
    changes: tuple[int, ...]

    @classmethod
    def drawn(cls, kind: str, seed: int) -> Case:
        """The case of a seed with all its changes, of which there are few, often one, and rarely none."""
        rng = Random(f"changes {seed}")
        count = min(1 + int(rng.expovariate(1.0)), _MOST_CHANGES) if rng.random() < 0.97 else 0
        return cls(kind, seed, tuple(range(count)))

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that `str` gives such a text."""
        kind, seed, changes = text.split(":")
        return cls(kind, int(seed), tuple(int(number) for number in changes.split(",") if number))

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}:{','.join(map(str, self.changes))}"

    def prepare(self, kind: Kind, folder: Path) -> tuple[list[str], Commands]:
        """Make it in `folder`; what was changed, in words, and the commands."""
        state = kind.begin(folder, Random(f"{self.kind} {self.seed}"))
        words = [kind.change(state, Random(f"{self.kind} {self.seed} {number}")) for number in self.changes]
        return words, kind.commands(state)


@dataclass(frozen=True)
class Verdict:
    """What came of a case: its fault, if any, and what was done, for people."""

    case: Case
    fault: Fault | None
    words: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    codes: tuple[int, ...] = ()
    longest_s: float = 0.0
    peak_bytes: int = 0
    interrupted: bool = False
    errors: str = field(default="", repr=False)


def attempt(case: Case, kind: Kind, data: Path, keep: Path | None = None) -> Verdict:
    """Run a case in a folder of its own, which is moved to `keep` afterwards, or removed.

    data: a folder with valid data, which the case finds as `data` unless it makes its own.
    """
    with tempfile.TemporaryDirectory(prefix="coterie-fuzz-", ignore_cleanup_errors=True) as place:
        folder, notes = Path(place) / "case", Path(place) / "notes.json"
        folder.mkdir()
        (folder / "data").symlink_to(data)
        before = isolation.watched(lambda: notes.write_text(json.dumps(case.prepare(kind, folder))), folder)
        if before.code != 0:
            return Verdict(case, Fault(f"the fuzzer itself fails at {case.kind}", before.errors[-3000:]))
        words, commands = json.loads(notes.read_text(encoding="utf-8"))
        verdict = _meet(case, folder, commands)
        verdict = replace(verdict, words=tuple(words))
        if keep is not None:
            _save(verdict, folder, keep)
        return verdict


def _meet(case: Case, folder: Path, commands: Commands) -> Verdict:
    """Let the commands meet the input, up to the first fault or refusal."""
    verdict, passed, announced_bytes = Verdict(case, None), [""], 0.0
    for arguments in commands:
        if announced_bytes > _LARGEST_MODELS_BYTES:
            break  # a check has said so: whoever runs it nevertheless wants that
        patience_s = _RUN_FOR_S if arguments[0] == "run" else None
        outcome = isolation.command(arguments, folder, interrupt_after_s=patience_s)
        announced_bytes = judge.announced_bytes(outcome.output)
        # A check promises nothing about options that only a run has.
        promised = passed == [word for word in arguments[1:] if word != "--quiet"]
        fault = judge.fault(arguments, outcome, checked=promised)
        if fault is None:
            fault = judge.left_behind(folder, arguments)
        if fault is None and not case.changes and outcome.code != 0 and not outcome.interrupted:
            fault = Fault(f"{arguments[0]} refuses unspoiled input", outcome.errors[-3000:])
        verdict = replace(
            verdict,
            fault=fault,
            commands=(*verdict.commands, tuple(arguments)),
            codes=(*verdict.codes, outcome.code),
            longest_s=max(verdict.longest_s, outcome.wall_s),
            peak_bytes=max(verdict.peak_bytes, outcome.peak_bytes),
            interrupted=verdict.interrupted or outcome.interrupted,
            errors=outcome.errors[-3000:],
        )
        if fault is not None or outcome.code != 0:
            break
        passed = arguments[1:]
    return verdict


def minimised(verdict: Verdict, kind: Kind, data: Path) -> Verdict:
    """The same fault with as few of the changes as show it."""
    assert verdict.fault is not None
    for number in verdict.case.changes:
        fewer = replace(
            verdict.case, changes=tuple(other for other in verdict.case.changes if other != number)
        )
        found = attempt(fewer, kind, data)
        if found.fault is not None and found.fault.name == verdict.fault.name:
            verdict = found
    return verdict


def _save(verdict: Verdict, folder: Path, keep: Path) -> None:
    """Copy what is needed to see the fault again, and write down what it is."""
    shutil.rmtree(keep, ignore_errors=True)
    _copy_files(folder, keep)
    lines = [f"case {verdict.case}", *(f"changed: {words}" for words in verdict.words)]
    lines += [f"coterie {' '.join(map(repr, arguments))}" for arguments in verdict.commands]
    lines.append(f"exit codes {verdict.codes}")
    if verdict.fault is not None:
        lines += [verdict.fault.name, verdict.fault.detail]
    (keep / "CASE.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")


def _copy_files(source: Path, target: Path) -> None:
    """Copy a folder with links as links, and without pipes and files of many gigabytes full of nothing."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if not _can_be_copied(Path(folder, name))]

    shutil.copytree(source, target, symlinks=True, ignore=ignored)


def _can_be_copied(path: Path) -> bool:
    return (
        path.is_symlink() or path.is_dir() or (path.is_file() and path.stat().st_size < _LARGEST_COPY_BYTES)
    )
