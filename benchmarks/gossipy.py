"""Asynchronous gossip in gossipy (https://github.com/makgyver/gossipy), for comparison with coterie."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import networkx as nx
import torch

DEGREE, SAMPLES, LEARNING_RATE, CLASSES = 20, 16, 0.1, 10
ROUND, DELAY_MAX = 100, 10  # gossipy's ticks per period, and a tenth of them
HIDDEN = 100


def is_installed() -> bool:
    """Return whether gossipy-dfl is installed, as by `make bench`."""
    return find_spec("gossipy") is not None


@cache
def _modules() -> SimpleNamespace:
    """Import gossipy's parts, without its progress bars.

    gossipy imports torchvision for data sets that this benchmark does not use. An empty module replaces it,
    which saves the time to load torchvision and avoids errors if its version does not match torch.
    """
    with patch.dict(sys.modules, {"torchvision": ModuleType("torchvision")}):
        import gossipy
        import gossipy.core
        import gossipy.model.handler
        import gossipy.model.nn
        import gossipy.node
        import gossipy.simul
    gossipy.LOG.setLevel(logging.ERROR)
    gossipy.simul.track = _Rounds
    return SimpleNamespace(
        root=gossipy,
        core=gossipy.core,
        handler=gossipy.model.handler,
        nn=gossipy.model.nn,
        node=gossipy.node,
        simul=gossipy.simul,
    )


class _Rounds:
    """Replacement of a progress bar for gossipy's loop over rounds."""

    def __init__(self, items: Iterable[int], **_: object) -> None:
        self._items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def close(self) -> None:
        """Do nothing, because no bar is shown."""


Shards = Sequence[torch.Tensor]
"""Number of training digits of each client."""


def _digits(clients: int) -> tuple[Shards, Shards]:
    """Return SAMPLES digits for each client, repeated if there are not enough."""
    from sklearn.datasets import load_digits  # takes 100 MB, which must not count for runs of coterie

    x, y = load_digits(return_X_y=True)
    copies = -(-clients * SAMPLES // len(y))
    images = torch.tensor(x / 16, dtype=torch.float32).repeat(copies, 1)
    return images.split(SAMPLES), torch.tensor(y).repeat(copies).split(SAMPLES)


def _nodes(model: str, clients: int, x: Shards, y: Shards) -> dict[int, Any]:
    """Return nodes with digits that merge received models with their own and take a step."""
    parts = _modules()
    inputs = x[0].shape[1]
    is_linear = model == "logistic-regression"
    net = (
        parts.nn.LogisticRegression(inputs, CLASSES)
        if is_linear
        else parts.nn.TorchMLP(inputs, CLASSES, (HIDDEN,))
    )
    handler = parts.handler.TorchModelHandler(
        net,
        torch.optim.SGD,
        {"lr": LEARNING_RATE},
        torch.nn.CrossEntropyLoss(),
        local_epochs=0,  # one batch
        batch_size=SAMPLES,
        create_model_mode=parts.core.CreateModelMode.MERGE_UPDATE,
    )
    graph = nx.random_regular_graph(min(DEGREE, clients - 1), clients, seed=1)
    network = parts.core.StaticP2PNetwork(clients, nx.to_numpy_array(graph))
    return {
        number: parts.node.GossipNode(number, ((x[number], y[number]), None), ROUND, handler.copy(), network)
        for number in range(clients)
    }


def updates_per_s(model: str, clients: int, periods: int) -> float:
    """Return the training steps per second of wall-clock time, without set-up and evaluations."""
    parts = _modules()
    parts.root.set_seed(1)
    done = 0
    update = parts.handler.TorchModelHandler._update

    def counted(handler: object, data: object) -> object:
        nonlocal done
        done += 1
        return update(handler, data)

    simulator = parts.simul.GossipSimulator(
        _nodes(model, clients, *_digits(clients)),
        SimpleNamespace(has_test=lambda: False),
        ROUND,
        parts.core.AntiEntropyProtocol.PUSH,
        delay=parts.core.UniformDelay(0, DELAY_MAX),
    )
    simulator.init_nodes()
    with patch.object(parts.handler.TorchModelHandler, "_update", counted):
        started = time.perf_counter()
        simulator.start(periods)
        seconds = time.perf_counter() - started
    parts.root.CACHE.clear()
    return done / seconds


def accuracies(
    model: str,
    x: Shards,
    y: Shards,
    test: tuple[torch.Tensor, torch.Tensor],
    initial: torch.Tensor,
    periods: int,
    *,
    loss: float = 0.0,
    seed: int = 1,
) -> list[float]:
    """Return the mean test accuracy of all clients after each period.

    initial: flat parameters at the start. loss: share of lost messages.
    """
    parts = _modules()
    parts.root.set_seed(seed)
    curve: list[float] = []

    class Simulator(parts.simul.GossipSimulator):  # type: ignore[name-defined,misc]
        def notify_evaluation(self, _: int, on_user: bool, found: list[dict[str, float]]) -> None:
            curve.append(sum(of_node["accuracy"] for of_node in found) / len(found))

    nodes = _nodes(model, len(x), x, y)
    simulator = Simulator(
        nodes,
        SimpleNamespace(has_test=lambda: True, get_eval_set=lambda: test),
        ROUND,
        parts.core.AntiEntropyProtocol.PUSH,
        drop_prob=loss,
        delay=parts.core.UniformDelay(0, DELAY_MAX),
    )
    simulator.init_nodes()
    for node in nodes.values():
        torch.nn.utils.vector_to_parameters(initial.clone(), node.model_handler.model.parameters())
    simulator.start(periods)
    parts.root.CACHE.clear()
    return curve
