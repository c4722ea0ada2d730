"""What a run warns of: mistakes that show in what the user's code did, and in what came of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from actors.settings.units import DURATION
from actors.source_location import files_of
from sim.core.observations import defines
from sim.core.simulation import Simulation
from sim.run.foreign_draws import foreign_draws
from sim.run.summary import undefined
from sim.run.swallowed import swallowed_errors
from sim.run.unawaited import unawaited_coroutines
from sim.run.wall_clock import wall_clock
from sim.scenario.scenario import Scenario

_NOTHING_LEARNED = (
    "clients trained, but no client's model ever changed: a method assigns self.params what it learned"
)


@contextmanager
def mistakes_in_code(scenario: Scenario) -> Iterator[list[str]]:
    """Collect, when this context ends, a line for each mistake that the user's code made meanwhile."""
    found: list[str] = []
    own = users_files(scenario)
    with unawaited_coroutines() as unawaited, foreign_draws(own) as draws, swallowed_errors(own) as errors:
        yield found
    found += [*unawaited, *draws, *errors, *wall_clock(own)]


def mistakes_in_results(simulation: Simulation) -> list[str]:
    """A line for each thing in the results of a run that is over which nobody can have meant."""
    trained = any(client.work.steps for client in simulation.clients_up)  # others' models may have changed
    waits, in_vain = map(sum, zip((0, 0), *[life.waits for life in simulation.lives], strict=True))
    # Whose rounds were in vain need not have learned anything: a line of its own says so.
    to_blame = trained and (2 * in_vain < waits or not waits)
    nothing = [_NOTHING_LEARNED] if to_blame and simulation.observer.models_changed is False else []
    others = _unsettled(simulation) + _standstill(simulation) + undefined(simulation)
    return nothing + others + _held_by_cycles(simulation)


def _held_by_cycles(simulation: Simulation) -> list[str]:
    """A line if objects of the method that refer to each other kept vectors that nothing else could reach."""
    count = simulation.engine.vectors_in_cycles
    if not count:
        return []
    return [
        f"reference cycles held {count:,} vectors that nothing else could reach until the next evaluation: "
        "jobs were computed for them in vain, and they took memory; keep models out of objects that refer to "
        "each other, or have one of these refer by weakref.ref()"
    ]


def _unsettled(simulation: Simulation) -> list[str]:
    """A line if a method that forms coalitions had none until the end."""
    metrics, clients = simulation.observer.metrics, simulation.clients
    forms_some = any(client.actor is not None and defines([client], "coalition") for client in clients)
    if clients[0].context.alone or not forms_some or metrics.coalitions():
        return []
    end = DURATION.format(metrics.newest()[0])
    return [f"no client was in a coalition by the end at {end}: all that was measured is from before"]


def _standstill(simulation: Simulation) -> list[str]:
    """A line if most clients that had more to train ended no iteration for half of the run or longer.

    Not where a server has but a `fraction` of them train in a round: it may take long until it is one's turn.
    """
    metrics, settings = simulation.observer.metrics, simulation.rules.settings
    if getattr(settings, "fraction", 1.0) < 1.0:
        return []
    last_s, end_s = metrics.last_growth_s("iterations"), metrics.newest()[0]
    training = [client for client in simulation.clients_up if client.name in last_s and not client.finished]
    still = [last_s[client.name] for client in training if last_s[client.name] <= end_s / 2]
    if 2 * len(still) <= len(training):
        return []
    since, end = DURATION.format(max(still)), DURATION.format(end_s)
    patience = getattr(settings, "patience", None)
    most = f', at most protocol.patience = "{DURATION.format(patience)}" at a time' if patience else ""
    return [
        f"{len(still)} of {len(training)} clients ended no iteration from {since} to the end at {end}; "
        f"`coterie explain` says what a client waits for{most}"
    ]


def users_files(scenario: Scenario) -> list[str]:
    """The Python files, or cells of a notebook, that hold the user's code which a scenario names."""
    found: dict[str, None] = {}
    for plugin in scenario.plugins:
        if plugin.sources is not None:
            own = {str(plugin.sources.root / name) for name in plugin.sources.files}
            classes = plugin.found.__mro__ if isinstance(plugin.found, type) else ()
            code = getattr(plugin.found, "__code__", None)
            files = {code.co_filename} if code is not None else set().union(*map(files_of, classes))
            found |= dict.fromkeys(sorted(file for file in files if file in own or not os.path.exists(file)))
    return list(found)
