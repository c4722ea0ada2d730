"""Detection of convergence: no client improves."""

import math
from collections.abc import Mapping

from sim.core.rules import Convergence


class Plateau:
    """Best value of each client, with its time.

    A client improves if its value is better than its best value by more than the tolerance. If a client was
    absent at an evaluation, its earlier values no longer count.
    """

    def __init__(self, rule: Convergence, *, higher_is_better: bool) -> None:
        self._rule = rule
        self._sign = 1.0 if higher_is_better else -1.0
        self._best: dict[str, tuple[float, float]] = {}  # value, and time

    def reached(self, time_s: float, measured: Mapping[str, float]) -> bool:
        """Return True if no measured client has improved during the patience. Call this at each evaluation.

        measured: value of the first metric of each client that is up. Returns False if it is empty.
        """
        best = {}
        for client, value in measured.items():
            before = self._best.get(client)
            # Any number improves on a value that is not a number.
            if (
                before is None
                or math.isnan(before[0]) > math.isnan(value)
                or self._sign * (value - before[0]) > self._rule.tolerance
            ):
                best[client] = (value, time_s)
            else:
                best[client] = before
        self._best = best
        return bool(best) and all(time_s - since_s >= self._rule.patience for _, since_s in best.values())
