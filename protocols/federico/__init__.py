"""FedeRiCo: expectation-maximization to find the clients with models that fit a client's own data.

Sui, Wen, Lau, Ross and Cresswell, "Find your friends: Personalized federated learning with the right
collaborators" (2022), algorithm 1. Each client i has a model phi_i, and a weight w_ij of each candidate j,
itself included; l_ij is the loss of phi_j on the data of i. In iteration t it

    samples M candidates B epsilon-greedily by w_i, and receives their models
    E-step:  l_ib <- sum_s loss(phi_b, sample s of i)  for b in B; the others keep their last loss
             L_ij <- (1 - beta) L_ij + beta l_ij  for all j;    w_ij <- exp(-L_ij) / sum_j' exp(-L_ij')
    M-step:  returns g_bi = w_ib grad l_ib to the owner of each phi_b;    phi_i <- phi_i - eta sum_j g_ij

(`protocols.federico.posterior` has the E-step, and its form with accumulated losses, eqs. 22-24.) A client
predicts with its candidates' models, averaged by w.

Synchronous: rounds in which a client waits for its neighbors' models, and for their updates of its own model.
As no client knows which others will choose it, models go to all neighbors.

Asynchronous: no client waits for another. A client asks its chosen candidates for their models, evaluates the
models that have come, trains them, and returns the updates; owners add each update on arrival. A late model
is used in the next iteration, and occupies one of the M places there: no iteration involves more than M
peers. If the client's own model is not chosen and no other has come yet, the client waits for the first. Lost
messages are sent again; an update counts once.

A client that is slower than its peers trains its own model with full weight instead of its weight in the
posterior (others seldom train it), and evaluates and trains others' models as its allowance of device time
permits.

A client that has left has no weight. One that joins is tried before all others, and has no weight before that
(at the start all have equal weights); it then counts as if it had had its first loss from the start. One that
returns has its previous weight, and is also tried before all others.

Differences from the paper:
- In the first iteration (`alone_first`) a client trains its own model only. Algorithm 1 starts with models
  that fit the data of any client by chance, and adapt to any client that trains them.
- The client's own model needs no message, so here it is evaluated in every iteration, and trained if it
  has any weight, in addition to the models of M sampled neighbors. With `own_model = "candidate"` it also has
  to be sampled. Then no term ties a model to its owner, and a client may come to train, and to predict with,
  the model of a client that does not share its data.
- epsilon, beta, M and the learning rate are not in the paper's appendix, which was the only text available:
  epsilon = .3, beta = .6 and M = 3 are coterie's choices, and so is the meaning of "epsilon-greedy" (see the
  function `epsilon_greedy`).
- g_bi is w_ib times the change that `local_epochs` of training make, "multiple gradient steps" as the
  appendix allows. With `local_steps = 1` and SGD it is a batch's gradient. The loss is a mean instead of a
  sum over samples: the learning rate compensates for this factor, and with epochs the number of steps is
  in proportion to the samples.
- Updates with a weight below 1e-6 are not computed, as they would be lost in rounding.
- Predictions use the last models received from the M peers of the largest weights, and the client's own.
- With `losses = "sum"`, as in the paper, one candidate has nearly all weight as soon as there are many
  samples: the candidate that fits best early on, which may belong to any client. `losses = "mean"` and
  `temperature` are additions of coterie.
"""

from protocols.federico.method import FedeRiCo

__all__ = ["FedeRiCo"]
