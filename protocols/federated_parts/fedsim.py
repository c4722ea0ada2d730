"""FedSim: clients keep their backbones and share the head, which a server averages.

Pillutla et al., "Federated learning with partial model personalization" (2022), algorithm FedSim, with the
backbone theta_i personal and the head phi shared, as Mukherjee et al. (MAPL, appendix C.2) compare with it:

    each round: phi_i <- phi for the sampled clients i
                (theta_i, phi_i) <- E local epochs, of both at once
                phi <- sum_i n_i phi_i / sum_i n_i

Only heads are sent, so backbones may differ. Until there is an average a client trains its own head. The
rounds are as in `protocols.shared.averaged_parts`.

Differences from the paper: Pillutla et al. share most layers, and weight clients as in their objective. Here
only the head is shared, and clients are weighted by their numbers of samples or equally (`weights`). Their
models are evaluated with the average, which their algorithm computes at the end of a round. Here the average
comes with the next round's task, so by default a client is evaluated by its last trained model, including its
own head: this favors the method if classes differ. With `broadcast = "all"`, the average is sent as soon as
it is computed, and replaces the head in evaluations.
"""

from typing import Any

from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.shared.averaged_parts import AveragedPartServer, AveragedPartSettings, SharedPart
from protocols.shared.server_rounds import RoundClient


class FedSimSettings(AveragedPartSettings):
    """Average the heads of the clients."""


class FedSim(RoundClient):
    """Client that shares its head."""

    Settings = FedSimSettings
    search_space = SearchSpace(
        "only the local work",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    server = AveragedPartServer
    parts = ()
    heterogeneous = True

    def setup(self) -> None:
        self.head = SharedPart(self, "head")

    async def work(self, task: Any) -> object:
        return await self.head.work(task)

    def learn(self, news: Any) -> None:
        self.head.take(news.part)
