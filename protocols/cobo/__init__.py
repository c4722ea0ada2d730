"""CoBo: collaborative learning via bilevel optimization (Hashemi, He and Jaggi, NeurIPS 2024).

Client i learns its model x_i, and with each peer j a common weight w_ij: whether they help each other.

    for each pair that is sampled, with z = (x_i + x_j)/2:
        w_ij <- Proj_[0,1](w_ij + gamma <g_i(z), g_j(z)>)                                              (eq. 4)
    x_i <- x_i - eta (g_i(x_i) + rho sum_k w_ik (x_i - x_k))                                     (algorithm 1)

from w_ij = 1 and equal x_i, if `model.initialisation` does not say otherwise; g are stochastic gradients on
fresh batches. `domain = "simplex"` projects each client's row of weights on the simplex instead (remark 1,
for language models): it starts at 1/(n-1) and is not symmetric. In rounds that is once in an iteration, as in
eq. 1. Without them the updates of a row come at different times, and add to what was before the projection
(lazy projection; Zinkevich, 2003): their sum is projected, in whatever order they came.

Synchronous: rounds in which a client waits for the models of its neighbours and for the gradients of its
sampled peers; both ends of a pair draw the same coin from the seed that all clients share.

Asynchronous (nobody waits): a client trains with proximal terms towards the last model it received from each
peer, however old. To update w_ij it asks that one peer, which evaluates its gradient at the midpoint and
sends it back with its model; the asker does the same, moves the weight, and tells the peer by how much. Each
end starts an update with half the pair's probability per iteration. An update that is sampled while an
earlier one is under way, or that fails because messages were lost, is owed: the next pair of gradients makes
all updates that both ends owe, each by the same step. Nothing is ever locked: both ends may be at updates of
their pair at the same time, and each counts (`protocols.shared.pair_ledger`).

On the simplex the weights of a row compete, and what all gradients have in common cancels only if all pairs
are updated as in rounds: from the first iteration on, as often, and between models that have come as far. So
the first updates start before the first training, also with peers that have not been heard of; and each end's
half of a pair's updates is spread evenly over its iterations (systematic sampling). With a peer that has done
less than half as many iterations, the slower end starts all updates, and the faster one computes its gradient
with the model that it had after as many: interpolated between those that it keeps, of iterations 1, 2, 4, 8,
and so on.

In bad weather (options of this form; what they bring is measured in docs/protocols.md):
- `fading`: the k-th proximal term in a row with one and the same model weighs 1/k, so that the old model of a
  slow, cut off or dead peer holds nobody back.
- `evidence`: until a pair has made 1/`evidence` of the updates expected from the iterations of its slower
  end, by two gradients of each end or more, its proximal term and its edge in the learned graph are scaled by
  the part that it has made. w = 1 at the start means that nobody knows: who is too slow, or hears too little,
  to find out must not be pulled by all.
- `share_for_peers`: a client that is less than half as fast as its peers (median) spends this share of its
  device's time on pairs; with whom it has met least comes first. It says so with its models, and its peers
  leave the choice to it (`protocols.shared.pace`).

Differences to the paper:
- Time-dependent sampling is 1/t per pair, as in the paper; the authors' code uses `sampling_scale = 2` (2/n),
  `constant_iterations = 800` and `decay = "1/sqrt(t)"` for "mixed". The paper's "first 0.2 % of iterations"
  is `constant_iterations` here (0.2 % of 40,000 by default).
- The authors' code updates the models before the weights; that equals this order without the very first
  update of the weights. Their momentum is an average, m <- 0.9 m + 0.1 g from
  m = g at the first step: `training.momentum = 0.9` with `training.dampening = 0.9`.
- The paper returns the iterates of one round, drawn at random, for its proof. Here the last ones count, as in
  its experiments.
- Proximal terms keep their anchors fixed in an iteration of more than one local step.
- A peer from which nothing came for `patience` is suspected: it has no proximal term until it is heard from
  again, its weight is kept (on the simplex its share goes to the others, as does that of a peer that left the
  view). A newcomer is given the initial weight (on the simplex: 0, and its share as soon as gradients agree).
- n in `sampling_scale`/n is the number of clients where all know each other, as in the paper. On a sparse
  graph it is the larger neighbourhood of the pair's ends plus one. Asynchronous: each end takes its own
  neighbourhood plus one, for its half of the probability. So a client meets about `sampling_scale` peers in
  an iteration whatever its degree, fewer where its neighbours have more neighbours than it.
"""

from protocols.cobo.method import CoBo

__all__ = ["CoBo"]
