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
from sim.world.own import OwnQuantity

# A long run may be meant to be interrupted, so that these are generous.
_STEPS_MAX = 10**12  # training steps of all clients: at a microsecond each, twelve days
_EVENTS_MAX = 10**10  # anything else that happens again and again
_EVALUATIONS_MAX = 10**8  # a millisecond each, at least: a day
_MODELS_EVALUATED_MAX = 10**10  # in all of them: a row of the results each
# What is made before the run begins.
_ARRIVALS_MAX = 10**6


def limits(sections: Sections, protocol: Settings) -> Iterator[SettingError]:
    """What would come to too much, with these settings of the protocol."""
    yield from _arrivals(sections)
    run_s = _run_s(sections)
    if run_s is None:
        return
    yield from _evaluations(sections, run_s)
    yield from _repetitions(sections, protocol, run_s)


def _run_s(sections: Sections) -> float | None:
    """How long the run takes in virtual seconds; for one that ends by its iterations, with a step in each.

    None where that cannot be said before the model is built.
    """
    run, step_s = sections.run, _typical(sections.devices.step_time)
    budget_s = run.budget.time if run.budget is not None else None
    steps = [run.iterations]
    if run.budget is not None:
        samples = run.budget.samples
        steps += [run.budget.steps, samples and -(-samples // sections.training.batch_size)]
    by_steps = [count * step_s for count in steps if count is not None and step_s is not None]
    return min(filter(None, (run.duration, budget_s, *by_steps)), default=None)


def _typical(times: RandomQuantity | OwnQuantity | None) -> float | None:
    """A time that is typical of what is drawn; None where a function of the user's own says it, or nobody."""
    return times.typical if isinstance(times, RandomQuantity) else None


def _refusal(key: str, every_s: float, count: float, of_what: str, most: int) -> SettingError:
    return SettingError(
        key,
        DURATION.format(every_s),
        f"makes about {count:.2g} {of_what} in the run; must be at most {most:,}: state a longer time, or a "
        "shorter run",
    )


def _evaluations(sections: Sections, run_s: float) -> Iterator[SettingError]:
    every_s, clients = sections.run.evaluate_every.seconds, sections.clients.count
    if every_s is None:
        return
    count = run_s / every_s
    if count > _EVALUATIONS_MAX:
        yield _refusal("run.evaluate_every", every_s, count, "evaluations", _EVALUATIONS_MAX)
    elif count * clients > _MODELS_EVALUATED_MAX:
        what = f"evaluations of single models, with {clients:,} clients,"
        yield _refusal("run.evaluate_every", every_s, count * clients, what, _MODELS_EVALUATED_MAX)


def _arrivals(sections: Sections) -> Iterator[SettingError]:
    for number, process in enumerate(sections.churn_process):
        if not isinstance(process, PoissonChurn):
            continue
        until_s = min(filter(None, (process.until, sections.run.duration)), default=0.0)
        count = until_s / process.every
        if count > _ARRIVALS_MAX:
            yield _refusal(
                f"churn_process.{number}.every", process.every, count, "arrivals of clients", _ARRIVALS_MAX
            )


def _repetitions(sections: Sections, protocol: Settings, run_s: float) -> Iterator[SettingError]:
    clients = sections.clients.count
    step_s, period_s = _typical(sections.devices.step_time), getattr(protocol, "period", None)
    # Who trains once in a period does not train without pause: then the periods are what counts.
    # Steps without duration are refused elsewhere.
    if step_s and period_s is None and clients * run_s / step_s > _STEPS_MAX:
        what = f"training steps of {clients:,} clients"
        yield _refusal("devices.step_time", step_s, clients * run_s / step_s, what, _STEPS_MAX)
    periods = [*_periods(sections)]
    if period_s is not None:
        periods.append(("protocol.period", period_s, "periods"))
    for key, every_s, what in periods:
        count = clients * run_s / every_s
        if count > _EVENTS_MAX:
            yield _refusal(key, every_s, count, f"{what} of {clients:,} clients", _EVENTS_MAX)


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
