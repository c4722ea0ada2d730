"""How far a run is, noted in its hidden folder for `coterie watch`. Nothing hangs on whether that works."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from sim.files.input_file import InputFile
from sim.results.measures import MEASURES
from sim.results.store.output_dir import PROGRESS
from sim.run.save.progress import RUNNING, Progress, Show

_EVERY_S = 1.0  # real time
_MOST_POINTS = 400  # of the curve


class Note(BaseModel):
    """progress.json. share: of what is done, None if unknown. curve: (virtual seconds, reached) so far.

    reached: the mean of the `measure` of this name.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, strict=True)

    phase: str
    virtual_s: float
    remaining_s: float | None
    clients_up: int
    messages: int
    measure: str = "accuracy"
    # "accuracy" in files of earlier versions
    reached: float | None = Field(validation_alias=AliasChoices("reached", "accuracy"))
    share: float | None
    curve: tuple[tuple[float, float], ...]

    @field_validator("measure")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in {measure.name for measure in MEASURES}:
            raise ValueError("must be what clients are judged by")
        return name

    @classmethod
    def of(cls, progress: Progress, curve: list[tuple[float, float]]) -> Self:
        """The progress to note; numbers that are not finite are left out."""
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
        """The progress of a run that goes on in this folder. UserError."""
        return InputFile("", folder / PROGRESS).parsed(cls.model_validate_json, "what a run notes")

    def write(self, folder: Path) -> None:
        """Put it in the place of an earlier one, in one step. Raises OSError."""
        new = folder / f"{PROGRESS}.new"
        new.write_text(self.model_dump_json(), encoding="utf-8")
        new.replace(folder / PROGRESS)


def saving_progress(folder: Callable[[], Path], show: Show | None) -> Show:
    """A `show` that writes progress into a folder, about once a second, and then calls the given `show`."""
    curve: list[tuple[float, float]] = []
    written_s = 0.0

    def note(progress: Progress) -> None:
        nonlocal written_s
        reached = _finite(progress.reached)
        if reached is not None and (not curve or curve[-1][1] != reached):
            curve.append((progress.virtual_s, reached))
            if len(curve) > _MOST_POINTS:
                del curve[1::2]
        if progress.phase != RUNNING or progress.elapsed_s - written_s >= _EVERY_S:
            written_s = progress.elapsed_s
            with suppress(OSError):  # the disk is full: the run is worth more
                Note.of(progress, curve).write(folder())
        if show is not None:
            with suppress(OSError):  # the terminal has been closed; the run is worth more
                show(progress)

    return note


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
