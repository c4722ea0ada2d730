"""Shared prefix of two scenarios: the part up to a virtual time that is simulated only once."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.settings.units import DURATION
from sim.errors import UserError
from sim.scenario.overrides import apply
from sim.scenario.resolved import digest, resolve_contents
from sim.scenario.scenario import Scenario
from sim.scenario.sections.change import ChangedNetwork, ChangedTraining
from sim.scenario.sections.server import ServerSection

LATER = ("run.duration", "change", "churn", "network.partition", "devices.slowdown", "server.crash")
"""Keys that may differ after a given time: the end of the run, and entries that start later. A change may
also start at that time, as it comes after all other events of the time."""

_CHANGING = tuple(f"network.{key}" for key in ChangedNetwork.model_fields) + tuple(
    f"training.{key}" for key in ChangedTraining.model_fields
)


def prefix_digest(scenario: Scenario, time_s: float) -> str:
    """Return the digest of a scenario without its duration and without entries that start after `time_s`.

    Changes at `time_s` itself are also left out.
    """
    return digest(_prefix_until(scenario, time_s))


def require_same_prefix(scenario: Scenario, parent: Scenario, time_s: float) -> None:
    """Raise UserError that names the key if a scenario differs from its parent at or before `time_s`."""
    ours, theirs = (
        dict(_leaves(resolve_contents(_prefix_until(each, time_s)))) for each in (scenario, parent)
    )
    for key in dict.fromkeys([*ours, *theirs]):
        if ours.get(key) != theirs.get(key):
            kind = next((kind for kind in LATER if key.startswith(f"{kind}.")), None)
            if kind is None:
                later, changing = ", ".join(LATER), ", ".join(changeable_keys(parent))
                raise UserError(
                    f"{key} cannot change during a run. After --at, these can differ: {later}. --set can "
                    f"change: {changing}"
                )
            when = "before" if kind == "change" else "at or before"
            raise UserError(
                f"{key} belongs to an entry that starts {when} --at ({time_s:g} s); only later entries can "
                "differ from those of the run"
            )


def shared_prefix_end(scenario: Scenario, parent: Scenario) -> float | None:
    """Return the latest time (s) right before an entry until which both scenarios are the same, or None.

    Entries are changes, churn, partitions, slowdowns and server crashes. A change comes after all other
    events of its time, so the time right before it is this time itself. None if the scenarios differ from the
    start, and if there is no such time between the start and the end of both runs.
    """
    if prefix_digest(scenario, -math.inf) != prefix_digest(parent, -math.inf):
        return None
    durations_s = [each.run.duration for each in (scenario, parent) if each.run.duration is not None]
    times_s = {time_s for each in (scenario, parent) for time_s in _before_entries(each)}
    for time_s in sorted(times_s, reverse=True):
        is_within = 0 < time_s < min(durations_s, default=math.inf)
        if is_within and prefix_digest(scenario, time_s) == prefix_digest(parent, time_s):
            return time_s
    return None


def _before_entries(scenario: Scenario) -> Iterator[float]:
    """Return the last time (seconds) before each entry that does not start with the run."""
    yield from [change.at for change in scenario.change]  # a change comes after all events of its time
    server = scenario.server
    starts_s = [entry.at for entry in scenario.churn] + [cut.start for cut in scenario.network.partition]
    starts_s += [slow.start for slow in scenario.devices.slowdown]
    starts_s += [crash.at for crash in server.crash] if server is not None else []
    yield from [math.nextafter(start_s, 0.0) for start_s in starts_s]


def timed_changes(
    overrides: Sequence[str], time_s: float, changing: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Split overrides into those that must hold from the start, and a `[[change]]` at `time_s` with the rest.

    changing: the keys that can change, see `changeable_keys`.
    """
    entry: dict[str, Any] = {}
    keys = {text: text.partition("=")[0].strip() for text in overrides}
    can = {text: any(f"{key}.".startswith(f"{each}.") for each in changing) for text, key in keys.items()}
    apply(entry, [text for text in overrides if can[text]], ())
    timed = {"change": [{"at": DURATION.format(time_s)} | entry]} if entry else {}
    return [text for text in overrides if not can[text]], timed


def changeable_keys(scenario: Scenario) -> tuple[str, ...]:
    """Return the keys that a `[[change]]` can change while this scenario runs."""
    return (*_CHANGING, *[f"protocol.{key}" for key in scenario.protocol.method.Settings.changing])


def _prefix_until(scenario: Scenario, time_s: float) -> Scenario:
    network, devices, server = scenario.network, scenario.devices, scenario.server
    cuts = tuple([cut for cut in network.partition if cut.start <= time_s])
    slow = tuple([slowdown for slowdown in devices.slowdown if slowdown.start <= time_s])
    server = server or ServerSection()
    crashes = tuple([crash for crash in server.crash if crash.at <= time_s])
    return replace(
        scenario,
        run=scenario.run.model_copy(update={"duration": None}),
        change=tuple([change for change in scenario.change if change.at < time_s]),
        churn=tuple([entry for entry in scenario.churn if entry.at <= time_s]),
        network=network.model_copy(update={"partition": cuts}),
        devices=devices.model_copy(update={"slowdown": slow}),
        server=server.model_copy(update={"crash": crashes}),
    )


def _leaves(contents: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(contents, Mapping):
        for name, item in contents.items():
            yield from _leaves(item, f"{key}.{name}".removeprefix("."))
    elif isinstance(contents, list):
        for number, item in enumerate(contents):
            yield from _leaves(item, f"{key}.{number}")
    else:
        yield key, contents
