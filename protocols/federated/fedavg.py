"""Federated averaging: a server sends the global model to clients, they train, it averages what comes back.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017),
algorithm 1:

    each round: S <- max(1, floor(C m)) random clients of m
                x_i <- E local epochs from x, for i in S
                x <- sum_{i in S} n_i x_i / sum_{i in S} n_i

A client that has not answered after `patience` is left out of the round. A client's model, as it is
evaluated, is the last global model that it received.
"""

from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings


class FedAvgSettings(RoundSettings):
    """A server averages what its clients have trained."""


class FedAvg(RoundClient):
    """A client of federated averaging, which `RoundServer` and `RoundClient` are by default."""

    Settings = FedAvgSettings
    server = RoundServer
