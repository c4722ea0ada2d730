"""Times of a page as whole numbers of ticks, the smallest unit of time that the page shows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_TICK_S = 1e-4
_FINE_TICK_S = 1e-6
_FINE_BELOW_S = 10.0
_MOST_TICKS = 1 << 31


class Ticks(NamedTuple):
    """Ticks of a run's virtual time. Times outside the run become its start or its end."""

    end_s: float
    tick_s: float

    @classmethod
    def of(cls, end_s: float) -> "Ticks":
        tick_s = _TICK_S if end_s >= _FINE_BELOW_S else _FINE_TICK_S
        return cls(end_s, max(tick_s, end_s / _MOST_TICKS))

    def ticks(self, times_s: Any) -> NDArray[np.int64]:
        """Return the nearest ticks of times; NaN becomes the start of the run."""
        times = np.nan_to_num(np.asarray(times_s, dtype=np.float64), nan=0.0)
        return np.rint(times.clip(0.0, self.end_s) / self.tick_s).astype(np.int64)
