"""Training settings of a simulated client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.learning.architecture import Architecture
from sim.learning.engine.graph.batches import Sampling
from sim.learning.engine.optimizers import Optimizer
from sim.learning.objectives import Objective
from sim.learning.schedules import Schedule

if TYPE_CHECKING:
    from sim.learning.augmentation import Augmentation


@dataclass(frozen=True)
class LearningSettings:
    """Training settings of a client.

    views: copies of each sample in a batch, as the objective requires. Training and gradients augment each
    view. Losses use samples without augmentation, so that they compare models on equal samples. precision:
    precision of the client's computations; "" for the precision of the engine. keeps_rate: True if a change
    of the learning rate during the run does not affect the client.
    """

    architecture: Architecture
    objective: Objective
    classes: int
    optimizer: Optimizer
    learning_rate: float
    batch_size: int
    sampling: Sampling = "shuffled"
    augmentation: Augmentation | None = None
    views: int = 1
    schedule: Schedule | None = None
    precision: str = ""
    keeps_rate: bool = False
