"""Dada: the graph's step against autograd, its minimum against a search, and that clusters are found."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.message import Envelope
from protocols.decentralized.dada import Dada, Edge, GraphQuestion, graph_step
from protocols.framework.client import Client
from sim.core.simulation import Simulation
from tests.draws import examples
from tests.protocols.worlds import QUADRATIC, churn, learner, messages, optima, params, ran

DADA = ("protocol.name=dada", "clients.count=6", "data.clusters=2", "data.curvatures=[1.0]")
LONG = ("run.duration=60 s", "run.evaluate_every=60 s")


def objective(
    w: torch.Tensor, costs: torch.Tensor, distances: torch.Tensor, mu: tuple[float, ...]
) -> torch.Tensor:
    """J as the paper has it, of the upper triangle w [n (n - 1)/2]; costs [n]: c_k L_k; distances [n, n]."""
    mu_1, mu_2, ridge, delta = mu
    n = len(costs)
    rows, columns = np.triu_indices(n, 1)
    whole = torch.zeros((n, n), dtype=w.dtype)
    whole = whole.index_put((torch.tensor(rows), torch.tensor(columns)), w)
    whole = whole + whole.T
    degrees = whole.sum(dim=1)
    fit = (degrees * costs).sum() + mu_1 / 2 * (w * distances[rows, columns]).sum()
    return fit + mu_2 * (ridge * w.square().sum() - (degrees + delta).log().sum())


def problem(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symmetric weights, costs, and distances of some clients."""
    generator = np.random.default_rng(seed)
    weights = np.triu(generator.random((n, n)) * (generator.random((n, n)) < 0.6), 1)
    models = generator.normal(size=(n, 2))
    distances = ((models[:, None] - models[None]) ** 2).sum(axis=2)
    return weights + weights.T, generator.random(n), distances


def stepped(
    w: np.ndarray, costs: np.ndarray, distances: np.ndarray, k: int, peers: list[int], mu: tuple[float, ...]
) -> np.ndarray:
    """The weights after client k's step for these peers."""
    degrees = w.sum(axis=1)
    moved = graph_step(
        w[k, peers], degrees[k], degrees[peers], costs[k] + costs[peers], distances[k, peers], *mu
    )
    w = w.copy()
    w[k, peers] = w[peers, k] = moved
    return w


MU = st.tuples(*[st.floats(0.1, 3.0) for _ in range(4)])


@examples(40)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 6), mu=MU)
def test_the_step_goes_down_the_objective_as_autograd_does(seed: int, n: int, mu: tuple[float, ...]) -> None:
    w, costs, distances = problem(seed, n)
    triangle = np.triu_indices(n, 1)
    peers = list(range(1, n))
    flat = torch.tensor(w[triangle], requires_grad=True)
    terms = torch.tensor(costs), torch.tensor(distances)
    before = objective(flat, *terms, mu)
    [slope] = torch.autograd.grad(before, flat)
    after = stepped(w, costs, distances, 0, peers, mu)
    _, mu_2, ridge, delta = mu
    rate = 1 / (mu_2 * (n / delta**2 + 2 * ridge))
    expected = np.maximum(0, w[0, 1:] - rate * slope.numpy()[: n - 1])  # the first row of the triangle
    np.testing.assert_allclose(after[0, 1:], expected, atol=1e-12)
    assert objective(torch.tensor(after[triangle]), *terms, mu) <= before + 1e-12


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("of", ["costs", "distances"])
def test_a_peer_that_diverged_gets_no_weight_and_changes_no_other(value: float, of: str) -> None:
    weights, degrees, numbers = (
        [0.5, 0.5, 0.25],
        [1.0, 2.0, 3.0],
        {"costs": [0.1] * 3, "distances": [0.2] * 3},
    )
    usual = graph_step(weights, 1.25, degrees, *numbers.values(), 1.0, 1.0, 1.0, 1.0)
    numbers[of][1] = value
    found = graph_step(weights, 1.25, degrees, *numbers.values(), 1.0, 1.0, 1.0, 1.0)
    assert (usual > 0).all() and found.tolist() == [usual[0], 0.0, usual[2]]


@pytest.mark.long
def test_steps_of_random_clients_find_the_minimum() -> None:
    """Beside projected gradient descent on all weights at once."""
    (w, costs, distances), mu, n = problem(3, 5), (1.0, 0.7, 0.5, 0.8), 5
    triangle, terms = np.triu_indices(n, 1), (torch.tensor(costs), torch.tensor(distances))
    flat = torch.tensor(w[triangle], requires_grad=True)
    for _ in range(6000):
        [slope] = torch.autograd.grad(objective(flat, *terms, mu), flat)
        flat = (flat - 0.05 * slope).clamp(min=0).detach().requires_grad_()
    generator = np.random.default_rng(0)
    for _ in range(3000):
        k = int(generator.integers(n))
        others = [peer for peer in generator.permutation(n).tolist() if peer != k]
        w = stepped(w, costs, distances, k, others[:2], mu)
    np.testing.assert_allclose(w[triangle], flat.detach().numpy(), atol=2e-3)
    assert (w[triangle] == 0).any() and (w[triangle] > 0.01).any(), "a sparse graph"


def client(world: Simulation, index: int) -> Dada:
    found = learner(world, index)
    assert isinstance(found, Dada)
    return found


def graph(world: Simulation) -> np.ndarray:
    """[n, n]."""
    ends = [client(world, i) for i in range(len(world.clients))]
    return np.array([[one.edges[other.name].weight for other in ends] for one in ends])


def inside(world: Simulation) -> np.ndarray:
    """Whether two different clients are of one cluster, [n, n]."""
    assert world.clusters is not None
    same = np.equal.outer(world.clusters, world.clusters)
    np.fill_diagonal(same, False)
    return same


def test_before_there_is_a_graph_everybody_trains_alone() -> None:
    with ran(QUADRATIC, *DADA, "protocol.graph_every=100", "run.iterations=12", *LONG) as world:
        a, mu = optima(world)
        np.testing.assert_allclose(params(world), (1 - (1 - 0.1 * a) ** 12) * mu, rtol=1e-4, atol=1e-6)
        assert world.network.counts.sent == 0


@pytest.mark.long
@pytest.mark.parametrize("bad", [False, True])
def test_the_graph_is_that_of_the_clusters_whatever_is_lost(bad: bool) -> None:
    """Optima are 2 to 4 apart; a client that is 20 times slower holds up nobody."""
    weather = ("network.link=datagram", "network.loss=0.3", "devices.override=[{clients=[5], slowdown=20}]")
    with ran(QUADRATIC, *DADA, "protocol.mu_1=2.0", *LONG, *(weather if bad else ())) as world:
        weights, same = graph(world), inside(world)
        fast = slice(0, 5 if bad else 6)
        assert (weights[fast, fast][same[fast, fast]] > 0.05).all()
        others = ~same[fast, fast] & ~np.eye(5 if bad else 6, dtype=bool)
        assert (weights[fast, fast][others] == 0).all()
        # 120 iterations' time, of which a graph's step takes that of a loss.
        assert all(112 <= client(world, i).iterations <= 120 for i in range(5))
        if not bad:
            np.testing.assert_array_equal(weights, weights.T)
            _, mu = optima(world)
            assert np.abs(params(world) - mu).max() < 0.02


def test_models_are_pulled_towards_those_of_collaborators() -> None:
    """With fixed weights the models end at the minimum of J in x, a linear system."""
    frozen = ("protocol.graph_every=100000", "data.clusters=3", "protocol.mu_1=0.7", "network.latency=1 ms")
    weights = np.array([[0, 1, 0.5], [1, 0, 0], [0.5, 0, 0]])

    def set_up(world: Simulation) -> None:
        for number, one in enumerate(world.clients):
            fresh = one.fresh

            def started(fresh=fresh, number=number):  # type: ignore[no-untyped-def]
                made = fresh()
                made.edges = {f"client-{k}": Edge(1, "", weights[number, k]) for k in range(3) if k != number}
                return made

            one.fresh = started

    with ran(QUADRATIC, *DADA, *frozen, "clients.count=3", "run.duration=100 s", prepare=set_up) as world:
        _, mu = optima(world)
        degrees = np.diag(weights.sum(axis=1))
        expected = np.linalg.solve(degrees + 0.7 * (degrees - weights), degrees @ mu)
        np.testing.assert_allclose(params(world), expected, atol=1e-3)


def test_of_two_views_of_an_edge_the_later_holds() -> None:
    old, mine, theirs = Edge(1, "b", 0.3), Edge(2, "a", 0.1), Edge(2, "b", 0.0)
    assert old.later(mine) == mine.later(old) == mine
    assert mine.later(theirs) == theirs.later(mine) == theirs


def test_the_ends_of_a_pair_agree_again_after_losses() -> None:
    lossy = ("network.link=datagram", "network.loss=0.3", "protocol.graph_every=3", "run.duration=40 s")
    with ran(QUADRATIC, *DADA, *lossy, "run.evaluate_every=40 s") as world:
        weights = graph(world)
        assert (np.abs(weights - weights.T) > 0).mean() < 0.4, "but for what is on its way, or just lost"
        assert len(messages(world, "EdgeNews")) > 0


@pytest.mark.long
def test_who_goes_is_forgotten_and_who_comes_finds_its_place() -> None:
    text = QUADRATIC + churn("leave", 0, "20 s") + churn("join", 4, "25 s")
    with ran(text, *DADA, "protocol.mu_1=2.0", *LONG) as world:
        assert "client-0" not in client(world, 1).weights()
        newcomer = client(world, 4).weights()
        assert world.clusters is not None
        friends = [f"client-{k}" for k in range(1, 6) if k != 4 and world.clusters[k] == world.clusters[4]]
        assert {name for name, weight in newcomer.items() if float(weight) > 0} == set(friends)


def test_who_misses_questions_but_is_heard_of_is_not_suspected() -> None:
    """Of client 0's questions to client 1 none gets there; what that has to say does."""
    suspected: list[str] = []

    def losing(simulation: Simulation) -> None:
        send = simulation.network.send

        def lossy(envelope: Envelope) -> None:
            ends = (envelope.sender, envelope.receiver)
            if not (isinstance(envelope.message, GraphQuestion) and ends == ("client-0", "client-1")):
                send(envelope)

        simulation.network.send = lossy  # type: ignore[method-assign]
        for client in simulation.clients:
            client.fresh = partial(noted, client.fresh)

    def noted(fresh: Callable[[], Client]) -> Client:
        made = fresh()
        made.suspect = suspected.append  # type: ignore[method-assign]
        return made

    with ran(QUADRATIC, *DADA, *LONG, "clients.count=3", "protocol.graph_every=2", prepare=losing) as world:
        assert len(messages(world, "GraphQuestion")) > 20
        assert suspected == []
