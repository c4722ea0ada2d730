"""Models that the observer measures for a client: the result of `evaluated()`, or its single model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from actors.supervisor import Supervisor
from sim.core.lives import ClientLife
from sim.core.observations import call_actor, overrides_hook
from sim.learning.engine import Engine, Vector
from sim.results.measures import ALONE

Ensemble = tuple[tuple[float, Vector], ...]
"""Models and their weights in an average of predicted probabilities; the weights sum to 1."""
_ONLY = "model"


def evaluated_models(
    clients: Sequence[ClientLife], supervisor: Supervisor, *, predict: bool
) -> list[Mapping[str, Ensemble]] | None:
    """Return the models or ensembles of each client, by name; the first represents the client.

    None if each client has one model. After an error in `evaluated()`, the client's one model is measured.
    predict: True if models make predictions that can be averaged; points of quadratic data do not.
    """

    def named_by(client: ClientLife) -> Mapping[str, Ensemble] | None:
        return call_actor(
            client,
            "evaluated",
            lambda models: _require_named_models(models, client.params, predict),
            supervisor,
        )

    if not overrides_hook(clients, "evaluated"):
        return None
    named = {client.index: models for client in clients if (models := named_by(client)) is not None}
    if not named:
        return None
    return [named.get(client.index) or {_ONLY: ((1.0, client.params),)} for client in clients]


def _require_named_models(models: object, params: Vector, predict: bool) -> dict[str, Ensemble]:
    if not isinstance(models, Mapping) or not models:
        what = "an empty one" if isinstance(models, Mapping) else type(models).__name__
        raise TypeError(f"evaluated() must return a mapping of names to models, not {what}")
    checked = {}
    for name, model in models.items():
        if not isinstance(name, str) or not name.isidentifier() or name == ALONE.strip("_"):
            raise ValueError(f"evaluated(): the name {name!r:.60} must be an identifier other than 'alone'")
        checked[name] = _ensemble(name, model, params)
        if len(checked[name]) > 1 and not predict:
            raise ValueError(
                f"evaluated(): {name} has {len(checked[name])} models, whose predictions would be averaged; "
                "with quadratic data, a model is a point without predictions: name one model, such as "
                "their mean"
            )
    return checked


def _ensemble(name: str, model: Any, params: Vector) -> Ensemble:
    pairs = [(1.0, model)] if isinstance(model, Vector) else model
    are_pairs = isinstance(pairs, Sequence) and all(
        isinstance(pair, tuple) and len(pair) == 2 and type(pair[1]) is Vector for pair in pairs
    )
    if not are_pairs or not pairs:
        kind = type(model).__name__
        what = f"an object of type {kind}"
        if isinstance(pairs, list | tuple):
            what = f"a {kind} with other items" if pairs else f"an empty {kind}"
        raise TypeError(
            f"evaluated(): {name} must be a model, or a list of pairs (weight, model), not {what}"
        )
    weights = [float(weight) for weight, _ in pairs]
    total = sum(weights)
    if not (math.isfinite(total) and min(weights) >= 0 and total > 0):
        raise ValueError(
            f"evaluated(): the weights of {name} are {weights}; they must be finite, and 0 or more, with at "
            "least one above 0"
        )
    for _, vector in pairs:
        if vector.shape != params.shape:
            raise ValueError(
                f"evaluated(): {name} has {vector.shape[0]:,} numbers, but a model of this client has "
                f"{params.shape[0]:,}"
            )
    return tuple([(weight / total, vector) for weight, (_, vector) in zip(weights, pairs, strict=True)])


def models_and_weights(engine: Engine, ensembles: Sequence[Ensemble]) -> tuple[Tensor, Tensor]:
    """Return the models [N, K, P] of N ensembles of up to K models, and weights [N, K], 0 for padding."""
    most = max(map(len, ensembles))
    filled = [(*each, *[(0.0, each[0][1])] * (most - len(each))) for each in ensembles]
    rows = engine.rows([vector for each in filled for _, vector in each])
    shares = torch.tensor([[share for share, _ in each] for each in filled], device=rows.device)
    return rows.reshape(len(filled), most, -1), shares
