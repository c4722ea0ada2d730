"""MAPL: models of different make, aligned by prototypes, in a neighbourhood that thins itself out.

Mukherjee, Simonetto and Jamali-Rad, "MAPL: Model agnostic peer-to-peer learning" (2024). Client i has a
backbone of its own, and like all others a projection, a head phi_i and prototypes xi_i of the classes:

    PML:  E local epochs on l_cont + l_ce + l_proto + l_uni         (eq. 2-5, protocols.shared.local_losses)
    CGL:  w_i <- Proj_simplex(w_i - eta grad l_g(w_i; heads))       (eq. 6-9, protocols.mapl.graph_learning)
    xi_i <- w_ii xi_i + sum_j w_ij xi_j                             (algorithm 3, line 8)

Synchronous: algorithm 3 in rounds of E epochs, with a barrier among neighbours. Heads travel and CGL runs
from round `warm_up` (T_thr) on; the first round is 1, as in algorithm 3.

Asynchronous: nobody waits. A client shares what it has after each PML, mixes with the latest that it holds of
each neighbour, and runs CGL when enough new heads have come, once its own warm-up is over.

Beyond the paper, which leaves dynamic neighbourhoods open: whoever is gone loses its weight; a newcomer asks
those it knows of for what they have, and is a candidate for their weight once it sends a head; and a client
may ask some strangers for theirs (`explore`), so that it can start from a few neighbours
(`neighbours_at_start`) instead of all.

Differences to the paper: a neighbour whose weight falls to 0 is told, and drops the sender in turn, as it
gets nothing from it any more. (The paper's clients live in one process, where one can go on reading from
another that gives it no weight.) Neighbours without a known head keep their weight: CGL, and what a departure
leaves, go by them.
Heads and prototypes travel in one message, before CGL; in algorithm 3 prototypes follow once there are new
weights. So a neighbour that has just lost its weight was still sent some.
The head is linear on relu(z), as in the authors' code: the paper's phi(z) does not say; what heads are
compared by is the matrix behind it.
The choices of the authors' code are settings: `loss_variant`, `similarity`, `degree_gradient`, `graph_step`.
"""

from protocols.mapl.method import MAPL

__all__ = ["MAPL"]
