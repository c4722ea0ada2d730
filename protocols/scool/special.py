"""Special functions of numpy arrays in float64."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _of_arrays(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[ArrayLike], Floats]:
    def of_array(values: ArrayLike) -> Floats:
        return np.asarray(function(torch.from_numpy(np.array(values, dtype=np.float64))).numpy())

    return of_array


digamma = _of_arrays(torch.special.digamma)
gammaln = _of_arrays(torch.special.gammaln)
entr = _of_arrays(torch.special.entr)
expit = _of_arrays(torch.special.expit)


def softmax(values: Floats) -> Floats:
    """Return shares in proportion to the exponentials, with sum 1 along the last axis."""
    masses = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(masses / masses.sum(axis=-1, keepdims=True))
