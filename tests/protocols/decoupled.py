"""Tiny simulations of decoupled models, and their training in a loop of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from protocols.learner import Surroundings
from protocols.server_rounds import RoundServer, RoundSettings
from sim.build import learning
from sim.learning import backbones
from sim.simulation import Simulation
from tests.protocols.worlds import DIGITS, learner

# A batch holds all samples of a client. Clients have unequal numbers of samples, and some lack classes.
DECOUPLED = (
    DIGITS.replace(
        '{ kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }',
        '{ kind = "dirichlet", alpha = 0.3 }',
    )
    .replace('"logistic-regression"', '"decoupled"\nbackbones = ["small-mlp"]\nfeatures = 8')
    .replace("batch_size = 4", "batch_size = 2000")
    .replace('duration = "8 s"', 'duration = "60 s"')
)
CLASSES, FEATURES = 10, 8
HEAD = CLASSES * (FEATURES + 1)


def deal_two_backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other client gets another backbone. (Scenarios have one for digits only: others need images.)"""

    def wide(input_shape: tuple[int, ...], features: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, features))

    def dealt(assign: str, names: Sequence[str], count: int, *others: object) -> list[str]:
        return [("small-mlp", "wide")[i % 2] for i in range(count)]

    monkeypatch.setitem(backbones.BACKBONES, "wide", wide)  # type: ignore[attr-defined]
    monkeypatch.setattr(learning, "client_backbones", dealt)


def columns(world: Simulation, index: int, name: str) -> slice:
    """Where a part lies in a client's parameters."""
    return learner(world, index).compute.settings.architecture.part(name)  # type: ignore[attr-defined]


def model(world: Simulation, index: int) -> np.ndarray:
    """A client's parameters [P]."""
    return learner(world, index).params.tensor().numpy()


def initial(world: Simulation) -> list[np.ndarray]:
    """Everybody's initial parameters."""
    return [learner(world, i).compute.initial().tensor().numpy() for i in range(len(world.clients))]


def own_data(world: Simulation, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's training samples."""
    data = world.engine.data.train
    x, y = data.gather(np.array([index]), np.arange(data.counts[index])[None])
    return x[0], y[0]


def samples(world: Simulation) -> np.ndarray:
    """How many training samples each client has."""
    return world.engine.data.train.counts


def trained(world: Simulation, index: int, flat: np.ndarray, steps: int = 1) -> np.ndarray:
    """Parameters after gradient steps of .1 on all samples of a client."""
    settings = learner(world, index).compute.settings  # type: ignore[attr-defined]
    x, y = own_data(world, index)
    x, y = torch.cat([x] * settings.views), torch.cat([y] * settings.views)
    parameters = torch.from_numpy(flat.copy())
    for _ in range(steps):
        slope = torch.func.grad(lambda p: settings.objective(settings.architecture, p, x, y))(parameters)
        parameters = parameters - 0.1 * slope
    return parameters.numpy()


class Known:
    """Membership of a server that knows these clients."""

    on_change = None

    def __init__(self, peers: list[str]) -> None:
        self.peers = peers


def lone_server(kind: type[RoundServer], settings: RoundSettings, *clients: str) -> RoundServer:
    """A server that is not running."""
    surroundings = Surroundings(
        None,  # type: ignore[arg-type]
        Known(list(clients)),  # type: ignore[arg-type]
        clients,
        np.random.default_rng(0),
        0,
        lambda name, value: None,
    )
    return kind("server", surroundings, settings, initial=None)  # type: ignore[arg-type]
