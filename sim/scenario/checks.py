"""What must fit together across the sections of a scenario, and what would come to too much."""

import re
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from actors.message import describe
from actors.settings.base import SettingError, Settings
from actors.settings.members import client_numbers
from actors.settings.units import DURATION
from protocols.framework.requirements import ProtocolSettings
from sim.errors import UserError
from sim.learning.data import IMAGE_DATASETS
from sim.learning.models import model_misfits
from sim.scenario.protocol_checks import defined, requirements_of
from sim.scenario.sections import Sections
from sim.world.churn.processes import PoissonChurn
from sim.world.churn.schedule import ChurnEvent, ImpossibleEvent, validate_schedule
from sim.world.distributions import RandomQuantity
from sim.world.loss import BurstyLoss
from sim.world.membership import Bootstrap

if TYPE_CHECKING:
    from protocols.framework.client import Client


# A long run may be meant to be interrupted, so that these are generous.
_STEPS_MAX = 10**12  # training steps of all clients: at a microsecond each, twelve days
_EVENTS_MAX = 10**10  # anything else that happens again and again
_EVALUATIONS_MAX = 10**8  # a millisecond each, at least: a day
_MODELS_EVALUATED_MAX = 10**10  # in all of them: a row of the results each
_ARRIVALS_MAX = 10**6  # made before the run begins

Repetition = tuple[str, float, float, str, int]
"""What a key has happen again and again: the key, the seconds between, how often in the run, what it is, and
how often it may be."""

_BEGINS = re.compile(
    r"(churn|change|server\.crash)\.\d+\.at|(network\.partition|devices\.slowdown)\.\d+\.start"
)
"""The keys of when something begins."""


def misfits(sections: Sections) -> Iterator[SettingError]:
    """All contradictions between sections."""
    yield from _topology(sections)
    yield from sections.data.misfits(sections.clients.count)
    yield from _augmentation(sections)
    yield from model_misfits(sections.model, sections.data)
    yield from _client_numbers(sections)
    yield from _places(sections)
    yield from _starts(sections)
    yield from _churn(sections)


def unmet(learner: "type[Client]", settings: ProtocolSettings, sections: Sections) -> Iterator[SettingError]:
    """The requirements of a protocol that the other sections do not meet.

    Raises UserError for mistakes in the requirements themselves.
    """
    where = f"{defined(learner.requirements)}: {learner.__name__}.requirements()"
    for need in requirements_of(learner, settings):
        try:
            value = attrgetter(need.key)(sections)
        except AttributeError:
            has_not = "a scenario, or a section of its kind, has no such key (docs/scenarios has all)"
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
    last = sections.clients.count - 1
    listed = [(key, value) for key, value in _stated(sections) if key.endswith(".clients")]
    listed += [(key, client_numbers(members)) for key, members in sections.network.members()]
    for key, clients in listed:
        unknown = [client for client in clients if client > last] if isinstance(clients, tuple) else []
        if unknown:
            yield SettingError(
                key, clients, f"there is no client {unknown[0]}; must be numbers from 0 to {last}"
            )


def _stated(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All settings within one, by their keys."""
    if isinstance(value, Settings):
        for name, field in type(value).model_fields.items():
            yield from _stated(getattr(value, name), f"{key}.{field.alias or name}".removeprefix("."))
        return
    yield key, value
    if isinstance(value, tuple) and value and isinstance(value[0], Settings):
        for number, item in enumerate(value):
            yield from _stated(item, f"{key}.{number}")


def _places(sections: Sections) -> Iterator[SettingError]:
    """Latency by position needs a place for each client, or none at all."""
    clients = sections.clients.count
    for key, latency in sections.network.positions():
        if latency.places is not None and len(latency.places) != clients:
            stated = len(latency.places)
            problem = f"must be one place for each client, clients.count = {clients}, not {stated}"
            yield SettingError(f"{key}.places", latency.places, problem)


def _starts(sections: Sections) -> Iterator[SettingError]:
    """Events must begin before the end of the run."""
    duration_s = sections.run.duration
    for key, start_s in _stated(sections):
        if duration_s is not None and _BEGINS.fullmatch(key) and start_s >= duration_s:
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


# --- what comes to more than any run can do -----------------------------------------------------------------
#
# Each limit is beyond what can be simulated in days: it is for slips of the pen, which would otherwise show
# as a command that does not return.


def limits(sections: Sections, protocol: Settings) -> Iterator[SettingError]:
    """What would happen more often in the run than can be simulated, with these settings of the protocol."""
    # The first that is too much of a key is told.
    told = set()
    for key, every_s, count, what, most in _repetitions(sections, protocol):
        if count > most and key not in told:
            told.add(key)
            instead = f"must be at most {most:,}: state a longer time, or a shorter run"
            problem = f"makes about {count:.2g} {what} in the run; {instead}"
            yield SettingError(key, DURATION.format(every_s), problem)


def _repetitions(sections: Sections, protocol: Settings) -> Iterator[Repetition]:
    clients = sections.clients.count
    for number, process in enumerate(sections.churn_process):
        if isinstance(process, PoissonChurn):
            until_s = min(filter(None, (process.until, sections.run.duration)), default=0.0)
            count = until_s / process.every
            key = f"churn_process.{number}.every"
            yield key, process.every, count, "arrivals of clients", _ARRIVALS_MAX
    step_time = sections.devices.step_time
    step_s = step_time.typical if isinstance(step_time, RandomQuantity) else None
    run_s = _run_s(sections, step_s)
    if run_s is None:
        return
    if (every_s := sections.run.evaluate_every.seconds) is not None:
        key, count = "run.evaluate_every", run_s / every_s
        yield key, every_s, count, "evaluations", _EVALUATIONS_MAX
        what = f"evaluations of single models, with {clients:,} clients,"
        yield key, every_s, count * clients, what, _MODELS_EVALUATED_MAX
    period_s = getattr(protocol, "period", None)
    # Who trains once in a period does not train without pause: then the periods are what counts.
    if step_s and period_s is None:
        what = f"training steps of {clients:,} clients"
        yield "devices.step_time", step_s, clients * run_s / step_s, what, _STEPS_MAX
    periods = [*_periods(sections), *([("protocol.period", period_s, "periods")] if period_s else [])]
    for key, every_s, what in periods:
        yield key, every_s, clients * run_s / every_s, f"{what} of {clients:,} clients", _EVENTS_MAX


def _run_s(sections: Sections, step_s: float | None) -> float | None:
    """How long the run takes in virtual seconds; for one that ends by its iterations, with a step in each.

    None where that cannot be said before the model is built.
    """
    run, budget = sections.run, sections.run.budget
    steps = [run.iterations]
    if budget is not None:
        steps += [budget.steps, budget.samples and -(-budget.samples // sections.training.batch_size)]
    by_steps = [count * step_s for count in steps if count is not None and step_s is not None]
    budget_s = None if budget is None else budget.time
    return min(filter(None, (run.duration, budget_s, *by_steps)), default=None)


def _periods(sections: Sections) -> Iterator[tuple[str, float, str]]:
    """What happens to each client periodically: the key, the seconds between, and what it is called."""
    devices, membership = sections.devices, sections.network.membership
    if devices.transient is not None:
        cycle_s = devices.transient.every + devices.transient.length
        yield "devices.transient.every", cycle_s, "slow spells"
    if devices.periodic is not None:
        yield "devices.periodic.period", devices.periodic.period, "slow times"
    yield from membership.periods("network.membership")
    losses: list[tuple[str, Any]] = [("network.loss", sections.network.loss)]
    losses += [(f"network.class.{i}.loss", kind.loss) for i, kind in enumerate(sections.network.classes)]
    for key, loss in losses:
        if isinstance(loss, BurstyLoss):
            yield f"{key}.good", loss.good + loss.bad, "good and bad spells on a connection"
    returns = [(f"churn.{i}", event) for i, event in enumerate(sections.churn) if event.event == "rejoin"]
    for key, back in (*returns, *((f"churn_process.{i}", p) for i, p in enumerate(sections.churn_process))):
        if back.state == "stale":
            yield f"{key}.backup_every", back.backup_every, "backups"
