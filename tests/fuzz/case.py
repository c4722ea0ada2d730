"""A case: something valid, spoiled in one or more places, and the commands that meet it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.fuzz import isolation, judge
from tests.fuzz.judge import Fault

_RUN_FOR_S = 4.0  # then a run is interrupted, as a person would who finds it too long
_MOST_CHANGES = 4
_LARGEST_MODELS_BYTES = 100_000_000  # of all clients; a run takes several times as much

Commands = list[list[str]]
Kind = Callable[[Random, int], tuple[list[str], Commands]]
"""Writes valid input into the current folder, with so many places spoiled.

Returns what was spoiled, in words, and the commands that meet the input, each if the one before succeeded.
"""


@dataclass(frozen=True)
class Case:
    """A kind of input by its name, and a number, of which everything random in it follows."""

    kind: str
    seed: int
    unspoiled: bool = False

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that `str` gives such a text."""
        kind, seed = text.split(":")
        return cls(kind, int(seed))

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"

    def prepare(self, kind: Kind) -> tuple[list[str], Commands]:
        """Make it in the current folder: few changes, often one, and rarely none."""
        rng = Random(str(self))
        count = min(1 + int(rng.expovariate(1.0)), _MOST_CHANGES) if rng.random() < 0.97 else 0
        return kind(rng, 0 if self.unspoiled else count)


@dataclass(frozen=True)
class Verdict:
    """What came of a case: its fault, if any, and what was done, for people."""

    case: Case
    fault: Fault | None
    words: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    codes: tuple[int, ...] = ()
    interrupted: bool = False
    errors: str = ""

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return "fault" if self.fault else "interrupted" if self.interrupted else f"exit {self.codes[-1]}"


def attempt(case: Case, kind: Kind, data: Path, keep: Path | None = None) -> Verdict:
    """Run a case in a folder of its own, or in `keep`, where its files stay.

    data: a folder with valid data, which the case finds as `data` unless it makes its own.
    """
    with tempfile.TemporaryDirectory(prefix="coterie-fuzz-", ignore_cleanup_errors=True) as place:
        folder, notes = keep or Path(place) / "case", Path(place) / "notes.json"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "data").symlink_to(data)
        before = isolation.watched(lambda: notes.write_text(json.dumps(case.prepare(kind))), folder)
        if before.code != 0:
            return Verdict(case, Fault(f"the fuzzer itself fails at {case.kind}", before.errors[-3000:]))
        words, commands = json.loads(notes.read_text(encoding="utf-8"))
        return replace(_meet(case, not words, folder, commands), words=tuple(words))


def _meet(case: Case, unspoiled: bool, folder: Path, commands: Commands) -> Verdict:
    """Let the commands meet the input, up to the first fault or refusal."""
    verdict, passed, announced_bytes = Verdict(case, None), [""], 0.0
    hidden = judge.hidden_folders(folder)
    for arguments in commands:
        if announced_bytes > _LARGEST_MODELS_BYTES:
            break  # a check has said so: whoever runs it nevertheless wants that
        patience_s = _RUN_FOR_S if arguments[0] == "run" else None
        outcome = isolation.command(arguments, folder, interrupt_after_s=patience_s)
        announced_bytes = judge.announced_bytes(outcome.output)
        # A check promises nothing about options that only a run has.
        promised = passed[0] == "sweep" or passed[1:] == [word for word in arguments[1:] if word != "--quiet"]
        fault = judge.fault(arguments, outcome, checked=passed[0] if promised else "")
        if fault is None and (left := judge.hidden_folders(folder) - hidden):
            fault = Fault(f"{arguments[0]} leaves a hidden folder behind", *left)
        if fault is None and unspoiled and outcome.code not in (0, 130) and not outcome.interrupted:
            fault = Fault(f"{arguments[0]} refuses unspoiled input", outcome.errors[-3000:])
        verdict = replace(
            verdict,
            fault=fault,
            commands=(*verdict.commands, tuple(arguments)),
            codes=(*verdict.codes, outcome.code),
            interrupted=verdict.interrupted or outcome.interrupted,
            errors=outcome.errors[-3000:],
        )
        if fault is not None or outcome.code != 0:
            break
        passed = arguments
    return verdict
