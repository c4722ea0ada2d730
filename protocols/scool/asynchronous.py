"""Clients of SCooL without rounds: no client waits for another."""

from collections.abc import Mapping
from typing import final

from protocols.framework.client import Client
from protocols.framework.per_peer import PerPeer
from protocols.framework.vectors import Vector
from protocols.scool.descent import make_descent
from protocols.scool.messages import EvaluationRequest, Shared
from protocols.scool.peer_evaluation import PeerEvaluations
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings
from protocols.shared.safeguard import COMPARED, Safeguard


@final
class SCooLAsynchronous(Client):
    """Client of SCooL with any of its priors, without rounds."""

    Settings = SCooLSettings
    settings: SCooLSettings

    def setup(self) -> None:
        self.weights_are_shares = self.settings.prior == "attention"
        self.posterior = Posterior(self, self.settings, waits=False)
        self.evaluations = PeerEvaluations(self, self.settings, self.posterior)
        self.safeguard = Safeguard(
            self,
            self.evaluations.peer_time,
            enabled=self.settings.safeguard and not (self.posterior.fixed or self.posterior.exact),
            held_back=self.settings.judged_on == "validation",
        )
        self.evaluations.protects = self.safeguard.enabled
        self.evaluations.peer_time.pays = not self.safeguard.enabled  # only after it has got help
        self.descent = make_descent(self, self.settings, self.evaluations)
        # Peers' models that came to be evaluated, while this client is far behind.
        self.models = PerPeer[Vector](self)

    async def run(self) -> None:
        self.models.clear()
        self.evaluations.publish(self.iterations, -1)
        await super().run()

    async def step(self) -> None:
        """Train, use the answers that have come meanwhile, and ask again."""
        judged = await self.descent.model_to_judge(0)
        await self.evaluations.trained_first()
        if not self.safeguard.resting:
            await self.posterior.infer(judged, self.safeguard)  # E
        self.params = await self.safeguarded(judged, await self.descent.m_step(oldest=None))  # M
        self.evaluations.earn_time()
        for peer in self.evaluations.peers_to_ask():
            self.spawn(self.evaluations.ask(peer, self.evaluations.request(peer, self.params, 0)))
        self.posterior.learn_and_gossip()  # M of the parameters that all clients estimate together

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case EvaluationRequest():
                self.posterior.listen(sender, message.beliefs)
                self.evaluations.peer_time.met(sender, message.time, message.iterations)
                if message.params is not None and self.may_need_models:
                    self.models[sender] = message.params
                # In a task, so that no other message has to wait for the loss.
                return self.spawn(self.evaluations.evaluated(message, sender))
            case Shared():
                self.posterior.merge(message)
        return None

    @property
    def may_need_models(self) -> bool:
        """True if the safeguard is on and this client is far behind its peers, whose models it then keeps."""
        pace = self.evaluations.peer_time
        return self.safeguard.enabled and (pace.was_far_behind or (pace.pace is None and pace.is_far_behind))

    async def safeguarded(self, own: Vector, mixed: Vector) -> Vector:
        """Return the mixed model, or a better one if this client is far behind its peers.

        own: this client's model after local training, without peers. Received models are also compared, each
        at most once, up to COMPARED in a call, in descending order of the peers' weights.
        """
        if not self.safeguard.active or not (self.models or self.posterior.row):
            return mixed
        others = []
        if self.models and not self.safeguard.resting:
            row = self.posterior.row
            ranked = sorted(self.models, key=lambda peer: (-row.get(peer, 0.0), peer))
            others = [self.models.pop(peer) for peer in ranked[:COMPARED]]
        best = await self.safeguard.best(own, mixed, *others)
        self.evaluations.peer_time.pays = self.safeguard.helped
        return best

    def weights(self) -> Mapping[str, float] | None:
        return None if self.posterior.fixed else self.posterior.row
