"""FedClassAvg: a server averages heads; clients contrast features and stay near the average head.

Jang et al., "FedClassAvg: Local representation learning for personalized federated learning on heterogeneous
neural networks" (2022), with client i's backbone theta_i and head phi_i:

    each round: phi_i <- phi for the sampled clients i
                (theta_i, phi_i) <- E local epochs on l_cont + l_ce + rho ||phi_i - phi||
                phi <- sum_i n_i phi_i / sum_i n_i

Only heads are sent, as in FedSim. The anchor phi of the last term is the model's part "head_anchor"; a client
without an anchor yet trains without that term. `protocols.shared.local_losses.ContrastiveClassifier`
describes the losses and their differences.

Differences from the paper: its code has each client train alone for E epochs before the first round, and then
starts with one client's initial head; here the first round is this training, and its average follows.
"""

from typing import Any, Literal

from actors.settings.quantities import PositiveWeight, Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.averaged_parts import AveragedPartServer, AveragedPartSettings, SharedPart
from protocols.shared.local_losses import ContrastiveClassifier
from protocols.shared.server_rounds import RoundClient


class FedClassAvgSettings(AveragedPartSettings):
    """Average the heads of clients that contrast their features."""

    rho: Weight = 0.1
    """Strength of the pull towards the average head."""
    temperature: PositiveWeight = 100.0
    """Temperature tau of the contrastive loss; by default the value in MAPL's comparison."""
    pull: Literal["norm", "squared", "code"] = "norm"
    """Distance between heads: the norm of the difference, half its square, or the authors' code's mean
    squares."""


class FedClassAvg(RoundClient):
    """Client that shares its head and is pulled towards the average."""

    Settings = FedClassAvgSettings
    search_space = SearchSpace(
        "coterie's default rho of 0.1, with a decade on each side; temperatures up to MAPL's 100",
        {
            "rho": Range(0.01, 1.0, log=True),
            "temperature": Range(1.0, 100.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = AveragedPartServer
    parts = ("head_anchor",)
    heterogeneous = True

    @classmethod
    def objective(cls, settings: ProtocolSettings) -> ContrastiveClassifier:
        assert isinstance(settings, FedClassAvgSettings)
        return ContrastiveClassifier(rho=settings.rho, temperature=settings.temperature, pull=settings.pull)

    def setup(self) -> None:
        self.head = SharedPart(self, "head")

    async def work(self, task: Any) -> object:
        if task.part is not None:
            self.take(task.part)
        return await self.head.trained()

    def learn(self, news: Any) -> None:
        self.take(news.part)

    def take(self, part: Vector) -> None:
        """Continue with the average, and use it as the anchor."""
        self.head.take(part)
        self.params = self.with_part(self.params, "head_anchor", part)
