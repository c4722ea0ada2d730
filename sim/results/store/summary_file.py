"""Schema of summary.json: keys and types that readers rely on.

A checksum shows that a file is unchanged, but not that coterie wrote it.
"""

import json
from typing import Any, NotRequired

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict  # pydantic accepts typing's from Python 3.12 on

from sim.results.measures import MEASURES, Measure, add_measure

Number = int | float | None


class _Table(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)  # type: ignore[misc]


class _Spread(_Table):
    clients: int
    mean: Number
    std: NotRequired[Number]
    worst_decile: NotRequired[Number]


class _Graph(_Table):
    l1: Number
    edge_precision: NotRequired[Number]
    edge_recall: NotRequired[Number]
    edge_threshold: NotRequired[Number]
    weights_are_shares: NotRequired[bool]


class _LargestGain(_Table):
    client: str
    gain: int | float


class _GainSummary(_Table):
    better: int
    worse: int
    mean_alone: Number
    mean_gain: Number
    least: _LargestGain
    most: _LargestGain


class _Population(_Table):
    newcomers: int
    came_back: int
    caught_up: int
    went_before: int
    still_behind: int
    catch_up_seconds: dict[str, Number]
    departures: int
    recovered: int
    recovery_seconds: dict[str, Number]
    deepest_dip: Number


class _FirstFailure(_Table):
    actor: str
    seconds: int | float
    error: str
    place: NotRequired[str | None]


class _Failed(_Table):
    stopped: list[str]
    restarts: int
    errors: int
    first: _FirstFailure


class _NonFiniteModels(_Table):
    found: str
    client: str
    seconds: int | float
    at_end: list[str]


class _Engine(_Table):
    jobs: int
    batches: int
    mean_batch: int | float
    seconds: int | float
    updates: int
    device: str
    ways: list[str]
    threads: int | str | None
    memory: int
    memory_per_client: int | float


class _Budget(_Table):
    """Budget of each client by kind, and the times at which it was used."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")  # type: ignore[misc]

    spent_seconds: NotRequired[list[Number]]


class _Amounts(_Table):
    joules: Number
    cost: Number
    co2_grams: Number


class _Energy(_Amounts):
    """Energy of all clients and servers; null stands for unknown amounts."""

    currency: str
    unknown: list[str]
    parts: dict[str, _Amounts]
    messages: dict[str, _Amounts]
    servers: _Amounts
    clients: dict[str, list[Number]]
    simulation_cpu_seconds: Number


class _OwnMeasure(_Table):
    """Measure that a function of the user computed."""

    name: str
    label: str
    higher_is_better: bool


class _Summary(_Table):
    """summary.json, described in docs/results.md. Keys without a field here are informative."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")  # type: ignore[misc]

    scenario: str
    protocol: str
    seed: int
    virtual_seconds: int | float
    wall_seconds: int | float
    trace_hash: str
    clients: dict[str, int]
    client_names: list[str]
    accuracy: _Spread
    better_than_alone: Number
    graph: _Graph | None
    messages: dict[str, int]
    engine: _Engine
    device_time: dict[str, int | float]
    alone: NotRequired[bool]
    overrides: NotRequired[list[str]]
    planned_seconds: NotRequired[Number]
    converged_seconds: NotRequired[Number]
    measure: NotRequired[str]
    own_measures: NotRequired[list[_OwnMeasure] | None]
    settled: NotRequired[dict[str, Number] | None]
    models: NotRequired[dict[str, _Spread] | None]
    help: NotRequired[_GainSummary | None]
    population: NotRequired[_Population | None]
    membership: NotRequired[dict[str, int | list[str]]]
    bytes_by_type: NotRequired[dict[str, tuple[int, int]]]
    rounds: NotRequired[dict[str, int] | None]
    clusters: NotRequired[list[int] | None]
    class_counts: NotRequired[list[list[int]] | None]
    samples: NotRequired[list[int]]
    budget: NotRequired[_Budget | None]
    energy: NotRequired[_Energy | None]
    failed: NotRequired[_Failed | None]
    non_finite: NotRequired[_NonFiniteModels | None]
    interrupted: NotRequired[bool]
    finished: NotRequired[bool]
    ended_by: NotRequired[str | None]
    warnings: NotRequired[list[str]]
    notices: NotRequired[list[str]]
    uncounted: NotRequired[list[str]]


SUMMARY_KEYS = tuple(sorted(_Summary.__required_keys__))
"""Keys of every summary."""
KNOWN_KEYS = _Summary.__required_keys__ | _Summary.__optional_keys__ | {"coalitions", "target", "work"}
"""Keys of summaries, including informative ones that have numbers."""
_KNOWN = TypeAdapter(_Summary)


_DEFAULTS: dict[str, Any] = dict.fromkeys(_Summary.__optional_keys__) | {
    "alone": False,
    "bytes_by_type": {},
    "finished": True,
    "interrupted": False,
    "membership": {},
    "notices": [],
    "overrides": [],
    "samples": [],
    "uncounted": [],
    "warnings": [],
}
"""Defaults of keys that summaries of earlier versions lack; null for all others."""


def parse_summary(content: bytes) -> dict[str, Any]:
    """Parse a summary, with every key that this version reads. Raises ValueError.

    The measures of the user's functions in it are added to `MEASURES`.
    """
    _KNOWN.validate_json(content)
    found: dict[str, Any] = json.loads(content)  # validated values have tuples instead of lists
    if found["clients"].keys() < {"initial", "alive"}:
        raise ValueError("clients must contain initial and alive")
    for own in found.get("own_measures") or ():
        add_measure(Measure(own["name"], own["label"], higher_is_better=own["higher_is_better"]))
    return _DEFAULTS | {"measure": _measure(found)} | found


def _measure(summary: dict[str, Any]) -> str:
    """Return the measure of a summary that lacks the key `measure`: the first measure with a value."""
    for measure in MEASURES:
        values = summary.get(measure.name)
        if isinstance(values, dict) and values.get("mean") is not None:
            return measure.name
    return MEASURES[0].name
