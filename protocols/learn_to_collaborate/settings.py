"""The settings of Learning to Collaborate; the defaults are the paper's, where it says."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import default
from actors.settings.quantities import Count, CountOrZero, PositiveDuration, PositiveWeight, Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.shared.hypernetwork import size


class LearnToCollaborateSettings(ProtocolSettings):
    """Find out who benefits from whom, form coalitions that nobody has reason to leave, train in them."""

    changing = ("local_steps",)

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """The coordinator waits for all gradients of a round, or goes on after `time_limit` with those that have
    come."""
    broker: str = "client-0"
    """The first coordinator, which trains the hypernetwork; if it is gone, the next by name follows."""
    rounds: Count = 2000
    """Rounds in which the hypernetwork is trained before coalitions are formed."""
    newcomer_rounds: CountOrZero = 200
    """Rounds of its training, with everybody, after somebody has come."""
    time_limit: PositiveDuration = default("1 s")
    """Asynchronous: how long the coordinator waits for gradients in a round; those that come later count in
    the round in which they come."""
    patience: PositiveDuration = default("30 s")
    """How long an answer is waited for at most, and asked for again whenever it is overdue."""

    hidden: Annotated[tuple[Count, ...], Field(max_length=4)] = (100,)
    """Widths of the hypernetwork's hidden layers."""
    activation: Literal["none", "relu", "leaky-relu"] = "leaky-relu"
    """Between its layers: "relu" is the paper's, "leaky-relu" the authors' code's; with "none" models are an
    affine function of the weights."""
    spread: Weight = 0.1
    """How far models for different weights lie apart at the start: the usual scale of the last layer times
    this."""
    heads: Literal["common", "own"] = "common"
    """Whether the front holds whole models, or backbones alone, and each client has a head of its own, which
    it trains while the front is learned (the authors' code for images); that needs a decoupled model."""
    head_learning_rate: PositiveWeight = 0.01
    """Step size of the own heads, times the client's weight in a round."""
    concentration: PositiveWeight | None = None
    """Concentration of the Dirichlet distribution from which the clients' weights are drawn in a round; by
    default 1 over the number of clients (the authors' code), which favours few clients at once."""
    hypernetwork_learning_rate: PositiveWeight = 0.01
    """Step size of the hypernetwork's SGD (the authors' code)."""
    hypernetwork_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Momentum of this SGD (the authors' code)."""

    search_steps: Count = 100
    """At most so many steps in search of the weights that suit a client best."""
    search_learning_rate: PositiveWeight = 0.1
    """Step size of that search (eta)."""
    search_tolerance: Weight = 1e-4
    """The search ends when no weight moves by more than this."""
    search_limit: PositiveDuration | None = None
    """A client whose search takes longer is left out of the first equilibrium, and joins afterwards."""
    watched: CountOrZero | None = None
    """The number of a client whose weights the coordinator observes at each step of the search for it, as
    `d_client-0` and so on (figure 6 of the paper)."""
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """The least weight of a client in the search, relative to an equal share of 1 (epsilon_0; the authors'
    code has 0.4 for 6 clients, 0.3 for 10)."""
    projection: Literal["clip", "simplex"] = "clip"
    """Weights after a step are clipped and divided by their sum (paper), or projected on the simplex."""
    rule: Literal["threshold", "relative"] = "relative"
    """Collaborators are those of a certain weight (paper), or of one relative to the client's own (code)."""
    least: PositiveWeight = 0.7
    """How large a collaborator's weight must be, relative to an equal share (epsilon) or to its own."""
    equilibrium: Literal["iterative", "at-once"] = "iterative"
    """Coalitions by algorithm 1, with a new search among those that remain, or by algorithm 2, without."""

    inside: Literal["gossip", "pareto"] = "gossip"
    """In a coalition of several, the members train and average their models in pairs; or each keeps the model
    on their Pareto front that suits it best."""
    local_steps: Count = 10
    """Training steps between two pushes to a partner."""

    def own_numbers(self, model: int, clients: int) -> int:
        """The hypernetwork, and the velocity of its optimizer."""
        return 2 * size((clients, *self.hidden, model))
