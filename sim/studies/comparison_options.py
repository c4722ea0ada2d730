"""options.json: the options of a comparison, with which its tables can be computed again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from sim.files.input_file import InputFile
from sim.studies.comparison import Comparison
from sim.studies.study import load_study

OPTIONS = "options.json"
_BYTES = 1 << 20
_FileName = Annotated[
    str, Field(pattern=r"^[^/\\]+\.(csv|tex|png|svg)$")
]  # which the next comparison may remove


class ComparisonOptions(BaseModel):
    """Options of a comparison; the ones that are None have the values of the study.

    clients: the clients that count, if the user named them. baseline: ``"axis=value"``, if stated. files:
    names of the tables and pictures that the comparison wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    metrics: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    by: str | None = None
    baseline: str | None = None
    target: float | None = None
    clients: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] | None = None
    files: tuple[_FileName, ...] = ()

    @classmethod
    def of(cls, comparison: Comparison, files: Iterable[str]) -> Self:
        """Return the options with which the tables of `comparison` can be computed again."""
        runs = comparison.study.runs
        is_named = not any(run.excluded for run in runs)  # named clients count even if a case excludes them
        return cls(
            metrics=comparison.metrics,
            by=comparison.by,
            baseline=comparison.stated_baseline,
            target=comparison.target,
            clients=runs[0].clients if is_named else None,
            files=tuple(sorted(files)),
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the options in the folder of a comparison. Raises UserError."""
        file = InputFile("", folder / OPTIONS)
        return file.parsed(cls.model_validate_json, "the options of a comparison", _BYTES)

    def write(self, folder: Path) -> None:
        """Write the options into the folder of a comparison. Raises OSError."""
        (folder / OPTIONS).write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def comparison(self, sweep: Path) -> Comparison:
        """Compare the runs of a sweep with these options. Raises UserError."""
        study = load_study([sweep], self.clients)
        return Comparison(study, metrics=self.metrics, by=self.by, baseline=self.baseline, target=self.target)
