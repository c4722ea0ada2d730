"""Pure functions that several methods use."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def project_on_simplex(values: ArrayLike, total: float = 1.0) -> NDArray[np.float64]:
    """Return the Euclidean projection of a vector [n] on {w : w >= 0, sum w = total}.

    Raises ValueError for another number of dimensions, an empty vector, numbers that are not finite, and a
    total of 0 or less.

    The function sorts the entries, and subtracts the threshold for which the positive parts add up to `total`
    (Held, Wolfe and Crowder 1974; Condat 2016, algorithm 1).
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not vector.size:
        raise ValueError(f"the projection needs a vector with at least one entry, not shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError("only finite numbers can be projected on the simplex")
    if total <= 0:
        raise ValueError(f"the weights of a simplex must add up to more than 0, not {total}")
    # Adding the same number everywhere does not change the projection; with the largest entry at 0 the sums
    # below stay exact enough for numbers of any size.
    vector = vector - vector.max()
    descending = np.sort(vector)[::-1]
    thresholds = (np.cumsum(descending) - total) / np.arange(1, vector.size + 1)
    kept = np.flatnonzero(descending > thresholds)[-1]
    return np.maximum(vector - thresholds[kept], 0.0)


def metropolis_weights(own_degree: int, degrees: Mapping[str, int]) -> dict[str, float]:
    """Return mixing weights 1 / (1 + max(d_i, d_j)) for each neighbor j; the client's own is 1 - their sum.

    Each client computes them from its own and its neighbors' degrees only. The weights of all clients form a
    symmetric, doubly stochastic matrix (Xiao and Boyd 2004), which the convergence of D-PSGD requires.
    """
    return {peer: 1.0 / (1 + max(own_degree, degree)) for peer, degree in degrees.items()}


def shared_uniform(seed: int, *names: str | int) -> float:
    """Return a uniform number in [0, 1), the same for all clients with the same seed, without a message.

    Two clients that pass the same names agree on a random event, for example on whether to update their
    common weight in a round.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *names))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def shared_rng(seed: int, name: str) -> np.random.Generator:
    """Return a generator that gives all clients with the same seed the same numbers, without a message."""
    digest = hashlib.blake2b(f"{name} {seed}".encode(), digest_size=8).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest, "little")))


def epsilon_greedy(ranked: Sequence[str], count: int, epsilon: float, rng: np.random.Generator) -> list[str]:
    """Return `count` different items of `ranked`, or all if there are fewer.

    Each position explores with probability `epsilon`. The first items of `ranked` take the positions that do
    not explore; the exploring positions are filled at random from the remaining items. The candidate of rank
    r (from 0) of n is therefore chosen with probability sum_g P(g) (1 if r < g else (count - g)/(n - g)),
    where the number g of positions without exploration is binomial with `count` and 1 - epsilon.
    """
    count = min(count, len(ranked))
    greedy = count - int(rng.binomial(count, epsilon))
    others = ranked[greedy:]
    drawn = rng.permutation(len(others))[: count - greedy].tolist()
    return [*ranked[:greedy], *[others[index] for index in drawn]]
