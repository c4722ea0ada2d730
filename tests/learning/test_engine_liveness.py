"""A job's numbers are the same to the last bit whoever else holds vectors, and whatever else is computed."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from sim.core.process import torch_threads
from sim.learning.architecture import Architecture
from sim.learning.engine import Optimizer
from sim.learning.engine.backends.products import product
from tests.learning.engines import Jobs, client_data, new_engine
from tests.learning.sections import architecture

CLIENTS = 5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As runs compute unless they say otherwise: several share out a sum by how much there is to add."""
    with torch_threads(1):
        yield


OPTIMIZERS = {
    "sgd": Optimizer(),
    "momentum": Optimizer("sgd", momentum=0.9),
    "adamw": Optimizer("adamw", weight_decay=0.01),
}
# Sizes of which no product of a client takes whole cache lines, and such as scenarios have.
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], int, int]] = {
    "logistic regression": ("logistic-regression", {}, (64,), 10, 10),
    "mlp": ("mlp", {"hidden": [100]}, (64,), 10, 10),
    "odd mlp": ("mlp", {"hidden": [7, 9]}, (13,), 3, 5),
    "one sample": ("mlp", {"hidden": [32]}, (64,), 3, 1),
    "decoupled": ("decoupled", {"features": 9}, (1, 8, 8), 3, 5),
    "cnn": ("cnn", {}, (1, 8, 8), 3, 5),
}
CASES = [
    *[(name, "loop" if name == "cnn" else "dense", "sgd") for name in MODELS],
    *[("odd mlp", way, optimizer) for way in ("dense", "loop") for optimizer in ("momentum", "adamw")],
]


def computed(
    model: Architecture,
    way: str,
    batch_size: int,
    optimizer: Optimizer,
    clients: Sequence[int],
    *,
    others: int = 0,
) -> dict[int, list[Tensor]]:
    """What comes of two trainings of each client, one of them pulled, of a gradient, a loss and a product.

    clients: in the order of their jobs. others: vectors that somebody holds, in rows before all others.
    """
    data = client_data([2 * batch_size] * CLIENTS, shape=model.input_shape, device="cpu")
    engine = new_engine(data, backend=way)
    jobs = Jobs(engine, model, optimizer, batch_size=batch_size)
    held = [jobs.initial(99) for _ in range(others)]
    found: dict[int, list[Any]] = {}
    states = {}
    for client in clients:
        trained, states[client] = jobs.train(client, jobs.initial(client), 2)
        found[client] = [trained]
    for client in clients:
        start = 0.3 * found[client][0] + 0.7 * jobs.initial(client + 50)
        pull = engine.dot(start, start).clip(0.01, 0.02)
        trained, state = jobs.train(
            client, start, done=2, state=states[client], pulls=[(pull, jobs.initial(7))]
        )
        found[client] += [trained, *([state] if state is not None else []), pull]
        found[client] += [jobs.gradient(client, start), jobs.loss(client, start), start.norm()]
    engine.flush()
    assert len(held) == others
    return {client: [each.tensor() for each in of] for client, of in found.items()}


@pytest.mark.parametrize(("name", "way", "optimizer"), CASES)
def test_bits_do_not_depend_on_others(name: str, way: str, optimizer: str) -> None:
    """Alone or among others, in whichever place and rows: as if more or fewer jobs were still held."""
    kind, options, shape, classes, batch_size = MODELS[name]
    model = architecture(kind, options, shape, classes)
    wanted = computed(model, way, batch_size, OPTIMIZERS[optimizer], range(CLIENTS))
    for clients, others in (([3], 0), ([3], 1), ([4, 3], 0), (range(CLIENTS)[::-1], 3)):
        found = computed(model, way, batch_size, OPTIMIZERS[optimizer], clients, others=others)
        for client, of_client in found.items():
            for ours, theirs in zip(of_client, wanted[client], strict=True):
                assert torch.equal(ours, theirs), (clients, others, client)


@pytest.mark.parametrize(
    "sizes", [(10, 64, 8), (10, 13, 5), (3, 65, 11), (100, 7, 3), (10, 64, 1), (1, 20, 6)]
)
@pytest.mark.parametrize("inner", [1, 2])
def test_products_are_the_same_anywhere(sizes: tuple[int, int, int], inner: int) -> None:
    rows, between, columns = sizes
    draws = torch.Generator().manual_seed(1)
    first = torch.randn(6, rows, between, generator=draws)
    second = torch.randn(6, between, columns, generator=draws)
    second = second.mT.contiguous().mT if inner == 1 else second
    bias = torch.randn(6, rows, 1, generator=draws)
    for added in (None, bias):
        together = product(first, second, added)
        torch.testing.assert_close(together, first @ second + (0 if added is None else added))
        for place in range(6):
            alone = slice(place, place + 1)
            of_one = None if added is None else added[alone].clone()
            second_alone = second[alone].clone()  # which keeps its layout
            found = product(first[alone].clone(), second_alone, of_one)
            assert torch.equal(found[0], together[place])
