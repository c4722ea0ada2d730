"""SCooL: structured cooperative learning with graphical model priors (Li et al., ICML 2023).

Clients i learn models theta_i and, by variational inference, a graph of who helps whom: w_ij is the posterior
probability that i should learn from j's data, too. EM alternates between

    E:  w_ij from log P(D_j | theta_i), and the posterior of what the prior of the graph has besides
    M:  theta_i <- theta_i - eta (grad L(D_i; theta_i) + sum_j w_ij grad L(D_j; theta_i) + lambda theta_i)

(eqs. 8 and 10); lambda is the scenario's `training.weight_decay`. Priors of the graph (`prior`):
- "dirac": given weights, always Metropolis-Hastings'. This is D-PSGD with these (eq. 16), same parameters;
  the lambda = 1/eta by which eq. 14 becomes eq. 16 is not that of M.
- "sbm": a stochastic block model, w by a sigmoid (eqs. 18 to 24; `block_model`).
- "attention": a learned similarity of the models' updates, w by a softmax (eqs. 25 to 31; `attention`).
- "mmsbm": blocks with mixed memberships (eqs. 71 to 81; `mixed_membership`).

What is whose: client i holds its row of w, its gamma_i and Omega_i (or the phi of the pairs (i, j)), and what
others told it of theirs. It sends a peer its model; the peer answers with the loss of it on its own data,
with its own updates, and with what it believes. B and alpha are learned from sums over all clients, which
each estimates by push-sum (`protocols.shared.push_sum`); the encoder is averaged by gossip. Clients count
there by their pace, and since only peers that are kept are talked to, the sums are of those that such peers
connect, from `keep_after` on.

Synchronous: algorithm 1 in rounds. A client trains, asks its peers, and goes on when all have answered; they
do once they have trained in that round. Asynchronous: it asks after each iteration, trains on at once, and
makes use of the answers that have come by the end of that. In both forms a peer's own updates are told as
their sum so far, so that each counts once, however many messages were lost and whoever is faster.

After `keep_after` of its iterations a client goes on to talk only to the share `keep` of its peers for which
most speaks, and to peers that are new.

A client asks so many of its peers in an iteration as take a twentieth of the time of its training
(`consulted`), in turn; of the others it knows what they said last.

In bad weather: lost questions are asked again (asynchronous: the next iteration has a newer one). A client
that is slower than its peers keeps its device for itself (`protocols.shared.pace`), and one that has had
nothing new is asked more and more rarely. Who is gone has no weight, and is met anew when it is back.

Differences to the paper:
- **What is judged.** With the first-order cross gradients of eq. 33, E judges the model after the local steps
  of M, as the authors' code does: what a peer is asked about is what it is sent anyway. Then the peers'
  updates are added, once after all local steps, not in each of them: one message an iteration. These contain
  the weight decay of their own models, so that lambda counts for each of them, too: an update is all that a
  peer tells. With exact ones E comes first, as in algorithm 1.
- **What a likelihood is compared with.** In eq. 3 an edge that is not there counts 1, and log P(D_j |
  theta_i) is below 0 for any model. So no edge at all is the most likely graph: with B learned by eqs. 18
  and 24, B and all weights go to 0 (a test shows it), and the authors' code leaves B as it begins. Here j's
  data are explained by theta_i or by guessing among the classes (`null_model`), which adds log(classes) to
  all log likelihoods; "none" is eq. 3, to be used with `learn_prior = false`.
- log P(D_j | theta_i) is per sample: minus the mean loss on a batch of j's (code), or all its samples.
- Eq. 23 has a sum over all psi(alpha_g) where the bound's derivative has one; the step size is for the mean
  over clients, so that it does not grow with them. The step is plain ascent, halved until the bound does not
  fall, not Adam's: it has no state that clients would have to agree on.
- B and alpha are learned from iteration `learn_after` on: from blocks that have yet to form, all get alike.
- Omega_i goes on from what it was; the authors' code draws it anew in each round, and does two sweeps. A
  client moves it in half of its iterations, at random (`moving`): eq. 20 raises the bound while the others
  stay, and where all went at once groups that shared a block left it together for the same one, for ever.
- A client goes through its own part of the posterior, given what others told it last. The closed forms are
  the paper's, and in turn they raise the bound; all clients at once need not.
- Sums over pairs leave out a client's pair with itself. For attention it is a candidate of its own row (eq.
  29 and code; not in eq. 58).
- The encoder sees a sketch of the update instead of all its coordinates, and phi of one client is trained on
  its own row. The gradient of log p_ij in theta_i (the last term of eq. 30) is left out, as in the authors'
  code: it would pull models towards updates that look alike, and need the encoder in each training step.
- `aggregation = "shares"` is the authors' code: rows of 1, the client itself included. For the block models
  its own gradient weighs 1 beside w_ij, as in eq. 22; the code gives it a weight like the others.
- With `cross_gradients = "exact"` each local step adds the gradient that the peers computed of this client's
  model at the beginning of the iteration; with one local step these are eqs. 22 and 30 themselves.
- Asynchronous "dirac" pulls the neighbours' latest models: not AD-PSGD, which keeps the mean.
"""

from protocols.scool.method import SCooL

__all__ = ["SCooL"]
