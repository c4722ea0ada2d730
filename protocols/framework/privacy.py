"""Differential privacy: clipping and noise for vectors before others see them, and the privacy cost.

For a vector v, the clipping norm C, the noise multiplier s and z ~ N(0, I), the Gaussian mechanism returns v
min(1, C / |v|) + s C z. An observer of one of these vectors learns little about whether it was computed from
v or from 0, as the norm of the part without noise is at most C. Later computations on the result cost no
further privacy. This is a simulation: the noise can be drawn again from the run's seed.
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from protocols.framework.node import Node
from protocols.framework.vectors import Vector

if TYPE_CHECKING:
    from torch import Tensor

_ORDERS = (*[1 + step / 10 for step in range(1, 100)], *range(11, 64), *[2**power for power in range(6, 14)])


class GaussianMechanism:
    """Mechanism that clips vectors to a norm (L2) and adds Gaussian noise of `noise_multiplier` times `clip`.

    Create it in `setup()`. The noise has a separate random stream, independent of all other draws. Raises
    ValueError for a norm that is not above 0 and finite, and for a multiplier below 0 or not finite.

    >>> private = GaussianMechanism(client, clip=1.0, noise_multiplier=0.0)
    >>> private.release(client.vector([3.0, 0.0, 4.0])).numpy().round(3)
    array([0.6, 0. , 0.8], dtype=float32)
    """

    def __init__(self, client: Node, clip: float, noise_multiplier: float) -> None:
        if not 0 < clip < math.inf:
            raise ValueError(f"clip must be above 0 and finite, not {clip!r}")
        if not 0 <= noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier must be 0 or more and finite, not {noise_multiplier!r}")
        self.clip = clip
        self.noise_multiplier = noise_multiplier
        self._client = client
        assert client.context.noise is not None, "only clients can add noise"
        self._noise = client.context.noise(client.name)

    @property
    def releases(self) -> int:
        """Number of vectors that the client has released, over all its sessions."""
        return self._noise.releases

    def release(self, vector: Vector) -> Vector:
        """Return the vector, clipped and noisy; deferred. Each call counts, even if its result is unused."""
        self._noise.releases += 1
        noise = self._noise.rng.standard_normal(vector.shape)
        deviation = self.noise_multiplier * self.clip
        released: Vector = self._client.apply(
            clip_and_add_noise, vector, noise, clip=self.clip, deviation=deviation
        )
        return released

    def epsilon(self, delta: float) -> float:
        """Return the privacy cost of all releases so far, as the function `epsilon` does."""
        return epsilon(self.noise_multiplier, self.releases, delta)


def clip_and_add_noise(vector: Tensor, noise: Tensor, clip: float, deviation: float) -> Tensor:
    """Return a vector [n] clipped to the norm `clip`, plus `deviation` times the noise [n]."""
    factor = clip / vector.norm().clamp(min=clip)  # exactly 1 for a vector within the norm
    return vector * factor + deviation * noise


def epsilon(noise_multiplier: float, releases: int, delta: float, share: float = 1.0) -> float:
    """Return the epsilon of (epsilon, delta)-differential privacy after `releases` of the Gaussian mechanism.

    noise_multiplier: standard deviation of the noise, relative to the norm to which vectors are clipped.
    share: probability that a release contains a given vector, if the choice stays secret; 1 if each release
    contains it. Computed by Renyi differential privacy (Mironov et al. 2019; Balle et al. 2020) with Opacus,
    which the extra `privacy` installs. 0 without releases; infinite without noise. Raises ValueError unless 0
    < delta < 1 and 0 < share <= 1, and ModuleNotFoundError without Opacus if it is needed.
    """
    if not 0 < delta < 1 or not 0 < share <= 1:
        raise ValueError(
            f"delta must be above 0 and below 1, share above 0 and at most 1, not {delta} and {share}"
        )
    if releases == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    return _rdp_epsilon(noise_multiplier, releases, delta, share)


@lru_cache(maxsize=4096)
def _rdp_epsilon(noise_multiplier: float, releases: int, delta: float, share: float) -> float:
    try:
        from opacus.accountants.analysis import rdp
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "epsilon: needs the package opacus; pip install 'coterie[privacy]'"
        ) from None
    orders = list(_ORDERS)
    spent = rdp.compute_rdp(q=share, noise_multiplier=noise_multiplier, steps=releases, orders=orders)
    with warnings.catch_warnings():  # a warning that another order would be tighter; the result is valid
        warnings.simplefilter("ignore", UserWarning)
        found, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return float(found)
