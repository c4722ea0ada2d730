"""Clients of SCooL in rounds: algorithm 1."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from actors.delivery.round_messages import RoundMessages
from protocols.framework.client import Client
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    common_start_requirement,
    held_out_requirement,
)
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector
from protocols.scool.asynchronous import SCooLAsynchronous
from protocols.scool.descent import make_descent
from protocols.scool.messages import EvaluationRequest, PeerEvaluation, Shared
from protocols.scool.peer_evaluation import PeerEvaluations
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings


@final
class SCooL(Client):
    """Client of SCooL with any of its priors, in rounds; `SCooLAsynchronous` is the form without rounds."""

    Settings = SCooLSettings
    search_space = SearchSpace(
        "temperatures of the paper (appendix), 1 to 9, and steps as for all methods",
        {
            "temperature": Range(0.3, 9.0, log=True),
            "learn_after": OneOf((0, 10, 30)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: SCooLSettings
    collected = (PeerEvaluation,)
    asynchronous = SCooLAsynchronous

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, SCooLSettings)
        return (common_start_requirement("shared"), *held_out_requirement(settings.judged_on))

    def setup(self) -> None:
        self.weights_are_shares = self.settings.prior == "attention"
        self.rounds = RoundMessages(self)
        self.posterior = Posterior(self, self.settings, waits=True)
        self.evaluations = PeerEvaluations(self, self.settings, self.posterior)
        self.descent = make_descent(self, self.settings, self.evaluations)

    async def run(self) -> None:
        # As of the previous round, so that questions of this round are answered after this client's training.
        self.evaluations.publish(self.iterations, self.rounds.number - 1)
        await super().run()

    async def step(self) -> None:
        # With eq. 33 the client's steps of M (line 14) come before E: answers to peers contain their sum.
        judged = await self.descent.model_to_judge(self.rounds.number)
        # Each peer j answers: log P(D_j | theta_i) for E, its updates or a gradient for M, and its beliefs.
        await self.ask_all(judged)
        # E (lines 7 and 8): w_i and the prior's parameters; with attention also M of the encoder's phi.
        await self.posterior.infer(judged)
        # M (lines 13 to 16): theta_i, with the peers' contributions.
        self.params = await self.descent.m_step(oldest=self.rounds.number)
        # M (line 17): B and alpha by push-sum; the encoder's phi is averaged.
        self.posterior.learn_and_gossip()
        self.start_next_round()

    def start_next_round(self) -> None:
        """Go to the next round, or to a later one that some peer has already reached."""
        known = [peer.evaluation for peer in self.posterior.known.values()]
        rounds = [evaluation.round for evaluation in known if evaluation is not None]
        self.rounds.number = max([self.rounds.number + 1, *rounds])

    async def ask_all(self, model: Vector) -> None:
        """Ask peers, and wait for their answers; suspect those that stay silent for `patience`."""
        names, number = self.evaluations.peers_to_ask(), self.rounds.number
        for peer in names:
            self.rounds.tell(peer, self.evaluations.request(peer, model, number))
        found = await self.rounds.collect(
            PeerEvaluation, names, self.settings.patience, after=EvaluationRequest
        )
        self.rounds.discard(PeerEvaluation)
        for peer in names:
            if peer in found:
                self.evaluations.record(peer, found[peer].message)  # type: ignore[arg-type]
                # No pauses in rounds: a peer without news, because it has finished, still evaluates models.
                self.posterior.known[peer].pause_left = 0
            elif self.is_peer(peer):
                self.suspect(peer)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case EvaluationRequest():
                if sender in self.posterior.dropped:  # other peers send their beliefs with their answers
                    self.posterior.listen(sender, message.beliefs)
                if message.round > self.rounds.number + 1:
                    self.rounds.number = message.round  # the others continued without this client
                self.spawn(self.answer(message, sender))
            case Shared():
                self.posterior.merge(message)
        return None

    async def answer(self, request: EvaluationRequest, sender: str) -> None:
        """Evaluate a peer's model and answer, once this client is in the request's round or has finished."""
        evaluations, number = self.evaluations, request.round
        while not self.finished and evaluations.published[-1].round < number:
            await evaluations.news.wait()
        fitting = [each for each in evaluations.published if each.round == number]
        latest = (fitting or evaluations.published)[-1]
        if self.finished and not fitting:  # a finished client answers in any round, with its last model
            latest = replace(latest, progress=evaluations.progress, round=max(latest.round, number))
        answer = await evaluations.evaluated(request, sender, latest)
        self.rounds.tell(sender, answer, number, after=EvaluationRequest)

    def weights(self) -> Mapping[str, float] | None:
        return None if self.posterior.fixed else self.posterior.row
