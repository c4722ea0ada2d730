"""One client's part of the graph's posterior under each prior, and its updates from others' messages."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from protocols.framework.client import Client
from protocols.framework.per_peer import PerPeer
from protocols.framework.vectors import Vector
from protocols.scool import attention, block_model, dirichlet, mixed_membership
from protocols.scool.messages import Beliefs
from protocols.scool.settings import SCooLSettings
from protocols.scool.special import softmax
from protocols.scool.weights import exclusive_weights, independent_weights

Floats = NDArray[np.float64]


class Prior(ABC):
    """Row of one client in the posterior.

    `weights`: w_ij of all evaluated peers that are up; `own_weight`: the weight of the client's own gradient,
    relative to these weights.
    """

    fixed = False
    """True if the weights are given, so no inference is needed."""
    judges_itself = False
    """True if inference needs the client's likelihood of its own data."""

    def __init__(self, client: Client, settings: SCooLSettings) -> None:
        self.client = client
        self.settings = settings
        self.weights = PerPeer[float](client)
        self.own_weight = 1.0

    def sketched(self, model: Vector) -> Vector | None:
        """Return a sketch of the client's model for its peers; None for priors that do not use models."""
        return None

    @abstractmethod
    def infer(self, likelihoods: Mapping[str, float], own: float) -> dict[str, float]:
        """Run the E-step: set new weights of these peers; return the evidence by peer (logit or log mass).

        likelihoods: log P(D_j | theta_i) by peer; own: the log likelihood of the client's own data.
        """

    def beliefs(self, peer: str) -> Beliefs:
        """Return the beliefs of this client that `peer` needs."""
        return self.beliefs_of_all([peer])[peer]

    def beliefs_of_all(self, peers: Sequence[str]) -> dict[str, Beliefs]:
        """Return the beliefs of this client that each peer needs, by peer."""
        return {peer: Beliefs(self.weights.get(peer)) for peer in peers}

    @abstractmethod
    def receive(self, peer: str, beliefs: Beliefs) -> None:
        """Record the beliefs of `peer`."""

    def statistics(self) -> Floats | None:
        """Return the statistics [n] whose average over all clients `learn` takes; None if there are none."""
        return None

    def learn(self, average: Floats) -> None:
        """Run the M-step of the prior's parameters, from the average of all clients' statistics.

        Raises NotImplementedError for a prior without statistics.
        """
        raise NotImplementedError(f"{type(self).__name__} has no statistics")

    def gossiped(self) -> tuple[Floats | None, int]:
        """Return the encoder [m] that clients gossip, or None, and its number of training steps."""
        return None, 0

    def merge(self, encoder: Floats, steps: int) -> None:
        """Average with another client's encoder, weighted by their numbers of training steps."""
        raise NotImplementedError(f"{type(self).__name__} has no encoder")


class FixedPrior(Prior):
    """Dirac prior: Metropolis-Hastings weights, from the degrees in the topology."""

    fixed = True

    def infer(self, likelihoods: Mapping[str, float], own: float) -> dict[str, float]:
        return {}

    def receive(self, peer: str, beliefs: Beliefs) -> None:
        pass


class BlockPrior(Prior):
    """Stochastic block model: Omega_i, gamma_i, and the client's own estimates of alpha and B."""

    def __init__(self, client: Client, settings: SCooLSettings) -> None:
        super().__init__(client, settings)
        self.rng = rng = client.rng
        blocks = settings.blocks
        self.alpha = np.full(blocks, settings.alpha)
        self.probabilities = block_model.first_probabilities(blocks, settings.inside, settings.across)
        self.membership = rng.dirichlet(np.ones(blocks))  # equal ones would always stay equal
        self.gamma = block_model.concentration(self.membership, self.alpha)
        self.known = PerPeer[Floats](client)
        self.incoming = PerPeer[float](client)

    def beliefs_of_all(self, peers: Sequence[str]) -> dict[str, Beliefs]:
        return {peer: Beliefs(self.weights.get(peer), self.membership) for peer in peers}

    def receive(self, peer: str, beliefs: Beliefs) -> None:
        assert beliefs.membership is not None
        self.known[peer] = beliefs.membership
        if beliefs.weight is not None:
            self.incoming[peer] = beliefs.weight

    def infer(self, likelihoods: Mapping[str, float], own: float) -> dict[str, float]:
        names = [peer for peer in likelihoods if peer in self.known]
        if not names:
            return {}
        found, others = np.array([likelihoods[peer] for peer in names]), self.rows(names)
        evidence = found
        # The closed form raises the bound while the others stay unchanged. If all change at once, groups that
        # share a block always leave it together, for the same one.
        moves = self.rng.random() < self.settings.moving
        for _ in range(self.settings.sweeps):
            evidence = found + block_model.edge_log_odds(self.membership, others, self.probabilities)
            weights = independent_weights(evidence, self.settings.temperature)
            self.weights |= dict(zip(names, weights.tolist(), strict=True))
            if not moves:
                break
            self.gamma = block_model.concentration(self.membership, self.alpha)
            pairs = list(self.weights)
            outgoing = np.array([self.weights[peer] for peer in pairs])
            incoming = np.array([self.incoming.get(peer, np.nan) for peer in pairs])
            self.membership = block_model.block_membership(
                self.gamma, self.rows(pairs), outgoing, incoming, self.probabilities
            )
        return dict(zip(names, evidence.tolist(), strict=True))

    def rows(self, peers: Sequence[str]) -> Floats:
        """Return what these peers' messages state of their memberships [n, M], as in `Beliefs`."""
        return np.stack([self.known[peer] for peer in peers])

    def statistics(self) -> Floats | None:
        if not self.weights:
            return None
        pairs = list(self.weights)
        outgoing = np.array([self.weights[peer] for peer in pairs])
        return self.summed(*block_model.edge_counts(self.membership, self.rows(pairs), outgoing))

    def summed(self, present: Floats, possible: Floats) -> Floats:
        """Return both edge counts [M, M] and the expected log of pi_i [M], as one array [2 M M + M]."""
        return np.concatenate([present.ravel(), possible.ravel(), dirichlet.expected_log(self.gamma)])

    def learn(self, average: Floats) -> None:
        blocks = self.settings.blocks
        present, possible, logs = np.split(average, [blocks * blocks, 2 * blocks * blocks])
        counts = [part.reshape(blocks, blocks) for part in (present, possible)]
        self.probabilities = block_model.edge_probabilities(*counts)
        self.alpha = dirichlet.ascend_concentration(self.alpha, logs, self.settings.alpha_rate)


class MixedPrior(BlockPrior):
    """Mixed memberships: gamma_i, and for each peer phi_{i->j} and phi_{i<-j}."""

    def __init__(self, client: Client, settings: SCooLSettings) -> None:
        super().__init__(client, settings)
        self.sending = PerPeer[Floats](client)
        self.receiving = PerPeer[Floats](client)
        self.assigned = PerPeer[Floats](client)

    def beliefs_of_all(self, peers: Sequence[str]) -> dict[str, Beliefs]:
        logs = dirichlet.expected_log(self.gamma)
        return {peer: Beliefs(self.weights.get(peer), logs, self.receiving.get(peer)) for peer in peers}

    def receive(self, peer: str, beliefs: Beliefs) -> None:
        super().receive(peer, beliefs)
        if beliefs.assigned is not None:
            self.assigned[peer] = beliefs.assigned

    def infer(self, likelihoods: Mapping[str, float], own: float) -> dict[str, float]:
        names = [peer for peer in likelihoods if peer in self.known]
        if not names:
            return {}
        for peer in names:
            if peer not in self.sending:
                self.sending[peer] = self.membership
                self.receiving[peer] = softmax(self.known[peer])
        found, logs = np.array([likelihoods[peer] for peer in names]), self.rows(names)
        sending, receiving = [
            np.stack([table[peer] for peer in names]) for table in (self.sending, self.receiving)
        ]
        evidence, weights = found, np.zeros(len(names))
        for _ in range(self.settings.sweeps):
            evidence = found + mixed_membership.edge_log_odds(sending, receiving, self.probabilities)
            weights = independent_weights(evidence, self.settings.temperature)
            sending = mixed_membership.sending_blocks(self.gamma, receiving, weights, self.probabilities)
            receiving = mixed_membership.receiving_blocks(logs, sending, weights, self.probabilities)
            self.sending |= dict(zip(names, sending, strict=True))
            self.gamma = mixed_membership.concentration(
                self.alpha, np.stack(list(self.sending.values())), self.received()
            )
        self.weights |= dict(zip(names, weights.tolist(), strict=True))
        self.receiving |= dict(zip(names, receiving, strict=True))
        return dict(zip(names, evidence.tolist(), strict=True))

    def received(self) -> Floats:
        """Return phi_{j<-i} [n, M], the posterior of this client's block, of the peers that have sent it."""
        return np.array(list(self.assigned.values())).reshape(-1, self.settings.blocks)

    def statistics(self) -> Floats | None:
        if not self.weights:
            return None
        pairs = list(self.weights)
        sending, receiving = [
            np.stack([table[peer] for peer in pairs]) for table in (self.sending, self.receiving)
        ]
        outgoing = np.array([self.weights[peer] for peer in pairs])
        return self.summed(*mixed_membership.edge_counts(sending, receiving, outgoing))


class AttentionPrior(Prior):
    """Attention: the encoder phi, and the sketches of the peers' updates.

    `infer` also trains the encoder, by a step on the client's own row (the M-step of eq. 31).
    """

    judges_itself = True

    def __init__(self, client: Client, settings: SCooLSettings) -> None:
        super().__init__(client, settings)
        common = np.random.Generator(np.random.Philox(client.context.shared_seed))
        self.signs = client.vector(common.choice([-1.0, 1.0], size=client.params.shape))
        self.encoder = attention.first_encoder(settings.sketch, common)
        self.optimizer = attention.Adam(settings.encoder_rate, settings.encoder_decay)
        self.sketch: Vector | None = None
        self.sketches = PerPeer[Floats | Vector](client)

    def sketched(self, model: Vector) -> Vector | None:
        """Return a sketch of the model's change from its start."""
        change = self.client.trainable(model - self.client.compute.initial())
        self.sketch = self.client.apply(attention.sketch, change, self.signs, width=self.settings.sketch)
        return self.sketch

    def receive(self, peer: str, beliefs: Beliefs) -> None:
        if beliefs.sketch is not None:
            self.sketches[peer] = beliefs.sketch

    def infer(self, likelihoods: Mapping[str, float], own: float) -> dict[str, float]:
        names = [peer for peer in likelihoods if peer in self.sketches]
        if not names or self.sketch is None:
            self.own_weight = 1.0
            self.weights.clear()
            return {}
        for peer in names:  # read here, not on arrival, so that one call computes many
            drawn = self.sketches[peer]
            if not isinstance(drawn, np.ndarray):
                self.sketches[peer] = drawn.numpy().astype(np.float64)
        own_sketch = self.sketch.numpy().astype(float)
        sketches = np.stack([own_sketch, *(np.asarray(self.sketches[peer]) for peer in names)])
        found = np.array([own, *(likelihoods[peer] for peer in names)])
        evidence = found + attention.log_attention(self.encoder, sketches)
        row = exclusive_weights(evidence, self.settings.temperature)
        self.own_weight = float(row[0])
        self.weights.replace(zip(names, row[1:].tolist(), strict=True))
        gradient = attention.encoder_gradient(self.encoder, sketches, row)
        self.encoder, self.optimizer = self.optimizer.ascended(self.encoder, gradient)
        return dict(zip(names, evidence[1:].tolist(), strict=True))

    def gossiped(self) -> tuple[Floats | None, int]:
        return self.encoder.astype("float32"), self.optimizer.steps

    def merge(self, encoder: Floats, steps: int) -> None:
        total = steps + self.optimizer.steps
        if total:
            share = steps / total
            self.encoder = (1 - share) * self.encoder + share * encoder


PRIORS: Mapping[str, type[Prior]] = {
    "dirac": FixedPrior,
    "sbm": BlockPrior,
    "mmsbm": MixedPrior,
    "attention": AttentionPrior,
}
"""Priors by the setting `prior`."""
