"""Placement of actors in the processes of a live run, and checks of its scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.errors import UserError
from sim.scenario.scenario import Scenario
from sim.world.churn.schedule import ChurnEvent
from sim.world.membership.kinds import AllKnowing

COORDINATOR = "coordinator"
OWN_PROCESSES_MAX = 32
"""Maximum number of clients with a separate process, which they need because they crash or join later."""


@dataclass(frozen=True)
class Placement:
    """Actors of each process, by its name.

    kills, returns: times (seconds) at which a process is killed, and at which it is needed again. starts:
    time (seconds) at which each process is needed that does not exist from the start.
    """

    actors: Mapping[str, tuple[str, ...]]
    kills: tuple[tuple[float, str], ...] = ()
    returns: tuple[tuple[float, str], ...] = ()
    starts: Mapping[str, float] = field(default_factory=dict)

    @property
    def first(self) -> list[str]:
        """Processes that exist from the start."""
        return [process for process in self.actors if process not in self.starts]

    @property
    def coordinated(self) -> set[str]:
        """Processes that the coordinator ends or starts during the run."""
        return {*self.starts, *[process for _, process in (*self.kills, *self.returns)]}

    @property
    def process_by_actor(self) -> dict[str, str]:
        return {name: process for process, names in self.actors.items() for name in names}


def place_actors(
    clients: Sequence[str], servers: Sequence[str], events: Sequence[ChurnEvent], processes: int
) -> Placement:
    """Assign clients and servers to processes, one after another.

    Each client that crashes, rejoins or joins later has a separate process, up to a maximum number; further
    clients crash and join within a shared process.
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
    """Raise UserError for a scenario that cannot run in wall-clock time, or over sockets."""
    run, membership = scenario.run, scenario.network.membership
    ends = "must be removed: a live run ends at run.duration"
    refused = [
        ("run.duration", run.duration is None, "is required, because a live run ends at a fixed time"),
        ("run.iterations", run.iterations is not None, ends),
        ("run.budget", run.budget is not None, ends),
        ("run.converged", run.converged is not None, "must be removed: a live run is evaluated at its end"),
        (
            "run.evaluate_every",
            run.evaluate_every.count is not None,
            'must be a time, such as "5 s": clients of different processes do not finish at the same time',
        ),
        (
            "run.shuffle_ties",
            run.shuffle_ties is not False,
            "must be false: real events never have equal times",
        ),
        (
            'network.membership.kind = "all-knowing"',
            isinstance(membership, AllKnowing),
            "needs a simulated network; must be one of announce, swim, bootstrap",
        ),
    ]
    for key, is_refused, problem in refused:
        if is_refused:
            raise UserError(f"{key}: {problem}")
