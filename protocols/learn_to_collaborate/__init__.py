"""Learning to Collaborate: benefit graphs and the collaboration equilibrium.

"Learning to collaborate" (under review in 2021). Every client wants the model that is best for itself:

    Pareto front:  phi <- phi - eta sum_i d_i grad l_i(HN_phi(d)) for random d on the simplex   (section 4.2)
    for each i:    d_i* <- Clip(d - eta' grad_d l_i^validation(HN(d))), normalized              (eqs. 27, 28)
    benefit graph: an edge from j to i if j has a sufficient share in d_i*           (appendix B.2)
    equilibrium:   strongly connected components that are stable, repeated for the others       (algorithm 1)

Then, the members of each coalition train together. A coordinator, which may be any client, computes the
hypernetwork HN and the equilibrium; it sends parameters HN(d), the clients answer with their losses and
gradients at these parameters, and no data leave the clients. `mode = "asynchronous"`: late gradients count in
the round in which they arrive, at the d for which they were computed.

Beyond the paper: a coordinator that is gone is replaced (`leader_election`) by one that starts again with the
clients that are up, while the present coalitions continue. A newcomer gets an input of the hypernetwork,
which is trained further for a while; after a join or departure the coordinator searches again only for those
clients that this can affect (`affected_by_departure`, `affected_by_arrival`): the result is the same as with
algorithm 1 among all clients, provided that optimal collaborator sets are unique.

Differences from the paper:
- Which shares are sufficient: `rule = "threshold"` (paper, which does not state its epsilon) or "relative"
  (the authors' code: 0.7 of the target's own). The paper's hypernetwork has ReLU (`activation = "relu"`); the
  code has LeakyReLU, and none for the synthetic data (`activation = "none"`), with the usual initialization
  (`spread = 1`). Here the last layer's biases start as the common initial model, and its matrix is smaller.
- Heads: for images the paper uses the networks of pFedHN, and in the authors' code each client has its own
  classifier (`heads = "own"`): the hypernetwork generates the other layers, d_i grad l_i also trains client
  i's head, and the search leaves the head unchanged. By default models are whole, as in the paper's other
  experiments. Own heads are also not sent in gossip.
- Clipping and dividing by the sum does not descend to the minimum: it stops where the gradient is
  proportional to d, so shares show how much a client helps, even if the best d is at a corner. With
  `projection = "simplex"`, the search is projected gradient descent, which finds the best d.
- A client's model in its coalition. The paper learns again with the members only, and takes the client's best
  model on the coalition's Pareto front (`inside = "pareto"`); its tables call this SPO if all clients are in
  one coalition. By default, which is coterie's choice, members train by gossip (`inside = "gossip"`) from
  their models on the front: a coalition then no longer needs a coordinator. A client without partners trains
  alone in both.
- In a round of the hypernetwork's training, a client whose random weight is below 0.001 is not asked for a
  gradient: the gradient would hardly count, and would cost two messages of a model's size.
- For the remaining clients (algorithm 1), the same front is searched again, without weights for clients
  already in a coalition (proposition 1); the front is not trained again.
"""

from protocols.learn_to_collaborate.method import LearnToCollaborate

__all__ = ["LearnToCollaborate"]
