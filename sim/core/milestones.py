"""When all clients have done so much that something is due: an evaluation, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocols.shared.server_rounds import RoundSettings
from sim.core.lives import ClientLife, least_iterations
from sim.core.rules import RunRules
from sim.kernel.clock import VirtualLoop
from sim.world.churn.schedule import ChurnEvent


class Milestones:
    """Has a run evaluated every so many iterations, and stopped after the last or with all clients.

    Who has finished, as its budget is spent or its server's rounds are over, is waited for by nobody.
    clients: of the run, as far as they are made by then. `reported` is told of every iteration; `may_be_due`
    says whether anything can ever come of it.
    """

    def __init__(
        self,
        rules: RunRules,
        loop: VirtualLoop,
        clients: Sequence[ClientLife],
        events: Sequence[ChurnEvent],
        evaluate: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._clients = clients
        self._events = events
        self._evaluate = evaluate
        self._every = rules.evaluate_every_iterations
        self._limit = rules.iterations
        settings = rules.settings
        has_last_round = isinstance(settings, RoundSettings) and settings.rounds is not None
        self._may_finish = rules.budget is not None or has_last_round
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
        loop, limit = self._loop, self._limit
        if self._every is not None and self._all(lambda client: client.has_done(self._next_evaluation)):
            least = least_iterations(self._clients) or self._next_evaluation
            self._next_evaluation = (least // self._every + 1) * self._every
            loop.call_at_observer(loop.time(), self._evaluate)
        if self._all(lambda client: client.finished):
            ends = not self._budget_to_come()
        else:
            ends = limit is not None and self._all(lambda client: client.has_done(limit))
        if ends:
            loop.call_at_observer(loop.time(), loop.stop)

    def _all(self, done: Callable[[ClientLife], bool]) -> bool:
        """Whether some client is up, and this holds for all that are up."""
        clients = self._clients
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
        clients = self._clients
        if any(client.compute.steps_left for client in clients if client.up):
            return False  # the rounds of its server are over
        return any(
            clients[index].compute.steps_left
            for event in self._events
            if event.kind in ("join", "rejoin") and event.time_s > self._loop.time()
            for index in event.clients
        )
