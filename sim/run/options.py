"""Options of a run that all ways to run a scenario share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.core.run_hook import RunHook
from sim.errors import UserError
from sim.run.save.evaluation_callback import EvaluationFunction
from sim.run.save.progress import Show
from sim.run.setup.engine import MakeWorkers, local_workers
from sim.run.together import JointRunHook

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run that do not change the simulation. Raises UserError for invalid values."""

    out: Path = Path("runs")
    """Parent folder of the results folder."""
    overwrite: bool = False
    """True if the results replace earlier ones of the same scenario when the run has finished."""
    device: str = "auto"
    data_dir: Path | None = None
    """Folder with data sets; by default $COTERIE_DATA."""
    progress: Show | None = None
    """Callback for the progress of the run, a few times per second."""
    notice: Callable[[str], None] | None = None
    """Callback for each line for the user, such as the location of the results."""
    on_evaluation: EvaluationFunction | None = None
    """Callback for each `Evaluation`. An error that it raises ends the run, after the results are written."""
    hooks: Sequence[RunHook] = ()
    checkpoint_every_s: float | None = None
    """Wall-clock seconds between two checkpoints."""
    checkpoint_at_end: bool = True
    """True to write a checkpoint at the end of the run, if the checkpoint is small."""
    checkpoints_s: Sequence[float] = ()
    """Virtual times of further checkpoints, which are kept."""
    anyway: bool = False
    """True to continue from a checkpoint although code or data have changed."""
    workers: MakeWorkers = local_workers
    """Factory of the workers that compute parts of batches. The results do not depend on it."""
    seat: JointRunHook | None = None
    """Hook by which the run computes together with other runs; None for a run by itself."""
    report: bool = True
    """True to write a report."""

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
            _require(
                0 <= time_s < math.inf, "checkpoints_s", f"must be times of at least 0, not {time_s!r:.60}"
            )


def _require(holds: bool, name: str, problem: str) -> None:
    if not holds:
        raise UserError(f"{name}: {problem}")


DEFAULT = RunOptions()
