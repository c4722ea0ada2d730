"""Periodic display of a run's progress, which does not change the simulation."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from sim.core.budget import BudgetedCompute
from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.run.save.progress import RUNNING, Progress, Show

_OFTEN_S = 0.25  # target of the wall-clock time between two updates; up to four times as much is accepted
_LOOKS_MIN = 200  # updates in a run that ends by its duration
_STEP_MIN_S, _STEP_SHARE_MAX = 1e-3, 0.05  # virtual time between updates, the latter of the elapsed time
_ASKED_MAX = 1_000_000  # queries of clients' iterations or budgets in these updates together
_COST_SHARE = 0.02  # maximum share of the wall-clock time for updates

_LATE_S = 60.0  # window of a run's estimate
_SHORTEST_S = 1.0  # minimum wall-clock time of an estimate
_FARTHEST = 1_000.0  # maximum ratio of remaining to elapsed time


class RemainingTimeEstimate:
    """Estimate of the remaining time, from the progress of the last `window_s` wall-clock seconds."""

    def __init__(self, window_s: float = _LATE_S) -> None:
        self._window_s = window_s
        self._looks: deque[tuple[float, float]] = deque()  # (real time, share done)

    def remaining_s(self, elapsed_s: float, share: float) -> float | None:
        """Return the wall-clock seconds until the share is 1; None if they cannot be estimated yet."""
        looks = self._looks
        if not looks or (self._window_s < math.inf and elapsed_s - looks[-1][0] >= _OFTEN_S):
            looks.append((elapsed_s, share))
        while len(looks) > 1 and looks[1][0] <= elapsed_s - self._window_s:
            looks.popleft()
        since_s, before = looks[0]
        took_s, gained = elapsed_s - since_s, share - before
        if took_s < _SHORTEST_S or gained <= 0:
            return None
        remaining_s = (1 - share) * took_s / gained
        return remaining_s if remaining_s <= _FARTHEST * elapsed_s else None


class ProgressWatcher(RunHook):
    """Observer that shows a simulation's progress periodically.

    started_s: start of the run by `time.perf_counter`, minus the time that it took in other processes.
    `looked` is called after each update.
    """

    def __init__(
        self, simulation: Simulation, show: Show, started_s: float, looked: Callable[[], object]
    ) -> None:
        self._simulation = simulation
        self._show = show
        self._looked = looked
        self._started_s = started_s
        self._looked_s = time.perf_counter()
        rules, clients = simulation.rules, max(1, len(simulation.clients))
        self._asks_all = rules.iterations is not None or rules.budget is not None
        # The cost of a query grows with the clients, so there are fewer updates with many clients.
        self._fewer = max(1.0, _LOOKS_MIN * clients / _ASKED_MAX) if self._asks_all else 1.0
        self._reached: float | None = None
        self._is_new = True  # True if there may be a new measurement
        self._paces = RemainingTimeEstimate(), RemainingTimeEstimate(), RemainingTimeEstimate()
        simulation.loop.call_at_observer(0.0, self._look, self._longest_step_s())

    @property
    def elapsed_s(self) -> float:
        """Wall-clock seconds of the run so far, in all processes that ran it."""
        return time.perf_counter() - self._started_s

    def evaluated(self, simulation: Simulation) -> None:
        self._is_new = True

    def enter(self, phase: str) -> None:
        """Show the phase that follows the simulation."""
        self._show(self._progress(phase))

    def _look(self, step_s: float) -> None:
        """Show the progress, and schedule the next update in virtual time, for a target wall-clock time."""
        start_s = time.perf_counter()
        self._show(self._progress(RUNNING))
        self._looked()
        now_s = time.perf_counter()
        took_s, self._looked_s = now_s - self._looked_s, now_s
        often_s = max(_OFTEN_S, (now_s - start_s) / _COST_SHARE) if self._asks_all else _OFTEN_S
        if took_s < often_s:
            step_s *= 2
        elif took_s > 4 * often_s:
            step_s /= 2
        step_s = min(max(step_s, _STEP_MIN_S), self._longest_step_s())
        loop = self._simulation.loop
        loop.call_at_observer(loop.time() + step_s, self._look, step_s)

    def _longest_step_s(self) -> float:
        """Return the maximum virtual time to the next update, so that idle times do not delay it."""
        longest_s = max(_STEP_MIN_S, _STEP_SHARE_MAX * self._fewer * self._simulation.loop.time())
        duration_s = self._simulation.rules.duration_s
        return longest_s if duration_s is None else duration_s * min(1.0, self._fewer / _LOOKS_MIN)

    def _progress(self, phase: str) -> Progress:
        simulation, rules, elapsed_s = self._simulation, self._simulation.rules, self.elapsed_s
        iterations = budget_spent = None
        if rules.iterations is not None:
            least = simulation.least_iterations
            iterations = rules.iterations if least is None and simulation.count_up else least or 0
        if rules.budget is not None:
            computes = [client.compute for client in simulation.clients_up]
            shares = [each.budget_share for each in computes if isinstance(each, BudgetedCompute)]
            budget_spent = min(shares, default=0.0)
        progress = Progress(
            phase=phase,
            elapsed_s=elapsed_s,
            remaining_s=None,
            virtual_s=simulation.loop.time(),
            duration_s=rules.duration_s,
            iterations=iterations,
            last_iteration=rules.iterations,
            budget_spent=budget_spent,
            reached=self._newest(),
            diverged=len(simulation.observer.divergence.present),
            clients_up=simulation.count_up,
            messages=simulation.network.counts.sent,
            updates_per_s=simulation.engine.statistics.updates / elapsed_s,
            measure=simulation.observer.measure,
        )
        if phase != RUNNING:
            return progress
        estimates = [
            remaining_s
            for pace, share in zip(self._paces, progress.shares, strict=True)
            if share is not None and (remaining_s := pace.remaining_s(elapsed_s, share)) is not None
        ]
        return replace(progress, remaining_s=min(estimates, default=None))

    def _newest(self) -> float | None:
        if self._is_new:  # the mean reads all measurements
            self._is_new = False
            observer = self._simulation.observer
            values = observer.metrics.mean(observer.measure.name).values
            self._reached = float(values[-1]) if len(values) and math.isfinite(values[-1]) else None
        return self._reached
