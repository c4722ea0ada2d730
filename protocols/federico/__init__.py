"""FedeRiCo: finding by expectation and maximisation whose models suit one's own data.

Sui, Wen, Lau, Ross and Cresswell, "Find your friends: Personalized federated learning with the right
collaborators" (2022), algorithm 1. Each client i has a model phi_i, and a weight w_ij of each candidate j,
itself included; l_ij is the loss of phi_j on the data of i. In iteration t it

    samples M candidates B epsilon-greedily by w_i, and receives their models
    E-step:  l_ib <- sum_s loss(phi_b, sample s of i)  for b in B; the others keep their last loss
             L_ij <- (1 - beta) L_ij + beta l_ij  for all j;    w_ij <- exp(-L_ij) / sum_j' exp(-L_ij')
    M-step:  returns g_bi = w_ib grad l_ib to the owner of each phi_b;    phi_i <- phi_i - eta sum_j g_ij

(`protocols.federico.posterior` has the E-step, and its form with accumulated losses, eqs. 22-24.) A client
predicts with its candidates' models, averaged by w.

Synchronous: rounds in which a client waits for the models of its neighbours, and for what they return. As
nobody knows by whom it will be chosen, models go to all neighbours.

Asynchronous: nobody waits for anybody. A client asks those that it has chosen for their models, evaluates the
ones that have come, trains them, and returns the updates; owners add each when it comes, whatever they are
doing. A model that comes late is worked on in the next iteration, and keeps its place among the M until then:
no iteration turns to more than M peers. If the own model is not chosen and none has come yet, the client
waits for the first. What is lost is sent again; an update counts once.

A client that is slower than its peers trains its own model as a whole instead of by its weight (others seldom
do it for it), and judges and trains those of others as far as its allowance goes.

Whoever is gone weighs nothing. One that comes is tried before all others, and weighs nothing before that (at
first all weigh the same); its first loss counts as if it had always been that. One that comes back weighs
what its model weighed before, and is tried before all others, too.

Differences to the paper:
- In the first iteration (`alone_first`) a client trains its own model and nothing else. Algorithm 1 begins
  with models that fit the data of any client by chance, and become that of whoever trains them.
- The own model needs no message, so that here it is evaluated in every iteration, and trained where it weighs
  anything, beside those of M sampled neighbours. With `own_model = "candidate"` it has to be sampled, too.
  Then nothing ties a model to its owner, and a client may come to train, and to predict with, that of one
  that does not share its data.
- epsilon, beta, M and the learning rate are not in its appendix, which is all that was at hand: .3, .6 and 3
  are ours. So is what "epsilon-greedy" means in `epsilon_greedy`.
- g_bi is w_ib times what `local_epochs` of training change, "multiple gradient steps" as the appendix allows.
  With `local_steps = 1` and SGD it is the gradient of a batch; that of a mean, which a learning rate makes up
  for, while epochs have steps in proportion to the samples.
- Updates of a weight below 1e-6 are not computed, as they would be lost in rounding.
- Predictions use the last models received from the M peers of the largest weights, and the own one.
- With `losses = "sum"`, as in the paper, one candidate has nearly all weight as soon as there are many
  samples: that whose model happened to fit best early on, whoever owns it. `losses = "mean"` and
  `temperature` are ours.
"""

from protocols.federico.method import FedeRiCo

__all__ = ["FedeRiCo"]
