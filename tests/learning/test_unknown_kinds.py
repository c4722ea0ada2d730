"""A kind of which no branch knows fails: nothing else is computed in its place."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sim.core.lives import Life
from sim.learning.data.text import FourLanguages
from sim.learning.engine.graph.batches import draw_batches, samples_of_batch
from sim.learning.evaluation import _Evaluation
from sim.learning.metrics import Metric
from sim.learning.models.backbones import client_backbones
from sim.learning.models.cnn import Cnn
from sim.learning.partitions.dealing import Owners
from sim.learning.partitions.natural import Natural
from sim.world.bandwidths import first_bandwidth_function
from sim.world.network_model import ConnectionClass

NEW: Any = "new"
ONE = np.ones(1, np.int64)
ANYTHING: Any = SimpleNamespace()
KERNEL: Any = SimpleNamespace(outputs=lambda models, x: x)


def measured() -> None:
    x = torch.zeros(1, 1, 2)
    _Evaluation(KERNEL, x, None, "classification").add([Metric("name", NEW)], x, torch.zeros(1, 1))


CASES: dict[str, Callable[[], object]] = {
    "sampling": lambda: draw_batches(ONE, ONE, ONE, steps=1, batch_size=1, sampling=NEW),
    "size of a batch": lambda: samples_of_batch(NEW, 1, 1),
    "what a metric is of": measured,
    "backbones": lambda: client_backbones(NEW, ["mlp"], 1, 0, [1.0]),
    "norm of a CNN": lambda: Cnn.model_construct(norm=NEW)._norm(3),
    "clients of the data": lambda: Natural.model_construct(choose=NEW)._chosen(
        Owners(("a",), ONE, None, ONE), 1, 0
    ),
    "clusters of languages": lambda: FourLanguages.model_construct(clusters=NEW).families,
    "state of a return": lambda: Life("name", ANYTHING, ANYTHING, None).returning(NEW),
    "class of connections": lambda: ConnectionClass(ANYTHING, {}, NEW).holds("a", "b"),
    "bandwidth": lambda: first_bandwidth_function("uplink", NEW, ANYTHING),
}


@pytest.mark.parametrize("kind", CASES)
def test_an_unknown_kind_is_not_taken_for_another(kind: str) -> None:
    with pytest.raises(AssertionError, match="Expected code to be unreachable, but got"):
        CASES[kind]()
