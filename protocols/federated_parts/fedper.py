"""FedPer: clients share the backbone, which a server averages, and keep their own heads.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated learning with personalization layers" (2019),
algorithms 1 and 2, with the base layers W_B shared and the personalization layers W_P of client i:

    each round: W_B <- the server's
                (W_B,i, W_P,i) <- E local epochs of SGD, of both at once
                W_B <- sum_i n_i W_B,i / sum_i n_i

Only backbones are sent. The rounds are as in `protocols.shared.averaged_parts`.

Differences from the paper: there all clients take part in each round, as here with `fraction = 1`; the server
sends them the first W_B, while here they start with a common one (`model.initialisation`). The
personalization layers are the last linear layer; the paper also tries the last blocks of a ResNet. A client
is evaluated by its last trained model; with `broadcast = "all"` by its head and the average backbone.
"""

from collections.abc import Sequence
from typing import Any

from protocols.framework.requirements import ProtocolSettings, Requirement, common_start_requirement
from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.shared.averaged_parts import AveragedPartServer, AveragedPartSettings, SharedPart
from protocols.shared.server_rounds import RoundClient


class FedPerSettings(AveragedPartSettings):
    """Average the backbones of the clients."""


class FedPer(RoundClient):
    """Client that shares its backbone."""

    Settings = FedPerSettings
    search_space = SearchSpace(
        "only the local work",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    server = AveragedPartServer
    parts = ()

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (common_start_requirement("shared", "shared-backbone"),)

    def setup(self) -> None:
        self.backbone = SharedPart(self, "backbone")

    async def _start_from_peers(self) -> None:
        """Do nothing: the server has no complete model from which to start."""

    async def work(self, task: Any) -> object:
        return await self.backbone.work(task)

    def learn(self, news: Any) -> None:
        self.backbone.take(news.part)
