"""Tiny simulations of decoupled models, and their training in a loop of its own."""

import numpy as np
import torch

from actors.transport import InMemoryTransport
from protocols.framework.context import ClientContext
from protocols.shared.server_rounds import RoundServer, RoundSettings
from sim.core.simulation import Simulation
from sim.learning.architecture import TrainingPass
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
TWO_BACKBONES = 'model.backbones=["small-mlp", "deep-mlp"]'
CLASSES, FEATURES = 10, 8
HEAD = CLASSES * (FEATURES + 1)


def columns(world: Simulation, index: int, name: str) -> slice:
    """Where a part lies in a client's parameters."""
    return learner(world, index).compute.settings.architecture.part(name)  # type: ignore[attr-defined]


def model(world: Simulation, index: int) -> np.ndarray:
    """A client's parameters [P]."""
    return learner(world, index).params.numpy()


def initial(world: Simulation) -> list[np.ndarray]:
    """Everybody's initial parameters."""
    return [learner(world, i).compute.initial().numpy() for i in range(len(world.clients))]


def own_data(world: Simulation, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's training samples, on the host."""
    data = world.engine.data.train
    x, y = data.gather(np.array([index]), np.arange(data.counts[index])[None])
    return x[0].cpu(), y[0].cpu()


def samples(world: Simulation) -> np.ndarray:
    """How many training samples each client has."""
    return world.engine.data.train.counts


def trained(world: Simulation, index: int, flat: np.ndarray, steps: int = 1) -> np.ndarray:
    """Parameters after gradient steps of .1 on all samples of a client."""
    settings = learner(world, index).compute.settings  # type: ignore[attr-defined]
    x, y = own_data(world, index)
    x, y = torch.cat([x] * settings.views), torch.cat([y] * settings.views)
    architecture, parameters = settings.architecture, torch.from_numpy(flat.copy())
    fixed = [part.name for part in architecture.untrained]
    for _ in range(steps):
        named = {name: view.clone() for name, view in architecture.unflatten(parameters).items()}
        leaves = {name: named[name].requires_grad_() for name in named if name not in fixed}
        training = TrainingPass(architecture, {name: named[name] for name in fixed})
        loss = settings.objective(training, named, x, y)
        slopes = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        with torch.no_grad():
            after = {
                name: leaf - 0.1 * slope for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
            }
            after |= training.untrained
            parameters = torch.cat([after[part.name].flatten() for part in architecture.slices])
    return parameters.numpy()


class Known:
    """Membership of a server that knows these clients."""

    on_change = None

    def __init__(self, peers: list[str]) -> None:
        self.peers = peers


def lone_server(kind: type[RoundServer], settings: RoundSettings, *clients: str) -> RoundServer:
    """A server that is not running."""
    context = ClientContext(
        InMemoryTransport(),
        Known(list(clients)),  # type: ignore[arg-type]
        np.random.default_rng(0),
        0,
        lambda who, name, value: None,
    )
    return kind("server", context, settings, initial=None)  # type: ignore[arg-type]
