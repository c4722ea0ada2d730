"""Settings of Learning to Collaborate; the defaults are the paper's, as far as it states them."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import default
from actors.settings.quantities import Count, CountOrZero, PositiveDuration, PositiveWeight, Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.shared.hypernetwork import size


class LearnToCollaborateSettings(ProtocolSettings):
    """Find the clients' benefits, form coalitions that no client gains by leaving, and train in them."""

    changing = ("local_steps",)

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """Rounds in which the coordinator waits for all gradients, or continues after `time_limit` without the
    late ones."""
    broker: str = "client-0"
    """First coordinator, which trains the hypernetwork; if it is gone, the next by name follows."""
    rounds: Count = 2000
    """Rounds in which the hypernetwork is trained before coalitions are formed."""
    newcomer_rounds: CountOrZero = 200
    """Further rounds of training the hypernetwork, with all clients, after a client has joined."""
    time_limit: PositiveDuration = default("1 s")
    """Wait of the coordinator for gradients in a round of the asynchronous form; later ones count in the
    round in which they come."""
    patience: PositiveDuration = default("30 s")
    """Maximum wait for an answer, which is requested again whenever it is overdue."""

    hidden: Annotated[tuple[Count, ...], Field(max_length=4)] = (100,)
    """Widths of the hypernetwork's hidden layers."""
    activation: Literal["none", "relu", "leaky-relu"] = "leaky-relu"
    """Activation between the hypernetwork's layers: "relu" is the paper's, "leaky-relu" the authors' code's;
    with "none" models are an affine function of the weights."""
    spread: Weight = 0.1
    """Initial distance of models for different weights: factor of the usual scale of the last layer."""
    heads: Literal["common", "own"] = "common"
    """Content of the front: whole models ("common"), or only backbones ("own"). With "own", each client
    trains its own head while the front is learned (the authors' code for images), and the model must be
    decoupled."""
    head_learning_rate: PositiveWeight = 0.01
    """Step size of the clients' own heads, times the client's weight in a round."""
    concentration: PositiveWeight | None = None
    """Concentration of the Dirichlet distribution of the clients' weights in a round; by default 1 over the
    number of clients (the authors' code), which favors few clients at once."""
    hypernetwork_learning_rate: PositiveWeight = 0.01
    """Step size of the hypernetwork's SGD (the authors' code)."""
    hypernetwork_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Momentum of the hypernetwork's SGD (the authors' code)."""

    search_steps: Count = 100
    """Maximum number of steps in the search for a client's best weights."""
    search_learning_rate: PositiveWeight = 0.1
    """Step size of the search for a client's best weights (eta)."""
    search_tolerance: Weight = 1e-4
    """Largest change of a weight at which the search ends."""
    search_limit: PositiveDuration | None = None
    """Maximum time of a client's search; a slower client is left out of the first equilibrium, and joins
    later."""
    watched: CountOrZero | None = None
    """Number of a client. At each step of the search for this client's best weights, the coordinator records
    the weights as `d_client-0` and so on (figure 6 of the paper)."""
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Least weight of a client in the search, relative to the equal share 1/n of n clients (epsilon_0; the
    authors' code has 0.4 for 6 clients, 0.3 for 10)."""
    projection: Literal["clip", "simplex"] = "clip"
    """Treatment of weights after a step: clipped and divided by their sum (paper), or projected on the
    simplex."""
    rule: Literal["threshold", "relative"] = "relative"
    """Rule for collaborators: by weight (paper), or by weight relative to the client's own (code)."""
    least: PositiveWeight = 0.7
    """Least weight of a collaborator, relative to an equal share (epsilon) or to the client's own."""
    equilibrium: Literal["iterative", "at-once"] = "iterative"
    """Coalitions by algorithm 1, with new searches among the remaining clients, or by algorithm 2,
    without new searches."""

    inside: Literal["gossip", "pareto"] = "gossip"
    """Training in a coalition of several: members train and average their models in pairs, or each member
    keeps its best model on the Pareto front of the coalition."""
    local_steps: Count = 10
    """Training steps between two pushes to a partner."""

    def own_numbers(self, model: int, clients: int) -> int:
        """Return the number of values of the hypernetwork and of its optimizer's velocity."""
        return 2 * size((clients, *self.hidden, model))
