"""File with the progress of a run in its hidden folder, for `coterie watch`. Write errors are ignored."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from sim.files.input_file import InputFile
from sim.results.store.output_dir import PROGRESS
from sim.run.save.progress import RUNNING, Progress, Show

_EVERY_S = 1.0  # real time
_MOST_POINTS = 400  # of the curve


class ProgressRecord(BaseModel):
    """Contents of progress.json. share: the finished share, or None. curve: (virtual seconds, reached).

    reached: the mean of the `measure` of this name.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, strict=True)

    phase: str
    virtual_s: float
    remaining_s: float | None
    clients_up: int
    messages: int
    measure: Annotated[str, Field(pattern=r"^\w{1,200}$")] = "accuracy"  # also a function of the user
    # "accuracy" in files of earlier versions
    reached: float | None = Field(validation_alias=AliasChoices("reached", "accuracy"))
    share: float | None
    curve: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, progress: Progress, curve: list[tuple[float, float]]) -> Self:
        """Return the record of a run's progress, without values that are not finite."""
        shares = [share for share in progress.shares if share is not None]
        return cls(
            phase=progress.phase,
            virtual_s=progress.virtual_s,
            remaining_s=_finite(progress.remaining_s),
            clients_up=progress.clients_up,
            messages=progress.messages,
            measure=progress.measure.name,
            reached=_finite(progress.reached),
            share=_finite(max(shares, default=None)),
            curve=tuple(curve),
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the progress of a run in this folder. Raises UserError."""
        return InputFile("", folder / PROGRESS).parsed(cls.model_validate_json, "the progress of a run")

    def write(self, folder: Path) -> None:
        """Replace the earlier file, in one step. Raises OSError."""
        new = folder / f"{PROGRESS}.new"
        new.write_text(self.model_dump_json(), encoding="utf-8")
        new.replace(folder / PROGRESS)


def saving_progress(folder: Callable[[], Path], show: Show | None) -> Show:
    """Return a `show` that writes progress to a folder, about once per second, and then calls `show`."""
    curve: list[tuple[float, float]] = []
    written_s = 0.0

    def record(progress: Progress) -> None:
        nonlocal written_s
        reached = _finite(progress.reached)
        if reached is not None and (not curve or curve[-1][1] != reached):
            curve.append((progress.virtual_s, reached))
            if len(curve) > _MOST_POINTS:
                del curve[1::2]
        if progress.phase != RUNNING or progress.elapsed_s - written_s >= _EVERY_S:
            written_s = progress.elapsed_s
            with suppress(OSError):  # a full disk does not end the run
                ProgressRecord.of(progress, curve).write(folder())
        if show is not None:
            with suppress(OSError):  # a closed terminal does not end the run
                show(progress)

    return record


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
