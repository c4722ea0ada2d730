"""pFedHN: its rounds against autograd; clients get their own."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from protocols.federated.pfedhn import PFedHNServer
from sim.core.simulation import Simulation
from tests.protocols.worlds import QUADRATIC, churn, learner, optima, params, ran

HYPER = ("protocol.name=pfedhn", "data.clusters=4", "protocol.embedding=4", "protocol.hidden=[16, 8]")
WIDTHS = (4, 16, 8, 3)


def network(phi: torch.Tensor, widths: tuple[int, ...] = WIDTHS) -> nn.Sequential:
    """The same hypernetwork, of torch's own layers."""
    layers: list[nn.Module] = []
    for into, out in itertools.pairwise(widths):
        layers += [nn.Linear(into, out, dtype=phi.dtype), nn.ReLU()]
    made = nn.Sequential(*layers[:-1])
    nn.utils.vector_to_parameters(phi, made.parameters())
    return made


def server(world: Simulation) -> PFedHNServer:
    found = world.supervisor.running["server"]
    assert isinstance(found, PFedHNServer)
    return found


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.5, 0.1)])
def test_rounds_are_those_of_the_papers_algorithm_1(momentum: float, decay: float) -> None:
    """With a client's update in its gradient's place; steps are those of torch's SGD."""
    starts: list[tuple[torch.Tensor, dict[str, torch.Tensor]]] = []

    def noting(world: Simulation) -> None:
        kind = PFedHNServer.task

        def task(self: PFedHNServer, client: str, number: int) -> object:
            made = kind(self, client, number)
            if len(self.embeddings) == 4 and not starts:
                embeddings = {name: each.tensor().cpu() for name, each in self.embeddings.items()}
                starts.append((self.phi.tensor().cpu(), embeddings))
            return made

        monkey.setattr(PFedHNServer, "task", task)

    monkey = pytest.MonkeyPatch()
    options = ("protocol.local_steps=3", "protocol.outer_rate=0.2", "run.iterations=5", "run.duration=100 s")
    options += (f"protocol.outer_momentum={momentum}", f"protocol.outer_decay={decay}")
    try:
        with ran(QUADRATIC, *HYPER, *options, prepare=noting) as world:
            a, mu = (torch.tensor(each, dtype=torch.float64) for each in optima(world))
            [(phi, embeddings)] = starts
            made = network(phi.double())
            vs = [embeddings[f"client-{i}"].double().requires_grad_() for i in range(4)]
            sgd = torch.optim.SGD([*made.parameters(), *vs], lr=0.2, momentum=momentum, weight_decay=decay)
            for _ in range(4):
                sgd.zero_grad()
                for i, v in enumerate(vs):
                    theta = made(v)
                    trained = mu[i] + (1 - 0.1 * a[i]) ** 3 * (theta - mu[i])
                    theta.backward((theta - trained).detach())
                for each in made.parameters():
                    each.grad /= 4  # the mean over clients, each of which has its own embedding
                sgd.step()
            expected = torch.stack([made(v) for v in vs]).detach().numpy()
            np.testing.assert_allclose(params(world), expected, atol=1e-5)
    finally:
        monkey.undo()


@pytest.mark.long
def test_every_client_gets_a_model_of_its_own() -> None:
    """Optima that are far apart: no common model is as near to all."""
    options = (
        "protocol.local_steps=2",
        "protocol.outer_rate=0.5",
        "run.iterations=200",
        "run.duration=400 s",
    )
    with ran(QUADRATIC, *HYPER, *options, "run.evaluate_every=400 s") as world:
        _, mu = optima(world)
        apart = np.linalg.norm(params(world) - mu, axis=1)
        assert apart.max() < 0.25 * np.linalg.norm(mu - mu.mean(axis=0), axis=1).min()


def test_only_models_travel_and_a_newcomer_has_an_embedding() -> None:
    text = QUADRATIC + churn("join", 3, "6.1 s") + churn("crash", 0, "3.1 s")
    options = ("protocol.patience=2 s", "run.duration=20 s", 'protocol.broadcast="all"')
    with ran(text, *HYPER, *options) as world:
        assert sorted(server(world).embeddings) == [f"client-{i}" for i in range(4)]
        kinds = set(world.network.counts.by_type)
        assert {"Assignment", "Contribution", "GlobalModel"} <= kinds
        assert kinds <= {"Assignment", "Contribution", "GlobalModel", "Hello", "AreYouThere", "Ready"}
        assert learner(world, 3).iterations > 5
