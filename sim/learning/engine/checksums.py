"""Checksums of parameters, for the trace."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_CHECKSUM_NUMBERS = 1 << 16  # that are multiplied at once


def checksums(rows: Tensor) -> np.ndarray:
    """An int64 per row that changes with any bit of it; exact, so independent of the order of summation.

    rows: float32 [N, P]. Each number's bits, times an odd weight that depends on its position, modulo 2^64.
    """
    bits = rows.contiguous().view(torch.int32)
    weights = torch.arange(rows.shape[1], device=rows.device, dtype=torch.int64) * 2 + 1
    # Some rows at a time: an int64 copy of all rows at once would triple the memory of a large run.
    blocks = bits.split(max(1, _CHECKSUM_NUMBERS // max(1, rows.shape[1])))
    return torch.cat([(block * weights).sum(dim=1) for block in blocks]).cpu().numpy()
