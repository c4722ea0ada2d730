"""Threads of an engine: parts of a batch at the same time, with the same results as one after the other."""

from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from torch import nn

from sim.learning.architecture import Architecture
from sim.learning.engine import Optimizer
from sim.learning.engine.graph import sampler
from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.snapshot import pool_snapshots
from sim.learning.engine.workers import Workers
from sim.learning.evaluation import measure_models
from tests.learning.engines import SHAPES, Jobs, client_data, new_engine


class KeepsWhatItComputes(nn.Module):
    """As some do to look at it later; a copy of such a tensor cannot be made."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = self.layer(x).relu()
        return self.head(self.hidden)


@pytest.mark.parametrize("backend", ["loop", "vmap"])
def test_threads_have_models_that_no_call_has_changed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_CHUNK_BYTES", 1)
    rows = []
    for workers in (1, 3):
        architecture = Architecture(KeepsWhatItComputes(), "keeps", (4,))
        assert architecture.training_flops_per_sample > 0  # calls it
        engine = new_engine(client_data([8] * 4), backend=backend, workers=Workers(workers))
        jobs = Jobs(engine, architecture)
        rows.append(engine.rows([jobs.train(client, jobs.initial(client))[0] for client in range(4)]))
    assert rows[0].equal(rows[1])


def test_the_order_of_nodes_does_not_hang_on_addresses() -> None:
    """A node may have the address of one that others waited for and that is gone, as they are."""
    orders = []
    for reused in (False, True):
        engine = new_engine(client_data([6] * 2))
        jobs = Jobs(engine)
        first = jobs.train(0, jobs.initial(0))[0]
        firsts = [first, jobs.train(1, jobs.initial(1))[0]]
        products = [engine.dot(each, each) for each in firsts]
        pending = engine._pending
        if reused:
            node = firsts[1].slot().node
            pending._waiting[id(node)] = [ref(GraphNode(None, (), None))]
        (other,) = pending._take_ready(id(products[0].slot().node.group)) or (None,)  # type: ignore[union-attr]
        assert other is None  # both wait now
        found = [
            [id(slot) for node in level for each in node for slot in each.inputs]
            for level in pending.take_all()
        ]
        wanted = {id(each.slot()): place for place, each in enumerate(firsts)}
        orders.append([wanted.get(each) for level in found for each in level])
    assert orders[0] == orders[1]


CLIENTS = 18  # more than are begun at once
MODELS = [("mlp", "dense"), ("decoupled", "vmap"), ("cnn", "loop")]


@pytest.mark.long
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
        data, by = client_data([8] * CLIENTS, shape=SHAPES[model], device="cpu"), Workers(workers)
        engine = new_engine(data, backend=backend, workers=by)
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
            "classification", jobs.kernel, rows, engine.data.train, list(range(CLIENTS)), workers=by
        )
        assert engine.statistics.batches >= 2 * CLIENTS
        found.append((rows, measured, pool_snapshots(engine)))
    (rows, measured, pools), *others = found
    for other_rows, other_measured, other_pools in others:
        assert rows.equal(other_rows)
        assert all(np.array_equal(measured[name], other_measured[name], equal_nan=True) for name in measured)
        assert pools.keys() == other_pools.keys()
        for width, pool in pools.items():
            assert torch.equal(pool.free, other_pools[width].free)
            assert torch.equal(pool.rows, other_pools[width].rows)
