"""SCooL's closed forms maximize their bounds, alternating never lowers these, planted blocks are found."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from protocols.scool import attention, block_model, dirichlet, mixed_membership
from protocols.scool.weights import exclusive_weights, independent_weights

Floats = np.ndarray


class Blocks:
    """A state of the block model for a whole graph, each client's part computed as it would itself."""

    def __init__(
        self, log_likelihoods: Floats, blocks: int, rng: np.random.Generator, temperature: float = 1.0
    ) -> None:
        self.log_likelihoods, self.temperature = log_likelihoods, temperature
        self.clients = clients = len(log_likelihoods)
        self.alpha = rng.uniform(0.5, 2.0, blocks)
        self.probabilities = rng.uniform(0.1, 0.9, (blocks, blocks))
        self.memberships = rng.dirichlet(np.ones(blocks), clients)
        self.concentrations = rng.uniform(0.5, 3.0, (clients, blocks))
        self.weights = rng.uniform(0.05, 0.95, (clients, clients))

    def others(self, client: int) -> Floats:
        return np.arange(self.clients) != client

    def bound(self) -> float:
        return block_model.block_lower_bound(
            self.log_likelihoods,
            self.weights,
            self.memberships,
            self.concentrations,
            self.alpha,
            self.probabilities,
            self.temperature,
        )

    def infer_weights(self, client: int) -> None:
        others = self.others(client)
        odds = block_model.edge_log_odds(
            self.memberships[client], self.memberships[others], self.probabilities
        )
        found = independent_weights(self.log_likelihoods[client, others] + odds, self.temperature)
        self.weights[client, others] = found

    def infer_concentration(self, client: int) -> None:
        self.concentrations[client] = block_model.concentration(self.memberships[client], self.alpha)

    def infer_membership(self, client: int) -> None:
        others = self.others(client)
        self.memberships[client] = block_model.block_membership(
            self.concentrations[client],
            self.memberships[others],
            self.weights[client, others],
            self.weights[others, client],
            self.probabilities,
        )

    def learn_probabilities(self) -> None:
        counts = [
            block_model.edge_counts(
                self.memberships[i], self.memberships[self.others(i)], self.weights[i, self.others(i)]
            )
            for i in range(self.clients)
        ]
        present, possible = np.sum(counts, axis=0)
        self.probabilities = block_model.edge_probabilities(present, possible)

    def learn_alpha(self) -> None:
        logs = dirichlet.expected_log(self.concentrations).mean(axis=0)
        self.alpha = dirichlet.ascend_concentration(self.alpha, logs, 0.5)

    def steps(self) -> list[Callable[[], None]]:
        of_clients = [self.infer_weights, self.infer_concentration, self.infer_membership]
        found: list[Callable[[], None]] = [
            lambda step=step, i=i: step(i)  # type: ignore[misc]
            for i in range(self.clients)
            for step in of_clients
        ]
        return [*found, self.learn_probabilities, self.learn_alpha]


class MixedBlocks(Blocks):
    """The same with a block for each pair and side."""

    def __init__(
        self, log_likelihoods: Floats, blocks: int, rng: np.random.Generator, temperature: float = 1.0
    ) -> None:
        super().__init__(log_likelihoods, blocks, rng, temperature)
        shape = (self.clients, self.clients)
        self.sending, self.receiving = [rng.dirichlet(np.ones(blocks), shape) for _ in range(2)]

    def bound(self) -> float:
        return mixed_membership.mixed_lower_bound(
            self.log_likelihoods,
            self.weights,
            self.sending,
            self.receiving,
            self.concentrations,
            self.alpha,
            self.probabilities,
            self.temperature,
        )

    def infer_weights(self, client: int) -> None:
        others = self.others(client)
        odds = mixed_membership.edge_log_odds(
            self.sending[client, others], self.receiving[client, others], self.probabilities
        )
        found = independent_weights(self.log_likelihoods[client, others] + odds, self.temperature)
        self.weights[client, others] = found

    def infer_concentration(self, client: int) -> None:
        others = self.others(client)
        self.concentrations[client] = mixed_membership.concentration(
            self.alpha, self.sending[client, others], self.receiving[others, client]
        )

    def infer_membership(self, client: int) -> None:
        self.infer_sending(client)
        self.infer_receiving(client)

    def infer_sending(self, client: int) -> None:
        others = self.others(client)
        self.sending[client, others] = mixed_membership.sending_blocks(
            self.concentrations[client],
            self.receiving[client, others],
            self.weights[client, others],
            self.probabilities,
        )

    def infer_receiving(self, client: int) -> None:
        others = self.others(client)
        self.receiving[client, others] = mixed_membership.receiving_blocks(
            dirichlet.expected_log(self.concentrations[others]),
            self.sending[client, others],
            self.weights[client, others],
            self.probabilities,
        )

    def learn_probabilities(self) -> None:
        counts = [
            mixed_membership.edge_counts(
                self.sending[i, self.others(i)],
                self.receiving[i, self.others(i)],
                self.weights[i, self.others(i)],
            )
            for i in range(self.clients)
        ]
        present, possible = np.sum(counts, axis=0)
        self.probabilities = block_model.edge_probabilities(present, possible)


BOTH = pytest.mark.parametrize("kind", [Blocks, MixedBlocks])


def random_likelihoods(clients: int, rng: np.random.Generator) -> Floats:
    return -rng.uniform(0.1, 4.0, (clients, clients))


def is_maximum(value: Callable[[Floats], float], at: Floats, tolerance: float = 1e-6) -> bool:
    """Whether no numerical search from `at`, or from elsewhere, finds more than a tolerance above."""
    found = minimize(lambda x: -value(x), np.zeros_like(at), method="BFGS", options={"gtol": 1e-8})
    return bool(value(at) >= -found.fun - tolerance)


def simplex(logits: Floats) -> Floats:
    return np.exp(log_softmax(logits, axis=-1))


@BOTH
@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_weights_maximise_the_bound(kind: type[Blocks], temperature: float) -> None:
    rng = np.random.default_rng(1)
    state = kind(random_likelihoods(4, rng), 3, rng, temperature)
    others = state.others(2)
    state.infer_weights(2)
    best = state.weights[2, others]

    def value(logits: Floats) -> float:
        state.weights[2, others] = 1 / (1 + np.exp(-logits))
        return state.bound()

    assert is_maximum(value, np.log(best) - np.log1p(-best))


@BOTH
def test_concentrations_maximise_the_bound(kind: type[Blocks]) -> None:
    rng = np.random.default_rng(2)
    state = kind(random_likelihoods(4, rng), 3, rng)
    state.infer_concentration(1)
    best = state.concentrations[1].copy()

    def value(logs: Floats) -> float:
        state.concentrations[1] = np.exp(logs)
        return state.bound()

    assert is_maximum(value, np.log(best))


def test_memberships_maximise_the_bound_of_the_block_model() -> None:
    rng = np.random.default_rng(3)
    state = Blocks(random_likelihoods(5, rng), 3, rng)
    state.infer_membership(0)
    best = state.memberships[0].copy()

    def value(logits: Floats) -> float:
        state.memberships[0] = simplex(logits)
        return state.bound()

    assert is_maximum(value, np.log(best))


@pytest.mark.parametrize("side", ["sending", "receiving"])
def test_blocks_of_a_pair_maximise_the_bound_of_mixed_memberships(side: str) -> None:
    rng = np.random.default_rng(4)
    state = MixedBlocks(random_likelihoods(3, rng), 3, rng)
    others = state.others(1)
    getattr(state, f"infer_{side}")(1)
    table = getattr(state, side)
    best = table[1, others].copy()

    def value(logits: Floats) -> float:
        table[1, others] = simplex(logits.reshape(best.shape))
        return state.bound()

    assert is_maximum(value, np.log(best).ravel())


@BOTH
def test_edge_probabilities_maximise_the_bound(kind: type[Blocks]) -> None:
    rng = np.random.default_rng(5)
    state = kind(random_likelihoods(5, rng), 2, rng)
    state.learn_probabilities()
    best = state.probabilities.copy()

    def value(logits: Floats) -> float:
        state.probabilities = (1 / (1 + np.exp(-logits))).reshape(best.shape)
        return state.bound()

    assert is_maximum(value, (np.log(best) - np.log1p(-best)).ravel())


@pytest.mark.parametrize("temperature", [1.0, 2.0, 9.0])
def test_a_row_of_attention_maximises_its_bound(temperature: float) -> None:
    rng = np.random.default_rng(6)
    losses, prior = rng.uniform(0.1, 4, 5), log_softmax(rng.normal(size=5))
    best = exclusive_weights(-losses + prior, temperature)

    def value(logits: Floats) -> float:
        return attention.attention_lower_bound(-losses, simplex(logits), prior, temperature)

    assert is_maximum(value, np.log(best))
    at_best = attention.attention_lower_bound(-losses, best, prior, temperature)
    assert at_best == pytest.approx(temperature * logsumexp((-losses + prior) / temperature))


@BOTH
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_alternating_steps_never_lower_the_bound(kind: type[Blocks], temperature: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = kind(random_likelihoods(6, rng), 2, rng, temperature)
    before = state.bound()
    for _ in range(5):
        for step in state.steps():
            step()
            after = state.bound()
            assert after >= before - 1e-9 * abs(before)
            before = after


def test_training_the_encoder_raises_the_bound_of_attention() -> None:
    rng = np.random.default_rng(7)
    sketches = rng.normal(size=(6, 16)) / 4
    encoder, optimizer = attention.first_encoder(16, rng), attention.Adam(0.01, weight_decay=0.0)
    losses = rng.uniform(0.1, 4, 6)
    values = []
    for _ in range(50):
        prior = attention.log_attention(encoder, sketches)
        weights = exclusive_weights(-losses + prior, 1.0)
        values.append(attention.attention_lower_bound(-losses, weights, prior))
        gradient = attention.encoder_gradient(encoder, sketches, weights)
        encoder, optimizer = optimizer.ascended(encoder, gradient)
    assert np.all(np.diff(values) > 0)


def test_the_encoders_gradient_is_that_of_the_bound() -> None:
    rng = np.random.default_rng(8)
    sketches, weights = rng.normal(size=(4, 8)), rng.dirichlet(np.ones(4))
    encoder = attention.first_encoder(8, rng)
    gradient = attention.encoder_gradient(encoder, sketches, weights)
    direction, h = rng.normal(size=encoder.size), 1e-6

    def value(at: Floats) -> float:
        return float(weights @ attention.log_attention(at, sketches))

    slope = (value(encoder + h * direction) - value(encoder - h * direction)) / (2 * h)
    assert gradient @ direction == pytest.approx(slope, rel=1e-5)


def test_attention_is_the_softmax_of_inner_products() -> None:
    rng = np.random.default_rng(9)
    sketches, encoder = rng.normal(size=(4, 8)), attention.first_encoder(8, rng)
    encoded = attention._encoded(torch.from_numpy(encoder), torch.from_numpy(sketches)).numpy()
    expected = np.exp(encoded @ encoded[0])
    np.testing.assert_allclose(
        np.exp(attention.log_attention(encoder, sketches)), expected / expected.sum(), rtol=1e-12
    )


def test_our_adam_is_torchs() -> None:
    rng = np.random.default_rng(10)
    ours, optimizer = rng.normal(size=5), attention.Adam(0.1, 0.01)
    theirs = torch.tensor(ours, requires_grad=True)
    reference = torch.optim.Adam([theirs], lr=0.1, weight_decay=0.01, maximize=False)
    for _ in range(4):
        gradient = rng.normal(size=5)
        ours, optimizer = optimizer.ascended(ours, gradient)
        theirs.grad = torch.from_numpy(-gradient)
        reference.step()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-6)


def test_sketches_keep_inner_products() -> None:
    rng = np.random.default_rng(11)
    base = rng.normal(size=5_000)
    updates = [base + 0.5 * rng.normal(size=base.size) for _ in range(2)] + [rng.normal(size=base.size)]
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=base.size))
    first, second, third = [attention.sketch(torch.from_numpy(u), signs, 256) for u in updates]
    cosine = float(np.dot(updates[0], updates[1]) / np.prod([np.linalg.norm(u) for u in updates[:2]]))
    assert float(first @ first) == pytest.approx(1.0)
    assert float(first @ second) == pytest.approx(cosine, abs=0.15)
    assert abs(float(first @ third)) < 0.25
    assert attention.sketch(torch.zeros(10), torch.ones(10), 4).tolist() == [0.0] * 4


def test_the_gradient_of_the_concentration_is_autograds() -> None:
    rng = np.random.default_rng(12)
    alpha, logs = rng.uniform(0.2, 3, 4), dirichlet.expected_log(rng.uniform(0.5, 3, 4))
    parameters = torch.tensor(alpha, requires_grad=True)
    value = torch.lgamma(parameters.sum()) - torch.lgamma(parameters).sum()
    value = value + ((parameters - 1) * torch.from_numpy(logs)).sum()
    value.backward()
    assert parameters.grad is not None
    np.testing.assert_allclose(dirichlet.concentration_gradient(alpha, logs), parameters.grad.numpy())
    assert dirichlet.expected_log_density(alpha, logs) == pytest.approx(value.item())


def test_entropy_of_a_dirichlet_is_torchs() -> None:
    gamma = np.array([0.3, 1.5, 4.0])
    reference = torch.distributions.Dirichlet(torch.from_numpy(gamma)).entropy()
    assert float(dirichlet.entropy(gamma)) == pytest.approx(reference.item())


def planted(groups: int, size: int, inside: float, across: float) -> Floats:
    """log P(D_j | theta_i) where each group's clients have one loss among them and another across."""
    group = np.repeat(np.arange(groups), size)
    return -np.where(group[:, None] == group, inside, across)


def partition_of(labels: Floats) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


def as_at_the_start(state: Blocks) -> None:
    """As clients begin: memberships at random, each client's blocks those of its membership."""
    blocks, clients = state.memberships.shape[1], state.clients
    state.alpha, state.probabilities = (
        np.ones(blocks),
        block_model.first_probabilities(blocks, 0.8, 0.2),
    )
    state.concentrations = 1 + state.memberships
    if isinstance(state, MixedBlocks):
        state.sending = np.repeat(state.memberships[:, None], clients, axis=1)
        state.receiving = np.repeat(state.memberships[None], clients, axis=0)
        state.concentrations = 1 + state.memberships * 2 * (clients - 1)


@pytest.mark.parametrize(("kind", "groups", "given"), [(Blocks, 2, 1), (Blocks, 4, 5), (MixedBlocks, 2, 20)])
@pytest.mark.parametrize("seed", range(4))
def test_planted_blocks_are_recovered(kind: type[Blocks], groups: int, given: int, seed: int) -> None:
    """Beside guessing among ten classes; B and alpha are learned after so many sweeps with given ones."""
    clients = 6 * groups
    rng = np.random.default_rng(seed)
    state = kind(planted(groups, 6, 0.3, 6.0) + np.log(10), groups, rng)
    as_at_the_start(state)
    for sweep in range(given + 10):
        for step in state.steps()[: -2 if sweep < given else None]:
            step()
    truth = np.repeat(np.arange(groups), 6)
    assert partition_of(state.concentrations.argmax(axis=1)) == partition_of(truth)
    same, pairs = truth[:, None] == truth, ~np.eye(clients, dtype=bool)
    assert state.weights[same & pairs].min() > 0.95 and state.weights[~same].max() < 0.05
    assert np.all((state.probabilities > 0.5) == np.eye(groups, dtype=bool))


def test_beside_nothing_the_best_graph_is_the_empty_one() -> None:
    """log P(D_j | theta_i) is never above 0: whoever learns B by eqs. 18 and 24 ends without edges."""
    state = Blocks(planted(2, 6, 0.3, 6.0), 2, np.random.default_rng(1))
    as_at_the_start(state)
    for _ in range(40):
        for step in state.steps():
            step()
    assert state.probabilities.max() == block_model.PROBABILITY_MIN
    assert state.weights[~np.eye(12, dtype=bool)].max() < 0.01


@pytest.mark.parametrize(("inside", "across", "mass"), [(0.3, 6.0, 0.989), (1.0, 3.0, 0.747)])
def test_the_authors_step_gives_the_mass_that_was_measured_on_it(
    inside: float, across: float, mass: float
) -> None:
    """60 clients in 3 groups, 2 blocks, B .8/.2, alpha 1; a client counts for its own row.

    From equal memberships, which stay so. From random ones, as the measurement was, the second mass is
    between .64 and .81: two blocks cannot tell three groups apart.
    """
    state = Blocks(planted(3, 20, inside, across), 2, np.random.default_rng(1))
    state.alpha, state.probabilities = np.ones(2), block_model.first_probabilities(2, 0.8, 0.2)
    state.memberships, state.concentrations = np.full((60, 2), 0.5), np.full((60, 2), 1.5)
    for _ in range(2):
        for infer in (state.infer_weights, state.infer_concentration, state.infer_membership):
            for client in range(60):
                infer(client)
    group = np.repeat(np.arange(3), 20)
    same = group[:, None] == group
    rows = np.where(np.eye(60, dtype=bool), 1 / (1 + np.exp(inside)), state.weights)
    assert (rows * same).sum() / rows.sum() == pytest.approx(mass, abs=0.01)
    kept = np.argsort(-rows, axis=1)[:, :12]
    assert np.all(group[kept] == group[:, None])


finite = st.floats(-50, 50, allow_nan=False)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_rows_and_normalisations_hold(blocks: int, peers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    others, own = rng.dirichlet(np.full(blocks, 0.3), peers), rng.dirichlet(np.full(blocks, 0.3))
    logs = dirichlet.expected_log(rng.uniform(0.1, 5, (peers, blocks)))
    outgoing, incoming = rng.uniform(0, 1, (2, peers))
    probabilities = rng.uniform(0.001, 0.999, (blocks, blocks))
    gamma = block_model.concentration(own, rng.uniform(0.1, 3, blocks))
    membership = block_model.block_membership(gamma, others, outgoing, incoming, probabilities)
    sending = mixed_membership.sending_blocks(gamma, others, outgoing, probabilities)
    receiving = mixed_membership.receiving_blocks(logs, others, outgoing, probabilities)
    for rows in (membership, sending, receiving):
        assert np.all(rows >= 0)
        np.testing.assert_allclose(rows.sum(axis=-1), 1.0)
    present, possible = block_model.edge_counts(own, others, outgoing)
    assert present.sum() == pytest.approx(outgoing.sum()) and possible.sum() == pytest.approx(peers)
    learned = block_model.edge_probabilities(present, possible)
    assert np.all((learned > 0) & (learned < 1))


@given(st.lists(finite, min_size=1, max_size=8), st.floats(0.1, 10))
def test_weights_are_shares_or_probabilities(evidence: list[float], temperature: float) -> None:
    values = np.array(evidence)
    shares, single = exclusive_weights(values, temperature), independent_weights(values, temperature)
    assert shares.sum() == pytest.approx(1.0) and np.all(shares >= 0)
    assert np.all((single >= 0) & (single <= 1))
    ranked = np.argsort(values, kind="stable")
    assert np.all(np.diff(shares[ranked]) >= 0) and np.all(np.diff(single[ranked]) >= 0)


@given(st.floats(0.01, 20), st.floats(0.01, 20), st.floats(-8, -0.01), st.floats(-8, -0.01))
def test_a_step_of_the_concentration_never_lowers_the_bound(
    first: float, second: float, log_first: float, log_second: float
) -> None:
    alpha, logs = np.array([first, second]), np.array([log_first, log_second])
    moved = dirichlet.ascend_concentration(alpha, logs, 10.0)
    assert np.all(moved > 0)
    assert dirichlet.expected_log_density(moved, logs) >= dirichlet.expected_log_density(alpha, logs)
