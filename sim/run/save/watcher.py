"""Looks at a run again and again, to show how far it is. Looks change nothing that is simulated."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.run.save.progress import RUNNING, Progress, Show

_OFTEN_S = 0.25  # real time that should pass between two looks, or up to four times as much
_LOOKS_MIN = 200  # in a run that ends by its duration
_STEP_MIN_S, _STEP_SHARE_MAX = 1e-3, 0.05  # virtual time between two looks, the latter of what has passed
_ASKED_MAX = 1_000_000  # clients asked for their iterations or budgets in so many looks, all looks together
_COST_SHARE = 0.02  # of the real time, at most, that looks should take

_LATE_S = 60.0  # what counts as of late
_SHORTEST_S = 1.0  # progress of less real time than this says nothing
_FARTHEST = 1_000.0  # an estimate of so many times of what has passed is a guess


class Pace:
    """Estimates how long the rest takes, from the progress of late."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float]] = deque()  # (real time, share done)

    def remaining_s(self, elapsed_s: float, share: float) -> float | None:
        """Real seconds until the share done is 1; None while there is nothing to go by."""
        looks = self._looks
        if not looks or elapsed_s - looks[-1][0] >= _OFTEN_S:
            looks.append((elapsed_s, share))
        while len(looks) > 1 and looks[1][0] <= elapsed_s - _LATE_S:
            looks.popleft()
        since_s, before = looks[0]
        took_s, gained = elapsed_s - since_s, share - before
        if took_s < _SHORTEST_S or gained <= 0:
            return None
        remaining_s = (1 - share) * took_s / gained
        return remaining_s if remaining_s <= _FARTHEST * elapsed_s else None


class Watcher(RunHook):
    """Looks at a simulation again and again while it runs, as an observer, and shows how far it is.

    started_s: when the run began, by `time.perf_counter`, and earlier by what it took in other processes.
    `looked` is called after each look.
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
        # What all clients have to be asked for grows with them, so fewer looks are made at many clients.
        self._fewer = max(1.0, _LOOKS_MIN * clients / _ASKED_MAX) if self._asks_all else 1.0
        self._reached: float | None = None
        self._is_new = True  # whether there may be a measurement that was not looked at
        self._paces = Pace(), Pace(), Pace()
        simulation.loop.call_at_observer(0.0, self._look, self._longest_step_s())

    @property
    def elapsed_s(self) -> float:
        """Real seconds that the run took so far, in all the processes in which it went on."""
        return time.perf_counter() - self._started_s

    def evaluated(self, simulation: Simulation) -> None:
        self._is_new = True

    def enter(self, phase: str) -> None:
        """The simulation is over, and this follows."""
        self._show(self._progress(phase))

    def _look(self, step_s: float) -> None:
        """Show how far it is, and look again after so much virtual time that little real time has passed."""
        begun_s = time.perf_counter()
        self._show(self._progress(RUNNING))
        self._looked()
        now_s = time.perf_counter()
        took_s, self._looked_s = now_s - self._looked_s, now_s
        often_s = max(_OFTEN_S, (now_s - begun_s) / _COST_SHARE) if self._asks_all else _OFTEN_S
        if took_s < often_s:
            step_s *= 2
        elif took_s > 4 * often_s:
            step_s /= 2
        step_s = min(max(step_s, _STEP_MIN_S), self._longest_step_s())
        loop = self._simulation.loop
        loop.call_at_observer(loop.time() + step_s, self._look, step_s)

    def _longest_step_s(self) -> float:
        """So that no stretch in which little happens makes the next look late."""
        longest_s = max(_STEP_MIN_S, _STEP_SHARE_MAX * self._fewer * self._simulation.loop.time())
        duration_s = self._simulation.rules.duration_s
        return longest_s if duration_s is None else duration_s * min(1.0, self._fewer / _LOOKS_MIN)

    def _progress(self, phase: str) -> Progress:
        simulation, rules, elapsed_s = self._simulation, self._simulation.rules, self.elapsed_s
        done = budget_spent = None
        if rules.iterations is not None:
            least = simulation.least_iterations
            done = rules.iterations if least is None and simulation.count_up else least or 0
        if rules.budget is not None:
            shares = [client.work.share_of(rules.budget) for client in simulation.clients_up]
            budget_spent = min(shares, default=0.0)
        progress = Progress(
            phase=phase,
            elapsed_s=elapsed_s,
            remaining_s=None,
            virtual_s=simulation.loop.time(),
            duration_s=rules.duration_s,
            iterations=done,
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
        if self._is_new:  # the mean reads all that was measured
            self._is_new = False
            observer = self._simulation.observer
            values = observer.metrics.mean(observer.measure.name).values
            self._reached = float(values[-1]) if len(values) and math.isfinite(values[-1]) else None
        return self._reached
