"""FedROD: a common model trained for all classes alike, and a personal head for the client's own classes.

Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification", ICLR 2022.
The common model minimizes the balanced softmax loss: logits plus log n_k, where n_k is the client's number of
samples of class k. The personal head adds its logits to those of the common model and minimizes the plain
loss, without gradients to the common model. Classes without samples count as one sample.
"""

import numpy as np
import torch
from torch.nn.functional import cross_entropy, linear

from coterie import Contribution, RoundClient


def trained(params, head, inputs, labels, counts, order, rate, *, model, size):
    x, y, order = inputs.reshape(len(labels), *model.input_shape), labels.long(), order.long()

    def loss(params, head, x, y):
        found, weights = model.embed(params, x), head[: -len(counts)].reshape(len(counts), -1)
        personal = linear(found.features.relu().detach(), weights, head[-len(counts) :])
        balanced = cross_entropy(found.scores + counts.log(), y)
        return balanced + cross_entropy(found.scores.detach() + personal, y)

    for rows in order.split(size):
        slopes = torch.func.grad(loss, argnums=(0, 1))(params, head, x[rows], y[rows])
        params, head = params - rate * slopes[0], head - rate * slopes[1]
    return params, head


class FedROD(RoundClient):
    parts = ()  # a decoupled model: a backbone, and a linear head on its features

    def setup(self):
        counts, classes = self.compute.class_counts, range(self.compute.classes)
        self.own = self.inputs(), self.labels(), np.array([max(1, counts.get(k, 0)) for k in classes])
        self.size = self.batch().samples
        self.head = self.part(self.params, "head") * 0.0

    async def work(self, task):
        steps, count = self.steps_of_a_round, self.samples
        passes = [self.rng.permutation(count) for _ in range(-(-steps * self.size // count))]
        given = (task.params, self.head, *self.own, np.concatenate(passes)[: steps * self.size])
        fixed = {"model": self.context.model, "size": self.size, "steps": steps}
        self.params, self.head = await self.apply(trained, *given, self.compute.learning_rate, **fixed)
        return Contribution(self.params, self.samples)

    def evaluated(self):
        head = self.part(self.params, "head") + self.head
        return {"personal": self.with_part(self.params, "head", head), "generic": self.params}
