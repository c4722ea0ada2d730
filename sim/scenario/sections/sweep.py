"""A table `[sweep]`: what differs between the runs of a study, and how they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, WithJsonSchema, model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import ClientList

SEEDS_MAX = 10_000
_SEEDS = (
    f"a whole number from 1 to {SEEDS_MAX:,}, or a list of different seeds, each a whole number, at least 0"
)


def _seeds(value: Any) -> Any:
    if type(value) is int and 1 <= value <= SEEDS_MAX:
        return value
    seeds = list(value) if isinstance(value, list | tuple) else []
    is_good = all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)
    if not seeds or not is_good or len(set(seeds)) < len(seeds) or len(seeds) > SEEDS_MAX:
        raise ValueError(f"must be {_SEEDS}")
    return tuple(seeds)


Seeds = Annotated[
    int | tuple[int, ...],
    BeforeValidator(_seeds),
    WithJsonSchema({"x-allowed": _SEEDS, "anyOf": [{"type": "integer"}, {"type": "array", "minItems": 1}]}),
]
_Name = Annotated[
    str | int | float,
    WithJsonSchema({"x-allowed": "text or a number", "anyOf": [{"type": "string"}, {"type": "number"}]}),
]


def _keyed(allowed: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "x-allowed": allowed})


_Lists = Annotated[dict[str, Any], _keyed("a table of lists by key")]
_Labels = Annotated[dict[str, str], _keyed("a table of texts by key")]


def listed(table: Mapping[str, Any], *above: str) -> dict[str, Any]:
    """The lists in a table by their whole keys: ``network.loss = [...]`` is a list within a table."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= (
            listed(value, *above, key) if isinstance(value, Mapping) else {".".join((*above, key)): value}
        )
    return found


class Case(Settings):
    """One value of an axis whose values take several keys."""

    name: _Name
    """The case's name in tables and pictures; a number where it has a place on a scale."""
    axis: str = "case"
    """The axis that it is a value of."""
    set: tuple[str, ...] = ()
    """The keys that it states, each as after `--set`: ``"network.loss=0.1"``."""
    unset: tuple[str, ...] = ()
    """Keys that it takes out of the file."""
    without: tuple[str, ...] = ()
    """Axes that are left out for it, as they can change nothing: it is run with the first value of each."""
    excluded: tuple[NonNegativeInt, ...] = ()
    """Clients whose devices or lives the case changes. They do not count when the case is compared, nor in
    what it is compared with, so that one sees what it does to the others."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, stated: Any) -> Any:
        if isinstance(stated, Mapping) and "struck" in stated:
            raise SettingError("struck", stated["struck"], "is called excluded now")
        return stated


class Axes(Settings):
    """Which runs there are: all combinations of `grid`, `zip` and the cases of each axis, with every seed."""

    seeds: Seeds | None = None
    """How many seeds, counted from run.seed, or a list of them; by default run.seed alone."""
    set: tuple[str, ...] = ()
    """The keys that all runs state, each as after `--set`."""
    grid: _Lists = Field(default_factory=dict)
    """Lists of values by key: ``"network.loss" = [0, 0.1]``. Every combination is run."""
    zip: _Lists = Field(default_factory=dict)
    """Lists of equally many values by key, which go together: the first of each, the second of each, ..."""
    case: tuple[Case, ...] = ()
    """Values that take several keys."""

    @model_validator(mode="after")
    def _consistent(self) -> Axes:
        for table in ("grid", "zip"):
            for key, values in listed(getattr(self, table)).items():
                if not isinstance(values, list) or not values:
                    raise SettingError(f"{table}.{key}", values, "must be a list of values, one at least")
        lengths = [len(values) for values in listed(self.zip).values()]
        if len(set(lengths)) > 1:
            raise SettingError("zip", None, f"all lists must be of one length, not {lengths}")
        names = [(case.axis, str(case.name)) for case in self.case]
        for number, name in enumerate(names):
            if name in names[:number]:
                problem = f"the axis {name[0]} has a case of that name already"
                raise SettingError(f"case.{number}.name", name[1], problem)
        return self


class Comparing(Settings):
    """How `coterie compare` shows this sweep, where its options say nothing else."""

    by: str | None = None
    """The axis to draw along."""
    baseline: str | None = None
    """The value of an axis that the others are compared with: ``"protocol=local"``."""
    metrics: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """What is compared: measured metrics by name, and numbers of the summary by their path."""
    target: PositiveFloat | None = None
    """The target whose time, bytes, steps and FLOPs are told; by default that of the run."""
    clients: ClientList | None = None
    """The clients whose means are compared; by default all."""


class Sweep(Axes):
    """The runs of a study, for `coterie sweep`; `coterie run` runs the file without this table."""

    scenario: str | None = None
    """The file whose runs these are, by its path from here, where this one holds nothing but the sweep."""
    full: Axes = Axes()
    """What differs with `--full`: seeds, lists of the same key and cases of the same axis take the place of
    those of the short form."""
    forks: bool = False
    """Whether runs go on from the first run of their seed with the same past: results are the same, and what
    they share is computed once."""
    labels: _Labels = Field(default_factory=dict)
    """Labels of keys in tables and pictures: ``"network.loss" = "messages lost"``."""
    compare: Comparing = Comparing()
    """How it is compared."""

    def axes(self, *, full: bool) -> Axes:
        """The axes of the short or the full form."""
        if not full:
            return self
        more = self.full
        replaced = {case.axis for case in more.case}
        return Axes(
            seeds=more.seeds or self.seeds,
            set=(*self.set, *more.set),
            grid=listed(self.grid) | listed(more.grid),
            zip=more.zip or self.zip,
            case=tuple([case for case in self.case if case.axis not in replaced]) + more.case,
        )
