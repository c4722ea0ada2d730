"""Federated averaging: a server sends the global model to clients, they train, and it averages the results.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017),
algorithm 1:

    each round: S <- max(1, floor(C m)) random clients of m
                x_i <- E local epochs from x, for i in S
                x <- sum_{i in S} n_i x_i / sum_{i in S} n_i

With `mu` the local epochs minimize F_i(y) + mu/2 ||y - x||^2, which is FedProx (Li et al., "Federated
optimization in heterogeneous networks", 2020), with the same number of local steps for all clients in place
of its inexactness gamma.

A client that has not answered after `patience` is left out of the round. A client is evaluated by the last
global model that it received.
"""

from actors.settings.quantities import Weight
from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings


class FedAvgSettings(RoundSettings):
    """Average the models that clients have trained."""

    changing = (*RoundSettings.changing, "mu")

    mu: Weight = 0.0
    """Strength of the proximal term towards the model that the server sent (FedProx)."""


class FedAvg(RoundClient):
    """Client of federated averaging: a `RoundClient` with an optional proximal term."""

    Settings = FedAvgSettings
    search_space = SearchSpace(
        "only the local work; mu stays 0, as other values are FedProx",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FedAvgSettings
    server = RoundServer

    async def trained(self, start: Vector) -> Vector:
        proximal = [(self.settings.mu, start)] if self.settings.mu else ()
        return start + await self.train(
            self.steps_of_a_round, start=start, proximal=proximal, fresh_optimizer=True
        )
