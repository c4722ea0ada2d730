"""Warnings of a run about errors in the user's code, found in its calls and in the results."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

from actors.settings.units import DURATION
from actors.source_location import class_files
from protocols.shared.server_rounds import RoundSettings
from sim.core.observations import overrides_hook
from sim.core.simulation import Simulation
from sim.run.foreign_draws import foreign_draws
from sim.run.local_work import IterationWork, short_run_warning
from sim.run.summary import undefined_metric_lines
from sim.run.swallowed import swallowed_errors
from sim.run.unawaited import unawaited_coroutines
from sim.run.wall_clock import clock_call_warnings
from sim.scenario.scenario import Scenario

_NOTHING_LEARNED = (
    "clients trained, but no client's model changed: a method must assign the trained model to self.params"
)


@contextmanager
def warnings_about_code(scenario: Scenario) -> Iterator[list[str]]:
    """Collect, when this context ends, a line for each error of the user's code inside it."""
    found: list[str] = []
    own = users_files(scenario)
    with unawaited_coroutines() as unawaited, foreign_draws(own) as draws, swallowed_errors(own) as errors:
        yield found
    found += [*unawaited, *draws, *errors, *clock_call_warnings(own)]


def warnings_about_results(simulation: Simulation) -> list[str]:
    """Return a line for each result of an ended run that is surely unintended."""
    return [
        *_unchanged_model_warnings(simulation),
        *_no_coalition_warnings(simulation),
        *_standstill(simulation),
        *undefined_metric_lines(simulation),
        *_held_by_cycles(simulation),
    ]


def _unchanged_model_warnings(simulation: Simulation) -> list[str]:
    """Return lines about models that did not change, and about iterations longer than the run.

    The method is to blame only if nothing else explains the unchanged models: neither the duration nor
    unfinished rounds.
    """
    settings, up, metrics = simulation.rules.settings, simulation.clients_up, simulation.observer.metrics
    if lines := short_run_warning(_trainings(simulation), simulation.rules.duration_s):
        return lines
    waits, in_vain = map(sum, zip((0, 0), *[life.waits for life in simulation.lives], strict=True))
    if simulation.observer.models_changed is not False or (waits and 2 * in_vain >= waits) or not up:
        return []  # another line reports rounds without a message
    end_s, ended = metrics.newest()[0], metrics.last_growth_s("iterations")
    is_initial = f"by the end at {DURATION.format(end_s)}: every model is the initial model"
    if not waits and isinstance(settings, RoundSettings) and not up[0].context.alone:
        return [f"no round ended {is_initial}"]
    if not ended:
        return [f"no client ended an iteration {is_initial}"]
    return [_NOTHING_LEARNED] if any(client.work.steps for client in up) else []


def _trainings(simulation: Simulation) -> list[IterationWork]:
    """Return the training of the clients that are up."""
    budget, found = simulation.rules.budget, []
    for client in simulation.clients_up:
        compute, most = client.compute, math.inf
        if budget is not None and budget.kind in ("steps", "samples"):
            most = budget.limit // (compute.samples_per_step if budget.kind == "samples" else 1)
        step_s = compute.step_s * client.device.slowdown
        settings = simulation.settings if client.actor is None else client.actor.settings
        found.append(IterationWork(settings, compute.steps_per_epoch, step_s, most))
    return found


def _held_by_cycles(simulation: Simulation) -> list[str]:
    """Return a line if reference cycles of the method's objects kept unreachable vectors alive."""
    count = simulation.engine.vectors_in_cycles
    if not count:
        return []
    return [
        f"reference cycles held {count:,} otherwise unreachable vectors until the next evaluation, which "
        "cost memory and unnecessary jobs; keep models out of objects that refer to each other, or use "
        "weakref.ref() for one of the references"
    ]


def _no_coalition_warnings(simulation: Simulation) -> list[str]:
    """Return a line if a method that forms coalitions had none by the end."""
    metrics, clients = simulation.observer.metrics, simulation.clients
    forms_some = any(client.actor is not None and overrides_hook([client], "coalition") for client in clients)
    if clients[0].context.alone or not forms_some or metrics.coalitions():
        return []
    end = DURATION.format(metrics.newest()[0])
    return [f"no client was in a coalition by the end at {end}: all metrics are from before the coalitions"]


def _standstill(simulation: Simulation) -> list[str]:
    """Return a line if most clients with training left ended no iteration for half of the run or longer.

    Methods in which a server selects a `fraction` of the clients are exempt: their clients may wait long.
    """
    metrics, settings = simulation.observer.metrics, simulation.rules.settings
    if getattr(settings, "fraction", 1.0) < 1.0:
        return []
    last_s, end_s = metrics.last_growth_s("iterations"), metrics.newest()[0]
    if last_s:  # otherwise another warning reports it
        last_s = metrics.first_s("iterations") | last_s
    training = [client for client in simulation.clients_up if client.name in last_s and not client.finished]
    still = [last_s[client.name] for client in training if last_s[client.name] <= end_s / 2]
    if 2 * len(still) <= len(training):
        return []
    since, end = DURATION.format(max(still)), DURATION.format(end_s)
    patience = getattr(settings, "patience", None)
    most = f' (each wait lasts at most protocol.patience = "{DURATION.format(patience)}")' if patience else ""
    return [
        f"{len(still)} of {len(training)} clients ended no iteration from {since} to the end at {end}; "
        f"`coterie explain` prints the event that a client waits for{most}"
    ]


def users_files(scenario: Scenario) -> list[str]:
    """Return the Python files, or notebook cells, with the user's code that a scenario names."""
    found: dict[str, None] = {}
    for plugin in scenario.plugins:
        if plugin.sources is not None:
            own = {str(plugin.sources.root / name) for name in plugin.sources.files}
            classes = plugin.found.__mro__ if isinstance(plugin.found, type) else ()
            code = getattr(plugin.found, "__code__", None)
            files = {code.co_filename} if code is not None else set().union(*map(class_files, classes))
            found |= dict.fromkeys(sorted(file for file in files if file in own or not os.path.exists(file)))
    return list(found)
