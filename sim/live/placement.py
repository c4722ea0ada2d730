"""Who is where in a live run, and what such a run cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.errors import UserError
from sim.scenario.scenario import Scenario
from sim.world.churn.schedule import ChurnEvent
from sim.world.membership.kinds import AllKnowing

COORDINATOR = "coordinator"
OWN_PROCESSES_MAX = 32
"""Clients that have a process of their own, as they crash or come later."""


@dataclass(frozen=True)
class Placement:
    """The actors of each process, by its name.

    kills, returns: when (seconds) which process is ended, and is wanted again. starts: when (seconds) those
    are wanted that are not there from the beginning.
    """

    actors: Mapping[str, tuple[str, ...]]
    kills: tuple[tuple[float, str], ...] = ()
    returns: tuple[tuple[float, str], ...] = ()
    starts: Mapping[str, float] = field(default_factory=dict)

    @property
    def first(self) -> list[str]:
        """The processes that are there from the beginning."""
        return [process for process in self.actors if process not in self.starts]

    @property
    def process_of(self) -> dict[str, str]:
        return {name: process for process, names in self.actors.items() for name in names}


def place_actors(
    clients: Sequence[str], servers: Sequence[str], events: Sequence[ChurnEvent], processes: int
) -> Placement:
    """Deal clients and servers to processes, in turns.

    Each client that crashes, or comes later, has a process of its own, as long as they are not too many; the
    others crash and come within the process that they share.
    """
    moving = sorted({index for event in events if event.kind != "leave" for index in event.clients})
    alone = moving[:OWN_PROCESSES_MAX]
    staying = [name for index, name in enumerate(clients) if index not in set(alone)]
    actors: dict[str, tuple[str, ...]] = {}
    count = min(processes, max(1, len(staying)))
    for number in range(count):
        names = (*servers, *staying[number::count]) if number == 0 else tuple(staying[number::count])
        actors[f"process-{number}"] = names
    own = {}
    for number, index in enumerate(alone, start=count):
        own[index] = f"process-{number}"
        actors[own[index]] = (clients[index],)
    moves: dict[str, list[tuple[float, str]]] = {kind: [] for kind in ("crash", "rejoin", "join", "leave")}
    for event in events:
        moves[event.kind] += [(event.time_s, own[index]) for index in event.clients if index in own]
    crashed = {process for _, process in moves["crash"]}
    returns = [each for each in moves["rejoin"] if each[1] in crashed]
    return Placement(
        actors, tuple(moves["crash"]), tuple(returns), {process: at_s for at_s, process in moves["join"]}
    )


def require_live(scenario: Scenario) -> None:
    """Refuse what cannot be on the wall clock, or over sockets. UserError."""
    run, membership = scenario.run, scenario.network.membership
    ends = "must be left out: a live run ends by run.duration"
    refused = [
        ("run.duration", run.duration is None, "must be stated, as a live run ends by the clock"),
        ("run.iterations", run.iterations is not None, ends),
        ("run.budget", run.budget is not None, ends),
        ("run.converged", run.converged is not None, "must be left out: a live run is measured at its end"),
        (
            "run.evaluate_every",
            run.evaluate_every.count is not None,
            'must be a time, such as "5 s": clients of different processes do not finish together',
        ),
        (
            "run.shuffle_ties",
            run.shuffle_ties is not False,
            "must be false: nothing real happens at the same time",
        ),
        (
            'network.membership.kind = "all-knowing"',
            isinstance(membership, AllKnowing),
            "on real sockets nobody knows at once who is up; must be one of announce, swim, bootstrap",
        ),
    ]
    for key, is_refused, problem in refused:
        if is_refused:
            raise UserError(f"{key}: {problem}")
