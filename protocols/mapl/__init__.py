"""MAPL: clients with different models, aligned by prototypes, in neighborhoods that become sparse.

Mukherjee, Simonetto and Jamali-Rad, "MAPL: Model agnostic peer-to-peer learning" (2024). Client i has its own
backbone and, like all other clients, a projection, a head phi_i and prototypes xi_i of the classes:

    PML:  E local epochs on l_cont + l_ce + l_proto + l_uni         (eq. 2-5, protocols.shared.local_losses)
    CGL:  w_i <- Proj_simplex(w_i - eta grad l_g(w_i; heads))       (eq. 6-9, protocols.mapl.graph_learning)
    xi_i <- w_ii xi_i + sum_j w_ij xi_j                             (algorithm 3, line 8)

PML is personalized model learning, with the losses of `protocols.shared.local_losses`; CGL is collaborative
graph learning, with the loss l_g of the graph.

Synchronous: algorithm 3 in rounds of E epochs, with a barrier among neighbors. Heads are sent and CGL runs
from round `warm_up` (T_thr); the first round is 1, as in algorithm 3.

Asynchronous: no client waits. A client shares its parameters after each PML, mixes with the latest ones of
each neighbor, and runs CGL when enough new heads have come, after its own warm-up.

Beyond the paper, which leaves dynamic neighborhoods open: a client that leaves loses its weight; a newcomer
asks its peers for their parameters, and becomes a candidate for a weight when it sends a head; and a client
may ask some strangers for their parameters (`explore`), so that it can start from a few neighbors
(`neighbours_at_start`) instead of all.

Differences from the paper: a neighbor with a weight that falls to 0 is notified, and also drops the sender,
because it gets no more messages from it. (The paper's clients share one process, where a client can read from
another that gives it no weight.) Neighbors without a known head keep their weight: CGL leaves them out, and
they get no share of the weight that a departure frees. Heads and prototypes are sent in one message, before
CGL; in algorithm 3, prototypes are sent after the weights are updated. A neighbor that has just lost its
weight has therefore still received prototypes. The head is linear on relu(z), as in the authors' code: the
paper's phi(z) leaves this open; heads are compared by the matrix after the relu. The choices of the authors'
code are settings: `loss_variant`, `similarity`, `degree_gradient`, `graph_step`.
"""

from protocols.mapl.method import MAPL

__all__ = ["MAPL"]
