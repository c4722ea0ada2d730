"""When all clients have done so much that something is due: an evaluation, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocols.shared.server_rounds import RoundSettings
from sim.run.live.lives import ClientLife

if TYPE_CHECKING:
    from sim.run.live.simulation import Simulation


class Milestones:
    """Has a simulation evaluated every so many iterations, and stopped after the last or with all clients.

    Who has finished, as its budget is spent or its server's rounds are over, is waited for by nobody.
    `reported` is told of every iteration; `may_be_due` says whether anything can ever come of it.
    """

    def __init__(self, simulation: Simulation) -> None:
        run = simulation.scenario.run
        self._simulation = simulation
        self._every = run.evaluate_every.count
        self._limit = run.iterations
        method = simulation.scenario.protocol.settings
        has_last_round = isinstance(method, RoundSettings) and method.rounds is not None
        self._may_finish = run.budget is not None or has_last_round
        # Numbers of iterations at which something may have to be done; 0: none.
        self._next_evaluation = self._every or 0
        self._last_iteration = self._limit or 0
        self._laggard = 0  # number of the client that was last seen to hold up what is due

    @property
    def may_be_due(self) -> bool:
        return bool(self._every or self._limit or self._may_finish)

    def reported(self, iterations: float) -> None:
        """A client has done so many, or has just finished."""
        if iterations == self._next_evaluation or iterations == self._last_iteration or self._may_finish:
            self.check()

    def check(self) -> None:
        """Evaluate or stop, when all that happens now has happened, if every client that is up is so far."""
        simulation, limit = self._simulation, self._limit
        if self._every is not None and self._all(lambda client: client.has_done(self._next_evaluation)):
            least = simulation.least_iterations or self._next_evaluation
            self._next_evaluation = (least // self._every + 1) * self._every
            simulation.loop.call_at_observer(simulation.loop.time(), simulation.observer.evaluate)
        if self._all(lambda client: client.finished):
            ends = not self._budget_to_come()
        else:
            ends = limit is not None and self._all(lambda client: client.has_done(limit))
        if ends:
            simulation.loop.call_at_observer(simulation.loop.time(), simulation.loop.stop)

    def _all(self, done: Callable[[ClientLife], bool]) -> bool:
        """Whether some client is up, and this holds for all that are up."""
        clients = self._simulation.clients
        someone, count = False, len(clients)
        # Whoever was behind last is asked first: nearly always it still is, and the others need not be asked.
        for number in range(self._laggard, self._laggard + count):
            client = clients[number % count]
            if client.up:
                someone = True
                if not done(client):
                    self._laggard = client.index
                    return False
        return someone

    def _budget_to_come(self) -> bool:
        """Whether all who are up have spent theirs, and others are still to come, or to come back."""
        simulation = self._simulation
        if any(client.compute.steps_left for client in simulation.clients_up):
            return False  # the rounds of its server are over
        return any(
            simulation.clients[index].compute.steps_left
            for event in simulation.events
            if event.kind in ("join", "rejoin") and event.time_s > simulation.loop.time()
            for index in event.clients
        )
