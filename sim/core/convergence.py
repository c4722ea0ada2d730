"""Whether training has converged: nobody gets better any more."""

import math
from collections.abc import Mapping

from sim.core.rules import Convergence


class Plateau:
    """The best that each client has reached, and since when; `reached` says whether all have converged.

    A client has become better if it beats its best by more than the tolerance. Who goes and comes back begins
    anew.
    """

    def __init__(self, rule: Convergence, *, higher_is_better: bool) -> None:
        self._rule = rule
        self._sign = 1.0 if higher_is_better else -1.0
        self._best: dict[str, tuple[float, float]] = {}  # value, and time

    def reached(self, time_s: float, measured: Mapping[str, float]) -> bool:
        """Whether all clients have been no better for as long as the rule says; asked at each evaluation.

        measured: what each client that is up is judged by.
        """
        best = {}
        for client, value in measured.items():
            before = self._best.get(client)
            # Anything is better than a loss that is not a number.
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
