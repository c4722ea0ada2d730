"""What an engine did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EngineStatistics:
    """What the engine did.

    jobs: nodes computed. batches: calls that computed them. updates: optimizer steps submitted. seconds: wall
    time in flushes.
    """

    jobs: int = 0
    batches: int = 0
    updates: int = 0
    seconds: float = 0.0

    @property
    def mean_batch(self) -> float:
        """Jobs per call."""
        return self.jobs / self.batches if self.batches else 0.0
