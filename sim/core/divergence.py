"""Models that are no numbers any more: whose was the first, and whose are at the last look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NonFinite:
    """Whose model was seen not to be finite, when, and what was not: "parameters", "loss" or "distance"."""

    client: str
    time_s: float
    found: str


_FOLLOW = (
    "loss",
    "train_loss",
    "distance",
    "objective",
)  # finite if a model is; other measures may be undefined


class Divergence:
    """What evaluations saw of models that are not finite.

    first: the first of them. present: the clients whose models were not finite when looked at last, in the
    order in which they were found.
    """

    def __init__(self) -> None:
        self.first: NonFinite | None = None
        self.present: dict[str, None] = {}

    def look(
        self,
        time_s: float,
        clients: Sequence[str],
        finite: np.ndarray,
        measured: Mapping[str, np.ndarray],
        tested: np.ndarray,
    ) -> None:
        """Look at the models of N clients: which are `finite` [N], and what was measured of them [N] each.

        tested [N]: who has test samples; nothing can be measured of the others.
        """
        found = _not_finite(finite, measured, tested)
        if self.first is None and found:
            position = min(found)
            self.first = NonFinite(clients[position], time_s, found[position])
        if not found and not self.present:
            return
        for position, client in enumerate(clients):
            if position in found:
                self.present[client] = None
            else:
                self.present.pop(client, None)


def _not_finite(finite: np.ndarray, measured: Mapping[str, np.ndarray], tested: np.ndarray) -> dict[int, str]:
    """Which of N models are not finite -> what of them is not."""
    found = dict.fromkeys(np.flatnonzero(~finite).tolist(), "parameters")
    for name, values in measured.items():
        if name in _FOLLOW:
            for position in np.flatnonzero(~np.isfinite(values) & tested).tolist():
                found.setdefault(position, name)
    return found
