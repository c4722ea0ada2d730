"""FedLC: each client calibrates its logits by its class counts.

Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022. A client
subtracts tau n_k^(-1/4) from the logit of class k before the cross-entropy, where n_k is its number of
samples of the class. Classes without samples count as one sample.
"""

import numpy as np
import torch
from torch.nn import functional

from coterie import Contribution, PositiveWeight, RoundClient, RoundSettings


def calibrated(params, inputs, labels, counts, order, rate, *, model, size, tau):
    x, y, order = inputs.reshape(len(labels), *model.input_shape), labels.long(), order.long()

    def loss(params, x, y):
        return functional.cross_entropy(model.forward(params, x) - tau * counts**-0.25, y)

    for rows in order.split(size):
        params = params - rate * torch.func.grad(loss)(params, x[rows], y[rows])
    return params


class FedLC(RoundClient):
    class Settings(RoundSettings):
        tau: PositiveWeight = 1.0

    def setup(self):
        counts, classes = self.compute.class_counts, range(self.compute.classes)
        self.own = self.inputs(), self.labels(), np.array([max(1, counts.get(k, 0)) for k in classes])
        self.size = self.batch().samples

    async def work(self, task):
        steps, count = self.steps_of_a_round, self.samples
        passes = [self.rng.permutation(count) for _ in range(-(-steps * self.size // count))]
        given = (task.params, *self.own, np.concatenate(passes)[: steps * self.size])
        fixed = {"model": self.context.model, "size": self.size, "tau": self.settings.tau}
        self.params = await self.apply(calibrated, *given, self.compute.learning_rate, **fixed, steps=steps)
        return Contribution(self.params, self.samples)
