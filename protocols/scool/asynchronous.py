"""Clients of SCooL without rounds: no client waits for another."""

from collections.abc import Mapping
from typing import final

from protocols.framework.client import Client
from protocols.scool.descent import descent_of
from protocols.scool.messages import EvaluationRequest, Shared
from protocols.scool.peer_evaluation import PeerEvaluations
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings


@final
class SCooLAsynchronous(Client):
    """Client of SCooL with any of its priors, without rounds."""

    Settings = SCooLSettings
    settings: SCooLSettings

    def setup(self) -> None:
        self.weights_are_shares = self.settings.prior == "attention"
        self.posterior = Posterior(self, self.settings, waits=False)
        self.evaluations = PeerEvaluations(self, self.settings, self.posterior)
        self.descent = descent_of(self, self.settings, self.evaluations)

    async def run(self) -> None:
        self.evaluations.publish(self.iterations, -1)
        await super().run()

    async def step(self) -> None:
        """Train, use the answers that have come meanwhile, and ask again."""
        judged = await self.descent.model_to_judge(0)
        await self.posterior.infer(judged)  # E
        await self.descent.m_step(oldest=None)  # M
        self.evaluations.earn_time()
        for peer in self.evaluations.peers_to_ask():
            self.spawn(self.evaluations.ask(peer, self.evaluations.request(peer, self.params, 0)))
        self.posterior.learn_and_gossip()  # M of the parameters that all clients estimate together

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case EvaluationRequest():
                self.posterior.listen(sender, message.beliefs)
                self.evaluations.peer_time.met(sender, message.time, message.iterations)
                # In a task, so that no other message has to wait for the loss.
                return self.spawn(self.evaluations.evaluated(message, sender))
            case Shared():
                self.posterior.merge(message)
        return None

    def weights(self) -> Mapping[str, float] | None:
        return None if self.posterior.fixed else self.posterior.row
