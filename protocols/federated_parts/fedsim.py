"""FedSim: clients keep their backbones and share the head, which a server averages.

Pillutla et al., "Federated learning with partial model personalization" (2022), algorithm FedSim, with the
backbone theta_i personal and the head phi shared, as Mukherjee et al. (MAPL, appendix C.2) compare with it:

    each round: phi_i <- phi for the sampled clients i
                (theta_i, phi_i) <- E local epochs, of both at once
                phi <- sum_i n_i phi_i / sum_i n_i

Only heads travel, so that backbones may differ. Until there is an average a client trains its own head. The
rounds are those of `protocols.shared.averaged_parts`.

Differences to the paper: Pillutla et al. share most layers and keep few, and weigh clients as their objective
does; here by their samples or equally (`weights`). Their models are evaluated with the average, whose place
in the algorithm is the end of a round. Here the average comes with the next round's task, so that a model, as
it is evaluated, is by default what the client has trained last, its own head included: which flatters the
method where classes differ. With `broadcast = "all"` the average is sent as soon as it is made, and takes the
place of the head in what is evaluated.
"""

from typing import Any

from protocols.shared.averaged_parts import AveragedPartServer, AveragedPartSettings, SharedPart
from protocols.shared.server_rounds import RoundClient


class FedSimSettings(AveragedPartSettings):
    """A server averages the heads of its clients."""


class FedSim(RoundClient):
    """A client that shares its head."""

    Settings = FedSimSettings
    server = AveragedPartServer
    parts = ()
    heterogeneous = True

    def begin(self) -> None:
        self.head = SharedPart(self, "head")

    async def work(self, task: Any) -> object:
        return await self.head.work(task)

    def learn(self, news: Any) -> None:
        self.head.take(news.part)
