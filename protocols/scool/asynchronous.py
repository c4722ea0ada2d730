"""SCooL's clients without rounds: nobody waits for anybody."""

from collections.abc import Mapping
from typing import final

from protocols.framework.client import Client
from protocols.scool.descent import Descent
from protocols.scool.messages import EvaluationRequest, Shared
from protocols.scool.peer_evaluation import PeerEvaluations
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings


@final
class SCooLAsynchronous(Client):
    """SCooL with any of its priors, without rounds."""

    Settings = SCooLSettings
    settings: SCooLSettings

    def begin(self) -> None:
        self.weights_are_shares = self.settings.prior == "attention"
        self.posterior = Posterior(self, self.settings, waits=False)
        self.evaluations = PeerEvaluations(self, self.settings, self.posterior)
        self.descent = Descent(self, self.settings, self.evaluations)

    async def run(self) -> None:
        self.evaluations.publish(self.iterations, -1)
        await super().run()

    async def step(self) -> None:
        """Train, make use of what has come meanwhile, and ask again."""
        evaluations, posterior = self.evaluations, self.posterior
        if self.descent.begins_with_answers:
            await posterior.infer(self.params, evaluations.published[-1].sketch)
            await self.descent.descend(oldest=None)
            evaluations.publish(self.iterations + 1, 0)
        else:
            update = await self.descent.train(0)
            await posterior.infer(self.params + update, evaluations.published[-1].sketch)
            self.params = self.descent.combined(update)
        evaluations.earn_time()
        for peer in evaluations.asked_now():
            self.spawn(evaluations.ask(peer, evaluations.request(peer, self.params, 0)))
        posterior.share()

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case EvaluationRequest():
                self.posterior.listen(sender, message.beliefs)
                self.evaluations.peer_time.met(sender, message.time, message.iterations)
                # A loss holds up no other message.
                return self.spawn(self.evaluations.evaluated(message, sender))
            case Shared():
                self.posterior.merge(message)
        return None

    def weights(self) -> Mapping[str, float] | None:
        return None if self.posterior.fixed else self.posterior.row
