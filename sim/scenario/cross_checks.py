"""Checks across the sections of a scenario, and of the number of events."""

import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from actors.settings.base import SettingError, Settings
from actors.settings.units import DURATION
from protocols.framework.client import Client, client_class_for_mode
from protocols.framework.requirements import ProtocolSettings
from protocols.shared.server_rounds import RoundClient
from sim.learning.data.kinds import DATASETS, IMAGE_DATASETS
from sim.learning.models.kinds import model_misfits
from sim.members import client_numbers
from sim.results.measures import ALONE, MEASURES, OF_COTERIE, OWN_METRICS
from sim.scenario.protocol_errors import naming_users_line, protocol_requirements
from sim.scenario.protocol_methods import location_text
from sim.scenario.sections import Sections
from sim.scenario.sections.measures import OwnMeasure
from sim.world.membership.kinds import Bootstrap

_EVALUATIONS_MAX = 10**8  # per run: at a millisecond each, they take a day
_ARRIVALS_MAX = 10**6  # per process: all arrivals are generated before the run starts
_CYCLES_MAX = 10**9  # of good and bad, or fast and slow, times: those in one job or pause are kept

_STARTS = re.compile(
    r"(churn|change|server\.crash)\.\d+\.at|(network\.partition|devices\.slowdown)\.\d+\.start"
)
"""Keys that set the start of an event."""


def section_contradictions(sections: Sections) -> Iterator[SettingError]:
    """Yield all contradictions between sections."""
    yield from _topology(sections)
    yield from _metrics(sections)
    yield from sections.data.misfits(sections.clients.count)
    yield from _augmentation(sections)
    yield from _precision(sections)
    yield from model_misfits(sections.model, sections.data)
    for number, group in enumerate(sections.model_group):
        for misfit in model_misfits(group.model, sections.data):
            yield SettingError(f"model_group.{number}.{misfit.key}", misfit.value, misfit.problem)
    yield from _client_numbers(sections)
    yield from _require_positions(sections)
    yield from _late_start_errors(sections)
    yield from _frequency_errors(sections)


def unmet_requirements(
    method: type[Client], settings: ProtocolSettings, sections: Sections
) -> Iterator[SettingError]:
    """Return the requirements of a protocol that the other sections do not meet.

    Raises:
        UserError: a requirement is invalid.
    """
    yield from _reject_round_schedule(method, sections)
    yield from _reject_inherited_form(method, settings)
    for need in protocol_requirements(method, settings):
        if need.key in settings.unusual:
            continue
        name = sections.protocol.name
        if _is_missing(need.key, sections.data):
            problem = f'has no {need.key}, but protocol.name = "{name}" {need.problem}'
            yield SettingError("data.name", sections.data.name, problem)
            continue
        with naming_users_line(method, "requirements", f' (of "{need.key}")'):
            values = {need.key: attrgetter(need.key)(sections)} | dict(_overridden(need.key, sections))
            unfit = {key: value for key, value in values.items() if not need.suits(value)}
        for key, value in unfit.items():
            accepting = f'protocol.unusual = ["{need.key}"]'
            problem = f'protocol.name = "{name}" {need.problem} (to run it anyway, set {accepting})'
            yield SettingError(key, value, problem)


def _overridden(key: str, sections: Sections) -> Iterator[tuple[str, Any]]:
    """Return the values of a training key in the overrides that state it, with their keys."""
    section, _, name = key.partition(".")
    for number, entry in enumerate(sections.training.override if section == "training" else ()):
        if name in entry.of_training():
            yield f"training.override.{number}.{name}", getattr(entry, name)


def _is_missing(key: str, data: Any) -> bool:
    """Return True if a key belongs to other data sets, but not to this one."""
    section, _, name = key.partition(".")
    known = [kind for kind in DATASETS.values() if name in kind.model_fields]
    return section == "data" and bool(known) and not hasattr(data, name)


def _reject_inherited_form(method: type[Client], settings: ProtocolSettings) -> Iterator[SettingError]:
    """Reject a mode that runs an inherited class, because this ignores what the subclass overrides."""
    form = client_class_for_mode(method, settings)
    if form is not method and "asynchronous" not in vars(method):
        problem = (
            f"would run {form.__name__}, without the changes in {method.__name__} ({location_text(method)}); "
            f"set its `asynchronous` to a subclass of {form.__name__} with the same changes, or use rounds"
        )
        yield SettingError("protocol.mode", getattr(settings, "mode", None), problem)


def _reject_round_schedule(method: type[Client], sections: Sections) -> Iterator[SettingError]:
    """Reject a schedule by rounds if the method has no rounds."""
    stated = [("training.schedule", sections.training.schedule), *_overridden("training.schedule", sections)]
    for where, schedule in stated:
        if schedule is not None and schedule.unit == "round" and not issubclass(method, RoundClient):
            name = sections.protocol.name
            problem = f'protocol.name = "{name}" has no rounds of a server; must be in steps, or a duration'
            for key, value in schedule.spans.items():
                yield SettingError(f"{where}.{key}", str(value), problem)


def _topology(sections: Sections) -> Iterator[SettingError]:
    topology = sections.clients.topology
    if isinstance(sections.network.membership, Bootstrap) and topology.kind != "complete":
        problem = (
            f'chooses peers from all clients, but clients.topology = "{topology.kind}" does not connect all '
            'pairs: use another kind, or the topology "complete"'
        )
        yield SettingError("network.membership.kind", "bootstrap", problem)
    for misfit in topology.misfits(sections.clients.count):
        key = ".".join(filter(None, ("clients.topology", misfit.key)))
        yield SettingError(key, misfit.value, misfit.problem)


def _metrics(sections: Sections) -> Iterator[SettingError]:
    """Return an error for metrics that are not defined for the data, or that are stated twice."""
    names, task = sections.run.metrics or (), sections.data.task
    allowed = [each.name for each in MEASURES if task in each.tasks and each.name in OF_COTERIE]
    problem = f"must be different metrics out of {', '.join(allowed)}, for the task {task}"
    if not set(names) <= set(allowed) or len(set(names)) < len(names):
        yield SettingError("run.metrics", names, problem)
    yield from _own_measures(sections.run.measures or (), task)


def _own_measures(measures: Sequence[OwnMeasure], task: str) -> Iterator[SettingError]:
    own = [each.measure.name for each in measures]
    taken = {*OWN_METRICS, *OF_COTERIE, "iterations"}
    rename = "rename the function"
    for name, each in zip(own, measures, strict=True):
        if name in taken:
            problem = f"a metric of coterie is already named {name}; {rename}"
            yield SettingError("run.measures", each.name, problem)
        elif own.count(name) > 1:
            problem = f"another measure is also named {name}; {rename}"
            yield SettingError("run.measures", each.name, problem)
        if "_of_" in name or name.endswith(ALONE):
            problem = f'the name must not contain "_of_" or end in "{ALONE}"; {rename}'
            yield SettingError("run.measures", each.name, problem)
    if own and task == "quadratic":
        problem = 'need outputs and targets, which data.name = "quadratic" does not have; remove them'
        yield SettingError("run.measures", own, problem)


def _augmentation(sections: Sections) -> Iterator[SettingError]:
    if sections.training.augmentation is not None and not sections.data.is_images:
        problem = (
            f'changes images, but samples of data.name = "{sections.data.name}" are not images; remove the '
            f'section, or use another data set, such as "{IMAGE_DATASETS[0]}"'
        )
        yield SettingError("training.augmentation", None, problem)


def _precision(sections: Sections) -> Iterator[SettingError]:
    if sections.engine.precision == "tf32":
        problem = 'engine.precision = "tf32" applies to the whole process; remove the key, or use "float32"'
        for number, entry in enumerate(sections.training.override):
            if entry.precision is not None:
                yield SettingError(f"training.override.{number}.precision", entry.precision, problem)


def _client_numbers(sections: Sections) -> Iterator[SettingError]:
    """Return errors for lists with unknown clients."""
    last = sections.clients.count - 1
    listed = [(key, value) for key, value in _settings_with_keys(sections) if key.endswith(".clients")]
    listed += [(key, client_numbers(members)) for key, members in sections.network.members()]
    for key, clients in listed:
        unknown = [client for client in clients if client > last] if isinstance(clients, tuple) else []
        if unknown:
            yield SettingError(
                key, clients, f"there is no client {unknown[0]}; must be numbers from 0 to {last}"
            )


def _settings_with_keys(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Return all settings inside a value, with their keys."""
    if isinstance(value, Settings):
        for name, field in type(value).model_fields.items():
            yield from _settings_with_keys(
                getattr(value, name), f"{key}.{field.alias or name}".removeprefix(".")
            )
        return
    yield key, value
    if isinstance(value, tuple) and value and isinstance(value[0], Settings):
        for number, item in enumerate(value):
            yield from _settings_with_keys(item, f"{key}.{number}")


def _require_positions(sections: Sections) -> Iterator[SettingError]:
    """Require one position for each client, or no positions, for latency by position."""
    clients = sections.clients.count
    for key, latency in sections.network.positions():
        if latency.places is not None and len(latency.places) != clients:
            stated = len(latency.places)
            problem = f"must have one position for each client, clients.count = {clients}, not {stated}"
            yield SettingError(f"{key}.places", latency.places, problem)


def _late_start_errors(sections: Sections) -> Iterator[SettingError]:
    """Return errors for events that start after the end of the run."""
    duration_s = sections.run.duration
    for key, start_s in _settings_with_keys(sections):
        if duration_s is not None and _STARTS.fullmatch(key) and start_s >= duration_s:
            when = "after" if start_s > duration_s else "at"
            problem = f"is {when} the end of the run; must be before run.duration ({duration_s:g} s)"
            yield SettingError(key, start_s, problem)


def _frequency_errors(sections: Sections) -> Iterator[SettingError]:
    """Return errors for intervals so short that the number of their events exceeds a limit."""
    run_s, devices = sections.run.duration, sections.devices
    cycles = [
        (f"{prefix}.loss.{section.loss.cycle[0]}", section.loss.cycle[1])
        for prefix, section in sections.network.prefixed()
        if section.loss is not None and section.loss.cycle is not None
    ]
    if devices.transient is not None:
        cycles.append(("devices.transient.every", devices.transient.every + devices.transient.length))
    if devices.periodic is not None:
        cycles.append(("devices.periodic.period", devices.periodic.period))
    repeated = []
    if run_s is not None:
        repeated += [(key, cycle_s, run_s, "cycles", _CYCLES_MAX) for key, cycle_s in cycles]
        if (every_s := sections.run.evaluate_every.seconds) is not None:
            repeated.append(("run.evaluate_every", every_s, run_s, "evaluations", _EVALUATIONS_MAX))
    for number, process in enumerate(sections.churn_process):
        if process.interval is not None:
            key, every_s = process.interval
            until_s = min(filter(None, (process.until, run_s)), default=0.0)
            key = f"churn_process.{number}.{key}"
            repeated.append((key, every_s, until_s, "arrivals of clients", _ARRIVALS_MAX))
    for key, every_s, until_s, what, most in repeated:
        if (count := until_s / every_s) > most:
            allowed = f"must be at most {most:,}: set a longer time, or a shorter run"
            problem = f"makes about {count:.2g} {what} in the run; {allowed}"
            yield SettingError(key, DURATION.format(every_s), problem)
