"""Posterior over collaborators of FedeRiCo (Sui et al. 2022, section 3 and appendices A and B).

Client i assumes that its data comes from the model of one of the candidates j, itself included. With l_ij the
loss of model j on its data, flat priors and the last posterior as the next prior,

    w_ij(t) ~ w_ij(t-1) exp(-l_ij(t-1)) ~ exp(-sum of l_ij before t)                            (eqs. 22-24)

and, with the average of algorithm 1 in place of the sum, w_i = softmax(-L_i),

    L_ij(t) = (1 - beta) L_ij(t-1) + beta l_ij(t)                                                    (line 15)

where l_ij is the last loss of a candidate that is not evaluated in round t. The sum and the average change in
every round for all j. As long as l_ij stays the same, both have a closed form, so only evaluated candidates
are updated:

    average:  L_ij(t + k) = l_ij + (1 - beta)^k (L_ij(t) - l_ij)        sum:  L_ij(t + k) = L_ij(t) + k l_ij

This module uses pure Python, and numpy in float64.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def negative_softmax(losses: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """Return exp(-L_j / temperature) over their sum, for losses L [n], with 0 for losses that are not finite.

    All are 0 if no loss is finite.
    """
    values = np.asarray(losses, dtype=np.float64) / temperature
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros_like(values)
    powers = np.exp(np.where(finite, values[finite].min() - np.where(finite, values, 0.0), -np.inf))
    return powers / powers.sum()


@dataclass
class CandidateLosses:
    """Losses of a candidate: the last one, and the tracked loss L as it was after `round`.

    tried: False from the time at which the candidate joins or returns until it is evaluated; it is then
    chosen before all others. Candidates that are present at the start start with True: L = 0 already ranks
    them first.
    """

    last: float = 0.0
    tracked: float = 0.0
    round: int = 0
    tried: bool = True


class LossTable:
    """Tracked losses of one client's candidates.

    The time of `record` depends on the number of losses that it gets, not on the number of candidates.

    candidates: the candidates at the start, all with L = l = 0 (algorithm 1, line 3), so that they have equal
    weights and all are tried before any is tried twice. momentum: beta; None for the sum of eq. 24.

    A candidate that joins later has no weight before it is tried, because with L = 0 it would have nearly all
    the weight. Its first loss counts as if the candidate had had this loss since the first round.
    """

    def __init__(self, candidates: Iterable[str], momentum: float | None) -> None:
        self.momentum = momentum
        self.round = 0
        self.records = {name: CandidateLosses() for name in candidates}

    def admit(self, name: str) -> None:
        """Admit `name`, which has joined or returned: it is tried next. Its earlier losses still count."""
        if name not in self.records:
            self.records[name] = CandidateLosses(last=np.nan, tracked=np.nan)
        self.records[name].tried = False

    def record(self, losses: Mapping[str, float]) -> None:
        """Record a round in which these candidates were evaluated, with these losses."""
        for name, loss in losses.items():
            record = self.records[name]
            tracked = self._after(record, self.round)
            if not np.isfinite(tracked):  # it has never been tried, or had diverged
                tracked = self._after(CandidateLosses(last=loss), self.round)
            record.tracked, record.round = tracked, self.round
            record.last, record.tried = loss, True
        self.round += 1

    def tracked(self, name: str) -> float:
        """Return the tracked loss L of a candidate after the last round.

        nan for a candidate that joined later and has not been tried yet.
        """
        return self._after(self.records[name], self.round)

    def _after(self, record: CandidateLosses, number: int) -> float:
        """Return the tracked L after round `number`, if the candidate has not been evaluated since then."""
        rounds = number - record.round
        if not rounds:
            return record.tracked
        if self.momentum is None:
            return record.tracked + rounds * record.last
        return record.last + (1.0 - self.momentum) ** rounds * (record.tracked - record.last)

    def weights(self, among: Iterable[str], temperature: float = 1.0) -> dict[str, float]:
        """Return the weights w of the candidates `among`: their sum is 1, or 0 if none has a finite loss."""
        names = list(among)
        shares = negative_softmax([self.tracked(name) for name in names], temperature)
        return {name: float(share) for name, share in zip(names, shares, strict=True)}

    def ranked(self, among: Iterable[str], rng: np.random.Generator) -> list[str]:
        """Return the candidates `among`, untried ones first, then by weight; ties in random order."""
        names = list(among)
        mixed = [names[k] for k in rng.permutation(len(names)).tolist()]

        def rank(name: str) -> tuple[bool, float]:
            loss = self.tracked(name)
            return self.records[name].tried, loss if np.isfinite(loss) else np.inf

        return sorted(mixed, key=rank)
