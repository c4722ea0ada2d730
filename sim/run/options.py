"""How a scenario is run: what all ways to run one have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.core.run_hook import RunHook
from sim.errors import UserError
from sim.run.save.progress import Show
from sim.run.save.telling import Told
from sim.run.setup.engine import MakeWorkers, threads_here

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run that do not change what is simulated. Raises UserError for values that cannot be."""

    out: Path = Path("runs")
    """The folder in which the folder of the results is made."""
    overwrite: bool = False
    """Whether the results take the place of earlier ones of the same scenario, once the run has finished."""
    device: str = "auto"
    data_dir: Path | None = None
    """The folder with data sets; by default $COTERIE_DATA."""
    progress: Show | None = None
    """Called with the progress of the run, a few times a second."""
    notice: Callable[[str], None] | None = None
    """Called with each line for the user, such as where the results go."""
    on_evaluation: Told | None = None
    """Called with each `Evaluation`. The error that it raises ends the run, after the results are written."""
    hooks: Sequence[RunHook] = ()
    checkpoint_every_s: float | None = None
    """Seconds of real time between two checkpoints. With it, a signal writes one, too."""
    checkpoint_at_end: bool = True
    """Whether the end of the run gets a checkpoint, if that is small."""
    checkpoints_s: Sequence[float] = ()
    """Virtual times of further checkpoints, which are kept."""
    anyway: bool = False
    """Whether a run goes on from a checkpoint although its code or its data have changed since."""
    workers: MakeWorkers = threads_here
    """Makes the workers that compute parts of batches. The results are the same with any."""
    report: bool = True
    """Whether the results get a report."""

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UserError(f"--device {self.device}: must be one of {', '.join(DEVICES)}")
        for name in ("progress", "notice", "on_evaluation"):
            _require(getattr(self, name) is None or callable(getattr(self, name)), name, "must be a function")
        are_hooks = isinstance(self.hooks, list | tuple) and all(isinstance(h, RunHook) for h in self.hooks)
        _require(are_hooks, "hooks", "must be a list of objects of RunHook")
        every_s = self.checkpoint_every_s
        _require(every_s is None or every_s > 0, "checkpoint_every_s", "must be above 0")
        for time_s in self.checkpoints_s:
            _require(0 <= time_s < math.inf, "checkpoints_s", f"must be times from 0, not {time_s!r:.60}")


def _require(holds: bool, name: str, problem: str) -> None:
    if not holds:
        raise UserError(f"{name}: {problem}")


DEFAULT = RunOptions()
