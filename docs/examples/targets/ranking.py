"""Ranking: targets are the relevances of a query's documents; measures depend on their order alone."""

from dataclasses import dataclass

import numpy as np
from torch import nn

from protocols.decentralized.gossip import Gossip


def queries(rng, clients, samples: int = 60, documents: int = 6, features: int = 4):
    """Return queries [N, documents, features], and relevances 0 to 3 [N, documents], of each client."""
    x = rng.normal(size=(clients * samples, documents, features)).astype(np.float32)
    taste = rng.normal(size=features)
    scores = x @ taste + 0.3 * rng.normal(size=x.shape[:2])
    relevances = np.digitize(scores, np.quantile(scores, (0.4, 0.7, 0.9)))
    return x, relevances.astype(np.float32), np.arange(len(x)) % clients


class Ranker(nn.Module):
    """A score for each document, from its own features."""

    def __init__(self, input_shape, classes, width: int = 16):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(input_shape[1], width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.score(x).squeeze(-1)


@dataclass(frozen=True)
class ListLoss:
    """ListNet (Cao et al., ICML 2007): cross-entropy between the probabilities of the
    first place by the relevances and by the scores."""

    views: int = 1

    def each(self, model, parameters, x, y):
        return -(y.softmax(dim=1) * model.forward(parameters, x).log_softmax(dim=1)).sum(dim=1)

    def __call__(self, model, parameters, x, y):
        return self.each(model, parameters, x, y).mean()


class RankingGossip(Gossip):
    @classmethod
    def objective(cls, settings):
        return ListLoss()


def ndcg(outputs, targets, first: int = 3):
    """Return the normalized discounted cumulative gain of the first documents."""
    from sklearn.metrics import ndcg_score

    return ndcg_score(targets, outputs, k=first)


def best_rank(outputs, targets):
    """Return the mean rank of a query's most relevant document; 1 is the best."""
    best = np.take_along_axis(outputs, targets.argmax(axis=1)[:, None], axis=1)
    return 1 + (outputs > best).sum(axis=1).mean()
