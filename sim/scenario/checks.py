"""What must fit together across the sections of a scenario."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from actors.message import describe
from actors.settings.base import SettingError
from actors.settings.members import client_numbers
from protocols.framework.member import ProtocolSettings
from sim.errors import UserError
from sim.learning.data import IMAGE_DATASETS
from sim.learning.models import model_misfits
from sim.scenario.protocol_checks import defined, requirements_of
from sim.scenario.sections import Sections
from sim.world.churn import ChurnEvent, ImpossibleEvent, validate_schedule
from sim.world.membership import Bootstrap

if TYPE_CHECKING:
    from protocols.framework.learner import Learner


def misfits(sections: Sections) -> Iterator[SettingError]:
    """Everything in one section that contradicts another."""
    yield from _topology(sections)
    yield from sections.data.misfits(sections.clients.count)
    yield from _augmentation(sections)
    yield from model_misfits(sections.model, sections.data)
    yield from _client_numbers(sections)
    yield from _places(sections)
    yield from _starts(sections)
    yield from _churn(sections)


def unmet(learner: "type[Learner]", settings: ProtocolSettings, sections: Sections) -> Iterator[SettingError]:
    """What a protocol needs of the other sections and does not get. Raises UserError for its own mistakes."""
    where = f"{defined(learner.requirements)}: {learner.__name__}.requirements()"
    for need in requirements_of(learner, settings):
        try:
            value = attrgetter(need.key)(sections)
        except AttributeError:
            has_not = "a scenario, or a section of its kind, has no such key (docs/scenarios.md has all)"
            raise UserError(f'{where}: "{need.key}": {has_not}') from None
        try:
            suits = need.key in settings.unusual or need.suits(value)
        except Exception as error:
            failed = f'suits of "{need.key}" must be a function of the value, and failed for {value!r:.60}'
            raise UserError(f"{where}: {failed}: {describe(error)}") from error
        if not suits:
            name, on_purpose = sections.protocol.name, f'protocol.unusual = ["{need.key}"]'
            problem = f'protocol.name = "{name}" {need.problem} ({on_purpose} takes it all the same)'
            yield SettingError(need.key, value, problem)


def _topology(sections: Sections) -> Iterator[SettingError]:
    topology = sections.clients.topology
    if isinstance(sections.network.membership, Bootstrap) and topology.kind != "complete":
        problem = (
            f'chooses peers among all clients, but clients.topology = "{topology.kind}" '
            'does not let everybody talk to everybody: must be another kind, or the topology "complete"'
        )
        yield SettingError("network.membership.kind", "bootstrap", problem)
    for misfit in topology.misfits(sections.clients.count):
        key = ".".join(filter(None, ("clients.topology", misfit.key)))
        yield SettingError(key, misfit.value, misfit.problem)


def _augmentation(sections: Sections) -> Iterator[SettingError]:
    if sections.training.augmentation is not None and not sections.data.is_images:
        problem = (
            f'changes images, and a sample of data.name = "{sections.data.name}" is none but a row of '
            f'numbers; leave the section out, or take another data set, such as "{IMAGE_DATASETS[0]}"'
        )
        yield SettingError("training.augmentation", None, problem)


def _client_numbers(sections: Sections) -> Iterator[SettingError]:
    """Every client that is mentioned must exist."""
    mentioned: list[tuple[str, Sequence[int] | None]] = []
    for i, override in enumerate(sections.devices.override):
        mentioned.append((f"devices.override.{i}.clients", override.clients))
    for i, kind in enumerate(sections.devices.classes):
        mentioned.append((f"devices.class.{i}.clients", kind.clients))
    for i, slowdown in enumerate(sections.devices.slowdown):
        mentioned.append((f"devices.slowdown.{i}.clients", slowdown.clients))
    for i, own in enumerate(sections.devices.slow_times):
        mentioned.append((f"devices.slow_times.{i}.clients", own.clients))
    for key in ("transient", "periodic", "measured"):
        if (slow_times := getattr(sections.devices, key)) is not None:
            mentioned.append((f"devices.{key}.clients", slow_times.clients))
    mentioned += [(key, client_numbers(members)) for key, members in sections.network.members()]
    for i, event in enumerate(sections.churn):
        mentioned.append((f"churn.{i}.clients", event.clients))
    for i, process in enumerate(sections.churn_process):
        mentioned.append((f"churn_process.{i}.clients", process.clients))
    last = sections.clients.count - 1
    for key, clients in mentioned:
        if clients is not None and (unknown := [client for client in clients if client > last]):
            yield SettingError(
                key, clients, f"there is no client {unknown[0]}; must be numbers from 0 to {last}"
            )


def _places(sections: Sections) -> Iterator[SettingError]:
    """Where the clients are must be said for each or for none."""
    clients = sections.clients.count
    for key, latency in sections.network.positions():
        if latency.places is not None and len(latency.places) != clients:
            stated = len(latency.places)
            problem = f"must be one place for each client, clients.count = {clients}, not {stated}"
            yield SettingError(f"{key}.places", latency.places, problem)


def _starts(sections: Sections) -> Iterator[SettingError]:
    """What is to happen in a run must begin before its end."""
    starts_s = {f"network.partition.{i}.start": cut.start for i, cut in enumerate(sections.network.partition)}
    starts_s |= {
        f"devices.slowdown.{i}.start": slow.start for i, slow in enumerate(sections.devices.slowdown)
    }
    starts_s |= {f"churn.{i}.at": entry.at for i, entry in enumerate(sections.churn)}
    starts_s |= {f"change.{i}.at": change.at for i, change in enumerate(sections.change)}
    crashes = () if sections.server is None else sections.server.crash
    starts_s |= {f"server.crash.{i}.at": crash.at for i, crash in enumerate(crashes)}
    for key, start_s in starts_s.items():
        if (duration_s := sections.run.duration) is not None and start_s >= duration_s:
            problem = f"comes after the end of the run; must be before run.duration ({duration_s:g} s)"
            yield SettingError(key, start_s, problem)


def _churn(sections: Sections) -> Iterator[SettingError]:
    if sections.run.duration is not None and any(e.at >= sections.run.duration for e in sections.churn):
        return  # said already
    named = [(index, entry) for index, entry in enumerate(sections.churn) if entry.clients is not None]
    if len(named) < len(sections.churn) or any(entry.spread for entry in sections.churn):
        return  # whom it concerns, and when, is known when the world is built; it is checked there
    if any(client >= sections.clients.count for _, entry in named for client in entry.clients or ()):
        return  # said already
    events = [ChurnEvent(entry.at, entry.event, entry.clients or (), entry.state) for _, entry in named]
    try:
        validate_schedule(events, sections.clients.count)
    except ImpossibleEvent as error:
        yield SettingError(f"churn.{error.place}.event", sections.churn[error.place].event, error.problem)
        return
    late = {client for event in events if event.kind == "join" for client in event.clients}
    if len(late) == sections.clients.count:
        yield SettingError(
            "churn", None, "every client joins later; at least one must be there from the start"
        )
