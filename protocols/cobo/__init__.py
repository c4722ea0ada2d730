"""CoBo: collaborative learning via bilevel optimization (Hashemi, He and Jaggi, NeurIPS 2024).

Client i learns its model x_i and, together with each peer j, a common weight w_ij, which states how much i
and j help each other.

    for each pair that is sampled, with z = (x_i + x_j)/2:
        w_ij <- Proj_[0,1](w_ij + gamma <g_i(z), g_j(z)>)                                              (eq. 4)
    x_i <- x_i - eta (g_i(x_i) + rho sum_k w_ik (x_i - x_k))                                     (algorithm 1)

where g are stochastic gradients on fresh batches, gamma and rho are settings, and eta is the scenario's
learning rate. The start is w_ij = 1 and equal x_i, unless `model.initialisation` sets other x_i. `domain =
"simplex"` projects each client's row of weights on the simplex instead (remark 1, for language models): its
weights start at 1/(n-1), and w_ij and w_ji may differ. In rounds, a row is projected once in an iteration, as
in eq. 1. Without rounds, the updates of a row come at different times. They are added to the values before
the projection (lazy projection; Zinkevich, 2003), so that their order does not matter.

Synchronous: rounds in which a client waits for the models of its neighbors and for the gradients of its
sampled peers; both ends of a pair draw the same coin from the seed that all clients share.

Asynchronous (no client waits): a client trains with proximal terms towards the last model it received from
each peer, however old. To update w_ij, it asks peer j, which computes its gradient at the midpoint of both
models and returns it with its model. The asker also computes its gradient there, changes the weight, and
reports the change to j. Each end starts an update with half the pair's probability per iteration. An update
that is sampled while an earlier one is in progress, or that fails because messages were lost, is owed: the
next pair of gradients makes all updates that both ends owe, each by the same step. There are no locks: both
ends may update their pair at the same time, and each update counts (`protocols.shared.pair_ledger`).

On the simplex the weights of a row compete, and the common part of all gradients cancels only if all pairs
are updated as in rounds: from the first iteration, equally often, and between models of equal progress.
Therefore the first updates start before the first training, also with peers that have sent nothing yet, and
each end's half of a pair's updates is spread evenly over its iterations (systematic sampling). If one end has
done less than half as many iterations as the other, the slower end starts all updates. The faster end then
takes the midpoint with the model that it had after as many iterations as the slower end has done. This model
is interpolated between the models that the faster end keeps, of iterations 1, 2, 4, 8, and so on.

Options of the asynchronous form for bad weather (docs/protocols.md has their measured effects):
- `fading`: the k-th proximal term in a row with the same model has weight 1/k, so that the old model of a
  slow, cut off or dead peer does not hold back others.
- `evidence`: a pair has full effect once it has made 1/`evidence` of the updates expected from the iterations
  of its slower end, with at least two gradients of each end. Before that, its proximal term and its edge in
  the learned graph are scaled by the fraction made so far. Otherwise, the initial weights of 1, which are
  only placeholders, would pull a client toward all peers if it is too slow, or receives too few messages, to
  learn its weights.
- `share_for_peers`: a client that is less than half as fast as its peers (median) spends this share of its
  device's time on pairs, starting with the peers that it has met least. Its models state this, and its peers
  then let it choose which pairs to update (`protocols.shared.pace`).

Differences from the paper:
- Time-dependent sampling is 1/t per pair, as in the paper; the authors' code uses `sampling_scale = 2` (2/n),
  `constant_iterations = 800` and `decay = "1/sqrt(t)"` for "mixed". The paper's "first 0.2% of iterations"
  is `constant_iterations` here (0.2% of 40,000 by default).
- The authors' code updates the models before the weights; except for one update of the weights at the very
  start, both orders are the same. Their momentum is an average, m <- 0.9 m + 0.1 g from m = g at the first
  step: `training.momentum = 0.9` with `training.dampening = 0.9`.
- For its proof, the paper returns the iterates of a random round. Here, the last iterates count, as in its
  experiments.
- Proximal terms keep their anchors fixed in an iteration of more than one local step.
- A peer that stays silent for `patience` is suspected: it has no proximal term until it sends something
  again, and its weight is kept (on the simplex its share goes to the others, as does the share of a peer that
  left the view). A newcomer gets the initial weight (on the simplex: 0, and a share as soon as gradients
  agree).
- n in `sampling_scale`/n is the number of clients if all know each other, as in the paper. On a sparse graph
  it is the larger neighborhood of the pair's ends plus one. Asynchronous: each end takes its own neighborhood
  plus one, for its half of the probability. A client therefore meets about `sampling_scale` peers in an
  iteration for any degree, fewer if its neighbors have more neighbors than it has.
"""

from protocols.cobo.method import CoBo

__all__ = ["CoBo"]
