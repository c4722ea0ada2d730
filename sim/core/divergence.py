"""Models with infinite or undefined values: the first such model, and the models at the last evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NonFinite:
    """A model that is not finite. found: "parameters", or the name of a metric."""

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
    """Models that evaluations found not finite.

    first: the first such model. present: clients whose models were not finite when last checked, in order of
    detection.
    """

    def __init__(self) -> None:
        self.first: NonFinite | None = None
        self.present: dict[str, None] = {}

    def check(
        self,
        time_s: float,
        clients: Sequence[str],
        finite: np.ndarray,
        measured: Mapping[str, np.ndarray],
        tested: np.ndarray,
    ) -> None:
        """Check the models of N clients.

        finite: bool [N], True if all parameters are finite. measured: metrics [N], by name. tested: bool
        [N], True for clients with test samples; metrics of others are undefined.
        """
        found = _non_finite_positions(finite, measured, tested)
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


def _non_finite_positions(
    finite: np.ndarray, measured: Mapping[str, np.ndarray], tested: np.ndarray
) -> dict[int, str]:
    """Return the positions of models that are not finite, each with "parameters" or the name of a metric."""
    found = dict.fromkeys(np.flatnonzero(~finite).tolist(), "parameters")
    for name, values in measured.items():
        if name in _FOLLOW:
            for position in np.flatnonzero(~np.isfinite(values) & tested).tolist():
                found.setdefault(position, name)
    return found
