"""Evaluations and the end of a run after a number of iterations of all clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocols.shared.server_rounds import RoundSettings
from sim.core.lives import ClientLife, least_iterations
from sim.core.rules import ClientBudget, RunRules
from sim.kernel.clock import Deadlock, VirtualLoop
from sim.world.churn.schedule import ChurnEvent

_IDLE_ITERATIONS = 100  # of a client, after which an unused budget ends the run


class UnusedBudget(Deadlock):
    """Error: no client uses its budget, which is the only end of the run."""

    problem = (
        "run.budget: this run would never end. At {} s, a client has finished "
        f"{_IDLE_ITERATIONS} iterations, but no client has used any of its budget. A budget of steps "
        "counts only `train`, and a budget of samples only `train` and `gradient`. For a method that trains "
        "in `apply`, set a budget of time, bytes or energy, or set run.duration or run.iterations"
    )


class EvaluationsByIteration:
    """Trigger evaluations every `evaluate_every_iterations`, and stop after the last iteration.

    Clients that have finished, because they have exhausted their budget or the server has run all rounds, do
    not delay an evaluation. clients: list that the simulation fills. Call `reported` after each iteration if
    `may_be_due` is True.
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
        self._unused = None if has_last_round else _only_budget(rules)  # None once a client has used it
        # Iterations of the next evaluation and of the end; 0 for none.
        self._next_evaluation = self._every or 0
        self._last_iteration = self._limit or 0
        self._laggard = 0  # number of the client that last delayed an evaluation

    @property
    def may_be_due(self) -> bool:
        return bool(self._every or self._limit or self._may_finish)

    def reported(self, iterations: float) -> None:
        """Record that a client has done this many iterations, or has just finished."""
        if iterations == self._next_evaluation or iterations == self._last_iteration or self._may_finish:
            self.check()
        if iterations >= _IDLE_ITERATIONS and self._unused is not None:
            self._require_use(self._unused)

    def _require_use(self, budget: ClientBudget) -> None:
        """End the run if no client has used any of its budget, and no training is in progress."""
        clients = self._clients
        if any(client.work.share_of(budget) or client.compute.steps_begun for client in clients):
            self._unused = None
        else:
            self._loop.call_at_observer(self._loop.time(), self._end_unused)

    def _end_unused(self) -> None:
        raise UnusedBudget(self._loop.time(), [])

    def check(self) -> None:
        """Evaluate or stop after this instant if every client that is up has done the iterations.

        A client that has finished counts as if it had done them.
        """
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
        """Return True if at least one client is up, and `done` holds for all clients that are up."""
        clients = self._clients
        is_any_up, count = False, len(clients)
        # The client that delayed the last check comes first: usually it still does.
        for number in range(self._laggard, self._laggard + count):
            client = clients[number % count]
            if client.up:
                is_any_up = True
                if not done(client):
                    self._laggard = client.index
                    return False
        return is_any_up

    def _budget_to_come(self) -> bool:
        """Return True if the clients that are up have exhausted their budgets, and others will join."""
        clients = self._clients
        if any(client.compute.steps_left for client in clients if client.up):
            return False  # the rounds of the server are over
        return any(
            clients[index].compute.steps_left
            for event in self._events
            if event.kind in ("join", "rejoin") and event.time_s > self._loop.time()
            for index in event.clients
        )


def _only_budget(rules: RunRules) -> ClientBudget | None:
    """Return the budget of steps or samples if no other rule ends the run."""
    budget = rules.budget
    others = rules.duration_s, rules.iterations, rules.converged
    is_counted = budget is not None and budget.kind in ("steps", "samples")
    return budget if is_counted and others == (None, None, None) else None
