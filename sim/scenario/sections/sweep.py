"""The table `[sweep]`: differences between the runs of a study, and their comparison."""

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


def _object_schema(allowed: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "x-allowed": allowed})


_Lists = Annotated[dict[str, Any], _object_schema("a table of lists by key")]
_Labels = Annotated[dict[str, str], _object_schema("a table of texts by key")]


def lists_by_key(table: Mapping[str, Any], *above: str) -> dict[str, Any]:
    """Return the values in a table, and in tables inside it, by their whole keys, such as "network.loss"."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= (
            lists_by_key(value, *above, key)
            if isinstance(value, Mapping)
            else {".".join((*above, key)): value}
        )
    return found


class Case(Settings):
    """One value of an axis that consists of several keys."""

    name: _Name
    """Name of the case in tables and figures; a number if the axis is a numeric scale."""
    axis: str = "case"
    """The axis to which the case belongs."""
    set: tuple[str, ...] = ()
    """Keys that the case sets, each as after `--set`: ``"network.loss=0.1"``."""
    unset: tuple[str, ...] = ()
    """Keys that the case removes from the file."""
    without: tuple[str, ...] = ()
    """Axes without effect on the case: it is run only with the first value of each."""
    excluded: tuple[NonNegativeInt, ...] = ()
    """Clients whose devices or churn the case changes. They are excluded on both sides of a comparison, to
    show the effect of the case on the other clients."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, stated: Any) -> Any:
        if isinstance(stated, Mapping) and "struck" in stated:
            raise SettingError("struck", stated["struck"], "is now called excluded")
        return stated


class Axes(Settings):
    """The runs: all combinations of `grid`, `zip` and the cases of each axis, with every seed."""

    seeds: Seeds | None = None
    """Number of seeds, counted from run.seed, or a list of seeds; by default only run.seed."""
    set: tuple[str, ...] = ()
    """Keys that all runs set, each as after `--set`."""
    grid: _Lists = Field(default_factory=dict)
    """Lists of values by key: ``"network.loss" = [0, 0.1]``. Every combination is run."""
    zip: _Lists = Field(default_factory=dict)
    """Lists of the same length by key, which are combined item by item: the first of each, the second of
    each, ..."""
    case: tuple[Case, ...] = ()
    """Cases: values that consist of several keys."""

    @model_validator(mode="after")
    def _consistent(self) -> Axes:
        for number, case in enumerate(self.case):
            for key, text in (("name", str(case.name)), ("axis", case.axis)):
                if not text.strip():
                    raise SettingError(f"case.{number}.{key}", text, "must not be empty")
        for table in ("grid", "zip"):
            for key, values in lists_by_key(getattr(self, table)).items():
                if not isinstance(values, list) or not values:
                    raise SettingError(f"{table}.{key}", values, "must be a list of at least one value")
        lengths = [len(values) for values in lists_by_key(self.zip).values()]
        if len(set(lengths)) > 1:
            raise SettingError("zip", None, f"all lists must have the same length, not {lengths}")
        names = [(case.axis, str(case.name)) for case in self.case]
        for number, name in enumerate(names):
            if name in names[:number]:
                problem = f"the axis {name[0]} already has a case with this name"
                raise SettingError(f"case.{number}.name", name[1], problem)
        return self


class Comparing(Settings):
    """Defaults of the options of `coterie compare` for this sweep."""

    by: str | None = None
    """The horizontal axis of figures."""
    baseline: str | None = None
    """The value of an axis with which the other values are compared: ``"protocol=local"``."""
    metrics: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Quantities to compare: metrics by name, and values of the summary by their path."""
    target: PositiveFloat | None = None
    """Target quality; the comparison reports the time, bytes, steps and FLOPs to reach it. By default
    the target of the run (`run.target_accuracy` or `run.target`)."""
    clients: ClientList | None = None
    """The clients whose means are compared; by default all."""


class Sweep(Axes):
    """The runs of a study, for `coterie sweep`; `coterie run` runs the file without this table."""

    scenario: str | None = None
    """Scenario file of the runs, relative to this file, if this file contains only the sweep."""
    full: Axes = Axes()
    """Changes with `--full`: seeds, lists of the same key and cases of the same axis replace those of the
    short form."""
    forks: bool = False
    """True if runs fork from the first run of their seed with the same prefix: the results are the same, and
    the shared prefix is computed once."""
    labels: _Labels = Field(default_factory=dict)
    """Labels of keys in tables and figures: ``"network.loss" = "messages lost"``."""
    compare: Comparing = Comparing()
    """Settings of the comparison."""

    def axes(self, *, full: bool) -> Axes:
        """Return the axes of the short or the full form."""
        if not full:
            return self
        more = self.full
        replaced = {case.axis for case in more.case}
        return Axes(
            seeds=more.seeds or self.seeds,
            set=(*self.set, *more.set),
            grid=lists_by_key(self.grid) | lists_by_key(more.grid),
            zip=more.zip or self.zip,
            case=tuple([case for case in self.case if case.axis not in replaced]) + more.case,
        )
