"""Asynchronous gossip in gossipy (https://github.com/makgyver/gossipy), to measure ours beside it."""

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
    """Whether gossipy-dfl is there, as `make bench` installs it."""
    return find_spec("gossipy") is not None


@cache
def _modules() -> SimpleNamespace:
    """gossipy's parts, without its progress bars.

    It wants torchvision for data sets that are not used here. An empty module in its place spares gossipy
    torchvision's loading, and an installation whose torchvision does not match torch.
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
    """What gossipy's loop over rounds needs of a progress bar."""

    def __init__(self, items: Iterable[int], **_: object) -> None:
        self._items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def close(self) -> None:
        """Nothing was shown."""


Shards = Sequence[torch.Tensor]
"""Of each client."""


def _digits(clients: int) -> tuple[Shards, Shards]:
    """So many digits for each client, repeated where there are not enough."""
    from sklearn.datasets import load_digits  # takes 100 MB, which runs of ours are not to be charged with

    x, y = load_digits(return_X_y=True)
    copies = -(-clients * SAMPLES // len(y))
    images = torch.tensor(x / 16, dtype=torch.float32).repeat(copies, 1)
    return images.split(SAMPLES), torch.tensor(y).repeat(copies).split(SAMPLES)


def _nodes(model: str, clients: int, x: Shards, y: Shards) -> dict[int, Any]:
    """Nodes with digits of their own, which merge what they get with their own model and take a step."""
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
    """Steps of training per second of wall time, without set-up, and nothing evaluated."""
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
    """Mean test accuracy of all clients after each period.

    initial: the flat parameters that all start from; loss: the share of messages that get lost.
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
