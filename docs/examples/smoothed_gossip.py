"""Gossip with its own loss: cross-entropy with smoothed labels.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception Architecture for Computer Vision", CVPR
2016, section 7: a label has weight 1 - e + e/K, and each of the K - 1 others e/K.
"""

from dataclasses import dataclass
from typing import Annotated

from torch.nn import functional

from coterie import Requirement, Within
from protocols.decentralized.gossip import Gossip


@dataclass(frozen=True)
class SmoothedLoss:
    smoothing: float
    views: int = 1

    def each(self, model, parameters, x, y):
        scores = model.forward(parameters, x)
        return functional.cross_entropy(scores, y, label_smoothing=self.smoothing, reduction="none")

    def __call__(self, model, parameters, x, y):
        return self.each(model, parameters, x, y).mean()


class SmoothedGossip(Gossip):
    class Settings(Gossip.Settings):
        smoothing: Annotated[float, Within(0, 0.9)] = 0.1

    @classmethod
    def objective(cls, settings):
        return SmoothedLoss(settings.smoothing)

    @classmethod
    def requirements(cls, settings):
        needed = 'is meant to be compared under plain SGD; must be "sgd"'
        return [Requirement("training.optimizer", lambda value: value == "sgd", needed)]
