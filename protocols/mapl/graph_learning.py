"""Collaborative graph learning (CGL) of MAPL (Mukherjee et al. 2024, section 4.2, algorithms 2 and 5).

Client i holds weights w_ij of its peers j and w_ii of itself, on the simplex. It compares its classifier head
with its peers' heads, s_ij = -cos(head_i, head_j), s_ii = -1, and takes a few projected steps on

    mu1 sum_j gamma_j w_ij s_ij + mu2 (beta ||w_i||_2 - log(deg(i) + eps)),   deg(i) = sum_{j != i} w_ij

where gamma_j is j's share of the samples (eqs. 7 and 8). A weight of 0 ends the exchange with that peer.

This module uses numpy in float64: there are few numbers, and their last digits decide whether a peer is kept.

Open questions in the paper, and consequences of its formulas:
- gamma divides by the samples of all clients; here by the samples of the client itself and of the peers with
  known heads. With equal numbers of samples, gamma is 1/M for M clients, also in the paper: `confidence =
  "equal"` is then the same. "none" omits gamma from the formula (Table 3), that is, sets it to 1, which makes
  similarity M times as strong.
- With the gradient of log(deg) the client's own weight goes to 0 among 10 or 20 clients: the degree favors
  every peer by mu2 = .1, and the term in favor of the client itself, mu1 gamma (1 - cos), is .05 or less. The
  authors' code has no such gradient (it takes the degree from the weights before the step), and their
  Figure 4 shows weights that are equal within a cluster, including the client's own:
  `degree_gradient = False`.
- The paper's step drops no peer unless the heads are very similar. With n peers inside a cluster that share
  all the weight, a peer outside keeps the weight 0 only if mu1 cos/M > mu2 beta/sqrt(n), where cos is the
  excess similarity of the peers inside. This cos must exceed .67 for two clusters of 10 clients, and .5 for
  two of 5. Cosines divided by the largest ("per-class") exceed this; plain cosines of small models (.1 to .5)
  do not, and then all peers keep some weight.
- ||w||_1 is 1 on the simplex, so the projection undoes its gradient (1 everywhere, also at 0, where the
  weights can only grow): norm "l1" means no norm at all.
- The step "sign" is the first one of a fresh Adam(learning_rate), which the authors' code makes in every
  round: learning_rate * sign(gradient), whatever the size of the gradient.
- The authors' code divides the peers' similarities by the largest. If all are 0 or less, that would reverse
  their order; here they are then unchanged.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protocols.framework.mathematics import project_on_simplex

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-9
"""Weight below which a weight counts as 0: a rounding error must not keep an exchange alive."""


@dataclass(frozen=True)
class GraphLearning:
    """Parameters for learning the weights. The defaults are the paper's; see also `AUTHORS_CODE`."""

    mu1: float = 0.5
    """Strength of the similarity."""
    mu2: float = 0.1
    """Strength of the regularizer."""
    beta: float = 0.5
    """Strength of the norm in the regularizer: the larger, the more equal the weights."""
    steps: int = 1
    """Steps in one update, E_g."""
    learning_rate: float = 0.1
    """Size of a step, eta; the paper does not state it, the authors' code has 0.1."""
    epsilon: float = 1e-6
    """Offset that keeps the logarithm of a degree of 0 finite."""
    similarity: Literal["whole", "per-class", "none"] = "whole"
    """Similarity of heads: cosine of the whole weight matrices; mean cosine of each class's rows, divided by
    the largest mean of all peers (the authors' code); or the same for all (Table 3)."""
    confidence: Literal["samples", "equal", "none"] = "samples"
    """Factor gamma: shares of the samples, equal shares, or 1 (Table 3)."""
    norm: Literal["l2", "l1"] = "l2"
    """Norm of the weights in the regularizer."""
    degree_gradient: bool = True
    """True if the logarithm of the degree has a gradient."""
    step: Literal["gradient", "sign"] = "gradient"
    """Step along the gradient, or along its sign."""


AUTHORS_CODE = GraphLearning(similarity="per-class", degree_gradient=False, step="sign")
"""CGL as in the authors' public code."""


def class_rows(head: ArrayLike, classes: int) -> Floats:
    """Return the weights [K, d_z] of a flat head [K * (d_z + 1)], which has weights first, then K biases.

    Raises ValueError if the head's length does not fit.
    """
    flat = np.asarray(head, dtype=np.float64)
    if flat.ndim != 1 or classes < 1 or flat.size % classes or flat.size < 2 * classes:
        raise ValueError(
            f"a head of {classes} classes has {classes} * (features + 1) numbers, not shape {flat.shape}"
        )
    return flat[:-classes].reshape(classes, -1)


def _cosines(vector: Floats, others: Floats) -> Floats:
    """Return the cosines [n, ...] of vectors [..., d] and others [n, ..., d]; 0 for vectors of 0.

    Each number has the bits of a call with only one of the others: numpy sums the last axis row by row.
    """
    lengths = _lengths(vector) * _lengths(others)
    return (vector * others).sum(axis=-1) / np.where(lengths > 0, lengths, np.inf)


def _lengths(vectors: Floats) -> Floats:
    """Return the lengths of vectors [..., d], with the bits of `numpy.linalg.norm` in half the time."""
    lengths: Floats = np.sqrt((vectors * vectors).sum(axis=-1))
    return lengths


def head_similarity(
    head: ArrayLike, peers: Mapping[str, ArrayLike], classes: int, kind: str = "whole"
) -> dict[str, float]:
    """Return the similarity of each peer's flat head to a client's, at most 1; biases do not count.

    `kind`: as in `GraphLearning.similarity`. Raises ValueError for heads of different or impossible lengths,
    and for an unknown kind.
    """
    rows = class_rows(head, classes)
    for peer, theirs in peers.items():
        others = class_rows(theirs, classes)
        if others.shape != rows.shape:
            raise ValueError(f"the head of {peer} has rows of {others.shape[1]}, not {rows.shape[1]} numbers")
    if kind not in ("whole", "per-class", "none"):
        raise ValueError(f'unknown similarity "{kind}"; known: whole, per-class, none')
    if kind == "none" or not peers:
        return dict.fromkeys(peers, 1.0)
    others = np.array(list(peers.values()), dtype=np.float64)[:, : rows.size].reshape(len(peers), *rows.shape)
    if kind == "whole":
        return dict(zip(peers, _cosines(rows.ravel(), others.reshape(len(peers), -1)).tolist(), strict=True))
    found = _cosines(rows, others).mean(axis=-1)
    largest = found.max()
    return dict(zip(peers, (found / largest if largest > 0 else found).tolist(), strict=True))


def confidences(samples: ArrayLike, kind: str) -> Floats:
    """Return gamma [n] for numbers of training samples [n]; `kind` as in `GraphLearning.confidence`."""
    counts = np.asarray(samples, dtype=np.float64)
    if kind == "none":
        return np.ones_like(counts)
    if kind == "equal" or not counts.sum() > 0:
        return np.full_like(counts, 1.0 / counts.size)
    return counts / counts.sum()


def graph_gradient(weights: Floats, scores: Floats, gamma: Floats, client: int, how: GraphLearning) -> Floats:
    """Return the gradient [n] of eq. 7 for one client's weights w [n], 0 or more.

    With scores s and shares gamma [n], eq. 7 is mu1 <gamma w, s> + mu2 (beta |w| - log(sum of w without
    w[client])). The gradient of the logarithm is omitted if `how` disables it.
    """
    if how.norm == "l1":
        direction = np.ones_like(weights)
    else:
        length = math.sqrt(weights.dot(weights))
        direction = weights / length if length > 0 else np.zeros_like(weights)
    gradient = how.mu1 * gamma * scores + how.mu2 * how.beta * direction
    if how.degree_gradient:
        pull = np.full_like(weights, how.mu2 / (weights.sum() - weights[client] + how.epsilon))
        pull[client] = 0.0
        gradient -= pull
    return gradient


@dataclass(frozen=True)
class CollaborationWeights:
    """Weights of a client: for itself, and for its peers by name; 0 or more, with sum 1."""

    itself: float
    peers: Mapping[str, float]


def add_peer_share(before: CollaborationWeights, peer: str) -> CollaborationWeights:
    """Return the weights with an equal share for a peer that had none, taken from all in proportion.

    In the authors' form ("sign"), a newcomer would otherwise stay at 0: each step raises the weights of all
    sufficiently similar peers by the same amount, and the projection subtracts this amount again.
    """
    if before.peers.get(peer, 0.0) > 0:
        return before
    members = [before.itself, *before.peers.values()]
    share = 1.0 / (1 + sum(weight > 0 for weight in members))
    kept = {name: weight * (1 - share) for name, weight in before.peers.items()}
    return CollaborationWeights(before.itself * (1 - share), kept | {peer: share})


def learn_weights(
    before: CollaborationWeights,
    head: ArrayLike,
    heads: Mapping[str, ArrayLike],
    sample_count: int,
    samples: Mapping[str, int],
    classes: int,
    how: GraphLearning,
) -> CollaborationWeights:
    """Update a client's weights by `how.steps` projected steps, and return the new ones.

    `heads` are flat heads [K * (d_z + 1)] and `samples` numbers of training samples, for the same peers; a
    peer in them without a weight is a newcomer, whose weight was 0. A peer with a weight but without a head
    cannot be evaluated: it keeps its weight, and the others share the remainder. The same holds for a peer
    with a head that is not finite, because its training diverged; a client in this state keeps all weights.

    Raises ValueError if `heads` and `samples` differ in their peers, and for heads that do not fit.
    """
    if heads.keys() != samples.keys():
        unmatched = ", ".join(sorted(heads.keys() ^ samples.keys()))
        raise ValueError(f"a peer needs both a head and a number of samples; one is missing for {unmatched}")
    if not _is_finite(head):
        return before
    heads = {peer: theirs for peer, theirs in heads.items() if _is_finite(theirs)}
    similarity = head_similarity(head, heads, classes, how.similarity)
    unjudged = {peer: weight for peer, weight in before.peers.items() if peer not in heads}
    # In this order: the client itself, the peers with heads, and those without, with constant entries.
    scores = np.array([-1.0, *(-similarity[peer] for peer in heads), *(0.0 for _ in unjudged)])
    gamma = confidences([sample_count, *(samples[peer] for peer in heads)], how.confidence)
    gamma = np.concatenate([gamma, np.zeros(len(unjudged))])
    weights = np.array(
        [before.itself, *(before.peers.get(peer, 0.0) for peer in heads), *unjudged.values()],
        dtype=np.float64,
    )
    judged = 1 + len(heads)
    total = 1.0 - weights[judged:].sum()
    if total <= judged * NEGLIGIBLE:
        return before
    for _ in range(how.steps):
        gradient = graph_gradient(weights, scores, gamma, 0, how)
        direction = np.sign(gradient) if how.step == "sign" else gradient
        moved = weights - how.learning_rate * direction
        weights[:judged] = _rounded_to_zero(project_on_simplex(moved[:judged], total), total)
    learned = weights.tolist()
    return CollaborationWeights(learned[0], dict(zip([*heads, *unjudged], learned[1:], strict=True)))


def _is_finite(head: ArrayLike) -> bool:
    """Return True if all numbers of a head [n] are finite."""
    flat = np.asarray(head)
    # The product takes a fifth of the time. It is finite only if all numbers are, and it may overflow.
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())


def _rounded_to_zero(weights: Floats, total: float) -> Floats:
    """Return weights [n] of the same sum, with 0 for values that are positive only by rounding."""
    kept = np.where(weights < NEGLIGIBLE, 0.0, weights)
    return kept * (total / kept.sum())
