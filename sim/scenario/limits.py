"""Scenarios whose parts are sensible but which come to more than any run can do, refused before it begins.

Each limit is beyond what can be simulated in days: it is for slips of the pen, which would otherwise show as
a command that does not return.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from actors.settings.base import SettingError, Settings
from actors.settings.units import DURATION
from sim.scenario.sections import Sections
from sim.world.churn_processes import PoissonChurn
from sim.world.distributions import RandomQuantity
from sim.world.loss import BurstyLoss

# A long run may be meant to be interrupted, so that these are generous.
_STEPS_MAX = 10**12  # training steps of all clients: at a microsecond each, twelve days
_EVENTS_MAX = 10**10  # anything else that happens again and again
_EVALUATIONS_MAX = 10**8  # a millisecond each, at least: a day
_MODELS_EVALUATED_MAX = 10**10  # in all of them: a row of the results each
_ARRIVALS_MAX = 10**6  # made before the run begins

Repetition = tuple[str, float, float, str, int]
"""What a key has happen again and again: the key, the seconds between, how often in the run, what it is, and
how often it may be."""


def limits(sections: Sections, protocol: Settings) -> Iterator[SettingError]:
    """What would come to too much, with these settings of the protocol."""
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
    """What each client does, or meets with, again and again: the key, the time between, and what it is."""
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
