"""FedClassAvg: a server averages heads, and clients stay near the average while features are contrasted.

Jang et al., "FedClassAvg: Local representation learning for personalized federated learning on heterogeneous
neural networks" (2022), with client i's backbone theta_i and head phi_i:

    each round: phi_i <- phi for the sampled clients i
                (theta_i, phi_i) <- E local epochs on l_cont + l_ce + rho ||phi_i - phi||
                phi <- sum_i n_i phi_i / sum_i n_i

Only heads travel, as in FedSim. The anchor phi of the last term lies in the model's part "head_anchor"; a
client that has had none yet trains without that term. For the losses and what differs in them see
`protocols.shared.local_losses.ContrastiveClassifier`.

Differences to the paper: its code has each client train alone for E epochs before the first round, and then
begins with one client's initial head; here the first round does the former, and its average follows.
"""

from typing import Any, Literal

from actors.settings.quantities import PositiveWeight, Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.vectors import Vector
from protocols.shared.averaged_parts import AveragedPartServer, AveragedPartSettings, SharedPart
from protocols.shared.local_losses import ContrastiveClassifier
from protocols.shared.server_rounds import RoundClient


class FedClassAvgSettings(AveragedPartSettings):
    """A server averages the heads of clients that contrast their features."""

    rho: Weight = 0.1
    """Strength of the pull towards the average head."""
    temperature: PositiveWeight = 100.0
    """Temperature tau of the contrastive loss; MAPL's, for its comparison."""
    pull: Literal["norm", "squared", "code"] = "norm"
    """The distance between heads: the norm of the difference, half its square, or the authors' code's mean
    squares."""


class FedClassAvg(RoundClient):
    """A client that shares its head and is pulled towards the average."""

    Settings = FedClassAvgSettings
    server = AveragedPartServer
    parts = ("head_anchor",)
    heterogeneous = True

    @classmethod
    def objective(cls, settings: ProtocolSettings) -> ContrastiveClassifier:
        assert isinstance(settings, FedClassAvgSettings)
        return ContrastiveClassifier(rho=settings.rho, temperature=settings.temperature, pull=settings.pull)

    def begin(self) -> None:
        self.head = SharedPart(self, "head")

    async def work(self, task: Any) -> object:
        if task.part is not None:
            self.take(task.part)
        return await self.head.trained()

    def learn(self, news: Any) -> None:
        self.take(news.part)

    def take(self, part: Vector) -> None:
        """Go on with the average, and stay near it."""
        self.head.take(part)
        self.params = self.with_part(self.params, "head_anchor", part)
