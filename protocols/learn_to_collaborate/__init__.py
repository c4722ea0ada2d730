"""Learning to Collaborate: benefit graphs and the collaboration equilibrium.

"Learning to collaborate" (under review in 2021). Every client wants the model that is best for itself:

    Pareto front:  phi <- phi - eta sum_i d_i grad l_i(HN_phi(d)) for random d on the simplex   (section 4.2)
    for each i:    d_i* <- Clip(d - eta' grad_d l_i^validation(HN(d))), normalised              (eqs. 27, 28)
    benefit graph: an edge from j to i where j has a share in d_i* that counts       (appendix B.2)
    equilibrium:   strongly connected components that are stable, again among the rest       (algorithm 1)

and then each coalition trains among itself. The hypernetwork HN and the equilibrium are the business of a
coordinator, which may be any client; it sends parameters HN(d), clients answer with losses and gradients
there, and no data leave them. `mode = "asynchronous"`: gradients that are not there in time count in the
round in which they come, at the d that they were computed for.

Beyond the paper: a coordinator that is gone is replaced (`leader_election`), by one that begins again with
those that are up, while the coalitions that there are go on. Who comes is given an input of the hypernetwork,
which is trained on for a while; who comes or goes makes the coordinator search again for those clients whom
this can affect, and for nobody else (`affected_by_departure`, `affected_by_arrival`): the result is that of
algorithm 1 among all, as far as optimal collaborator sets are unique.

Differences to the paper:
- Which d counts: `rule = "threshold"` (paper, which does not say its epsilon) or "relative" (the authors'
  code: 0.7 of the target's own). The paper's hypernetwork has ReLU (`activation = "relu"`); the code has
  LeakyReLU, and none for the synthetic data (`activation = "none"`), with the usual initialisation
  (`spread = 1`). Here the last layer's biases begin with the model that all begin with, and its matrix is
  smaller.
- Whose the heads are: for images the paper takes the networks of pFedHN, and in the authors' code each client
  has a classifier of its own (`heads = "own"`): the hypernetwork makes the rest of the network, d_i grad l_i
  trains client i's head beside it, and the search leaves it as it is. By default models are whole, as in the
  paper's other experiments. In gossip, too, own heads do not travel.
- Clipping and dividing by the sum is no descent to the minimum: it comes to rest where the gradient is
  proportional to d, so that shares tell how much a client helps, also where the best d is at a corner. With
  `projection = "simplex"` it is projected gradient descent, whose d is the best.
- A client's model in its coalition. The paper learns again with the members (`inside = "pareto"`): the best
  model of the coalition's Pareto front, which is what its tables call SPO where all are in one coalition. By
  default, which is ours, members train by gossip (`inside = "gossip"`) from their models on the front: a
  coalition then needs no coordinator any more. A client alone trains alone in both.
- Clients whose weight, drawn for a round of the hypernetwork's training, is below 0.001 are not asked for a
  gradient there: it would hardly count, and costs a model each way.
- Training among the remaining clients (algorithm 1) searches the same front with no weight for those that are
  gone, by proposition 1; nothing is trained anew.
"""

from protocols.learn_to_collaborate.method import LearnToCollaborate

__all__ = ["LearnToCollaborate"]
