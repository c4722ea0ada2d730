"""Threads of an engine: parts of a batch at the same time, with the same results as one after the other."""

from typing import Any

import numpy as np
import pytest
import torch

from sim.learning.engine import Optimizer
from sim.learning.engine.graph import sampler
from sim.learning.engine.replay.snapshot import stored
from sim.learning.evaluation import measure_models
from tests.learning.engines import SHAPES, Jobs, client_data, new_engine

CLIENTS = 18  # more than are begun at once
MODELS = [("mlp", "dense"), ("decoupled", "vmap"), ("cnn", "loop")]


@pytest.mark.parametrize(
    "optimizer", [Optimizer(), Optimizer("sgd", momentum=0.9)], ids=["plain", "momentum"]
)
@pytest.mark.parametrize(("model", "backend"), MODELS)
def test_results_and_rows_are_the_same_with_any_number(
    model: str, backend: str, optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, too: a run that goes on with more cores must find what it has left."""
    monkeypatch.setattr(sampler, "_CHUNK_BYTES", 1)  # a client in each part
    found = []
    for workers in (1, 2, 5):
        engine = new_engine(client_data([8] * CLIENTS, shape=SHAPES[model]), backend=backend, workers=workers)
        jobs = Jobs(engine, model, optimizer)
        params, state = [jobs.initial(client) for client in range(CLIENTS)], [None] * CLIENTS
        for done in range(2):
            trained: list[Any] = [
                jobs.train(client, params[client], done=done, state=state[client])
                for client in range(CLIENTS)
            ]
            params, state = (list(each) for each in zip(*trained, strict=True))
            params = [0.5 * params[client] + 0.5 * params[client - 1] for client in range(CLIENTS)]
        rows = engine.rows(params)
        measured = measure_models(
            "classification", jobs.kernel, rows, engine.data.train, list(range(CLIENTS)), each=engine.each
        )
        assert engine.statistics.batches >= 2 * CLIENTS
        found.append((rows, measured, stored(engine)))
    (rows, measured, pools), *others = found
    for other_rows, other_measured, other_pools in others:
        assert rows.equal(other_rows)
        assert all(np.array_equal(measured[name], other_measured[name], equal_nan=True) for name in measured)
        assert pools.keys() == other_pools.keys()
        for width, pool in pools.items():
            assert torch.equal(pool.free, other_pools[width].free)
            assert torch.equal(pool.rows, other_pools[width].rows)
