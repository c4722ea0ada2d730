"""SCooL: structured cooperative learning with graphical model priors (Li et al., ICML 2023).

Clients i learn models theta_i and, by variational inference, a graph of benefits: w_ij is the posterior
probability that i should also learn from j's data. EM alternates between

    E:  w_ij from log P(D_j | theta_i), and the other parameters of the graph's posterior
    M:  theta_i <- theta_i - eta (grad L(D_i; theta_i) + sum_j w_ij grad L(D_j; theta_i) + lambda theta_i)

(eqs. 8 and 10); lambda is the scenario's `training.weight_decay`. Priors of the graph (`prior`):
- "dirac": given weights, always Metropolis-Hastings weights. This is D-PSGD with these weights (eq. 16), and
  its models equal those of `dpsgd`; the lambda = 1/eta by which eq. 14 becomes eq. 16 is not the lambda of M.
- "sbm": a stochastic block model, w by a sigmoid (eqs. 18 to 24; `block_model`).
- "attention": a learned similarity of the models' updates, w by a softmax (eqs. 25 to 31; `attention`).
- "mmsbm": blocks with mixed memberships (eqs. 71 to 81; `mixed_membership`).

State of a client: client i keeps its row of w, its gamma_i and Omega_i (or the phi of the pairs (i, j)), and
the last messages about these values of others. It sends a peer its model; the peer answers with the model's
loss on its own data, with its own updates, and with its beliefs. B and alpha are learned from sums over all
clients, which each estimates by push-sum (`protocols.shared.push_sum`); the encoder is averaged by gossip.
In these sums, clients count in proportion to their pace. From `keep_after` on, a client communicates only
with the peers that it keeps, so the sums are over the clients that these links connect.

Synchronous: algorithm 1 in rounds. A client trains, asks its peers, and continues when all have answered;
they answer after they have trained in that round. Asynchronous: it asks after each iteration, continues to
train, and uses the answers that have come by the end of the next one. In both forms a peer reports the sum of
its own updates so far, so that each update counts once, even if messages are lost or clients differ in speed.

After `keep_after` of its iterations a client communicates only with the share `keep` of its peers with the
most evidence, and with new peers.

In an iteration, a client limits the number of peers that it asks, so that answering takes a twentieth of the
training time (`consulted`). It asks the peers in turn, and uses the last answers of the others.

A client far behind its peers compares its own training, the mixture and peers' models on its own samples, and
continues from the best one (`safeguard`, `protocols.shared.safeguard`). This is coterie's addition; the paper
does not have it.

In bad weather: lost requests are repeated (asynchronous: the next iteration sends a newer request). A client
that is slower than its peers keeps its device for itself (`protocols.shared.pace`), and a peer with nothing
new is asked less and less often. A client that has left has no weight, and is treated as new on its return.

Differences from the paper:
- **The evaluated model.** With the first-order cross gradients of eq. 33, E evaluates the model after the
  local steps of M, as the authors' code does: a peer evaluates the model that it gets anyway. Then the peers'
  updates are added, once after all local steps, not in each of them: one message in each iteration. A peer
  sends only its update, which contains the weight decay of its own model, so lambda also applies once for
  each peer. With exact gradients E comes first, as in algorithm 1.
- **The reference of a likelihood.** In eq. 3 a missing edge contributes a factor of 1, and log P(D_j |
  theta_i) is below 0 for any model. No edge at all is therefore the most likely graph: with B learned by eqs.
  18 and 24, B and all weights go to 0 (a test shows it), and the authors' code leaves B at its initial value.
  Here j's data is explained by theta_i or by guessing among the classes (`null_model`), which adds
  log(classes) to all log likelihoods; "none" is eq. 3, to be used with `learn_prior = false`.
- log P(D_j | theta_i) is per sample: minus the mean loss on a batch of j's samples (code), or on all of them.
- Eq. 23 has a sum over all psi(alpha_g) where the bound's derivative has a single psi(alpha_g); the step size
  applies to the mean over clients, so that a step does not grow with their number. The step is plain ascent,
  halved until the bound does not fall, not Adam's: it has no state on which clients would have to agree.
- B and alpha are learned from iteration `learn_after`: learned earlier, while the blocks have yet to form,
  all values would become equal.
- Omega_i continues from its last value; the authors' code draws it again in each round, and does two sweeps.
  A client changes it in half of its iterations, at random (`moving`): eq. 20 raises the bound while the
  others stay, and if all change at once, groups that share a block always leave it together for the same
  other block.
- A client updates its own part of the posterior, given the last messages of others. The closed forms are the
  paper's. They raise the bound if clients apply them one after another, but not always if all clients apply
  them at once.
- Sums over pairs leave out a client's pair with itself. For attention, a client is a candidate in its own row
  (eq. 29 and code; not in eq. 58).
- The encoder gets a sketch of the update instead of all its coordinates, and phi of one client is trained on
  its own row. The gradient of log p_ij with respect to theta_i (the last term of eq. 30) is omitted, as in
  the authors' code: it would pull models towards similar updates, and need the encoder in each training step.
- `aggregation = "shares"` is the authors' code: rows with sum 1, including the client itself. For the block
  models its own gradient has weight 1 in addition to w_ij, as in eq. 22; the code gives it a weight like the
  others.
- With `cross_gradients = "exact"` each local step adds the gradient that the peers computed for this client's
  model at the start of the iteration; with one local step these are eqs. 22 and 30 themselves.
- Asynchronous "dirac" uses the neighbors' latest models: it is not AD-PSGD, which preserves the mean.
"""

from protocols.scool.method import SCooL

__all__ = ["SCooL"]
