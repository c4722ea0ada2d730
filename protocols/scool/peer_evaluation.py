"""Mutual evaluation of models by clients of SCooL, and exchange of their beliefs."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from actors.message import PeerUnavailable, RemoteError
from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.vectors import Vector
from protocols.scool.messages import Beliefs, EvaluationRequest, PeerEvaluation
from protocols.scool.posterior import Posterior
from protocols.scool.settings import SCooLSettings
from protocols.shared.pace import LOSS_SHARE, TimeForPeers
from protocols.shared.silence import Silence

ATTEMPTS = 2
"""Number of times that a question is sent in the asynchronous form before it is given up, after three
estimated round trips; the next iteration sends a newer question."""
ASKED_SHARE, ASKED_LEAST = 0.05, 20
"""Default number of peers to ask in an iteration: as many as take this share of the time of its training, but
at least the second value (fewer if there are fewer peers)."""


@dataclass(frozen=True)
class Publication:
    """State of a client after `iterations`, for its answers: the progress, and a sketch of the update.

    beliefs: in rounds, the client's beliefs at that time, by peer.
    """

    progress: Vector | None
    iterations: int
    round: int
    time: float
    degree: int
    sketch: Vector | None
    beliefs: Mapping[str, Beliefs] = field(default_factory=dict)


class PeerEvaluations(Component):
    """Evaluations of a client's model that it requests from peers, and its evaluations of peers' models."""

    def __init__(self, client: Client, settings: SCooLSettings, posterior: Posterior) -> None:
        super().__init__(client)
        self.settings = settings
        self.posterior = posterior
        self.peer_time = TimeForPeers(client)
        self.silence = Silence(client, settings.patience)
        client.round_trips.wait_at_first(settings.patience)
        self.progress_made = client.params - client.params
        self.published: tuple[Publication, ...] = ()  # of the last two rounds
        self.news = asyncio.Event()  # set by a later publication
        self.protects = False  # whether this client's own training comes first while it is far behind
        self.first_training: asyncio.Event | None = None  # set at the end of the first training of a session

    def session_started(self) -> None:
        self.posterior.known.clear()  # of an earlier session: later progress must not count as one step
        self.peer_time.paces.clear()
        self.earn_time()
        self.first_training = asyncio.Event() if self.protects else None

    def budget_spent(self) -> None:
        self.news.set()  # peers that wait for a later round get the last one
        if self.first_training is not None:
            self.first_training.set()

    # --- answers --------------------------------------------------------------------------------------------

    @property
    def progress(self) -> Vector | None:
        """Progress that peers use: the sum of this client's own updates so far.

        With given weights, it is the client's model; with exact gradients, None.
        """
        if self.posterior.fixed:
            return self.client.params
        return None if self.posterior.exact else self.progress_made

    def publish(self, iterations: int, number: int, model: Vector | None = None) -> None:
        """Set the state that later answers to peers contain: after `iterations`, in round `number`.

        model: the current model, by default `params`, for the sketch of attention.
        """
        client, prior = self.client, self.posterior.prior
        drawn = prior.sketched(client.params if model is None else model)
        # Later learning belongs to the next round.
        beliefs = prior.beliefs_of_all(client.peers) if self.posterior.waits else {}
        latest = Publication(self.progress, iterations, number, client.now, len(client.peers), drawn, beliefs)
        self.published = (*self.published[-1:], latest)
        self.news.set()
        self.news = asyncio.Event()

    async def evaluated(
        self, request: EvaluationRequest, sender: str, latest: Publication | None = None
    ) -> PeerEvaluation:
        """Evaluate a peer's model, if it sent one and there is time, and answer with the published state."""
        client = self.client
        if latest is None:
            latest = self.published[-1]
            if client.finished:  # with the updates that have come since
                latest = replace(latest, progress=self.progress)
        loss = gradient = None
        if self.first_training is not None and not client.finished:
            # The device is busy with it anyway, and at its end a slow client knows that it is slow. A client
            # that rejoins with a spent budget does not train.
            await self.first_training.wait()
        # In rounds and after the end, the client waits anyway.
        has_time = self.posterior.waits or self.peer_time.suffices or client.finished
        if request.params is not None and has_time:
            self.peer_time.spend(self.cost)
            loss = await client.loss(request.params, on="batch" if self.is_brief else self.settings.judged_on)
            if self.settings.cross_gradients == "exact":
                gradient = await client.gradient(request.params)
        return PeerEvaluation(
            loss,
            gradient,
            latest.progress,
            latest.iterations,
            latest.round,
            latest.degree,
            latest.time,
            self._beliefs(sender, latest),
        )

    def _beliefs(self, peer: str, latest: Publication) -> Beliefs:
        """Return the part of this client's posterior that `peer` needs to know."""
        beliefs = latest.beliefs.get(peer) or self.posterior.prior.beliefs(peer)
        return replace(beliefs, sketch=latest.sketch)

    # --- requests -------------------------------------------------------------------------------------------

    def peers_to_ask(self) -> list[str]:
        """Return the peers to ask in this iteration; if there are too many, those asked least often.

        With given weights, the number of peers is not limited. A peer that has yet to answer, or that pauses,
        is left out. Each call shortens all pauses by one iteration.
        """
        ready = []
        for peer in self.posterior.targets():
            known = self.posterior.known[peer]
            known.pause_left = max(0, known.pause_left - 1)
            if not (known.asking or known.pause_left):
                ready.append(peer)
        limit = self.settings.consulted
        if limit is None:  # on average the same number of peers asks this client
            limit = max(
                ASKED_LEAST, int(ASKED_SHARE * steps_per_iteration(self.client, self.settings) / self.cost)
            )
        if not self.posterior.fixed and len(ready) > limit:
            mixed = [ready[k] for k in self.client.rng.permutation(len(ready)).tolist()]
            ready = sorted(sorted(mixed, key=lambda peer: self.posterior.known[peer].times_asked)[:limit])
        return ready

    def request(self, peer: str, model: Vector, number: int) -> EvaluationRequest:
        """Return the question to a peer after the iteration that ends now, in round `number`."""
        client, known = self.client, self.posterior.known[peer]
        known.times_asked += 1
        if known.first_asked is None:
            known.first_asked = client.iterations
        evaluated = None if self.posterior.fixed else model
        beliefs = self._beliefs(peer, self.published[-1])
        return EvaluationRequest(evaluated, beliefs, number, client.iterations + 1, client.now)

    async def ask(self, peer: str, request: EvaluationRequest) -> None:
        """Ask one peer, without rounds."""
        known = self.posterior.known[peer]
        known.asking = True
        try:
            evaluation = await self.client.ask(
                peer, request, timeout=self.settings.patience, attempts=ATTEMPTS
            )
            self.record(peer, evaluation)
        except PeerUnavailable:
            self.silence.suspect_if_silent(peer)
        except RemoteError:
            self.client.suspect(peer)
        finally:
            known.asking = False

    def record(self, peer: str, evaluation: PeerEvaluation) -> None:
        """Record an answer."""
        known = self.posterior.known[peer]
        self.peer_time.met(peer, evaluation.time, evaluation.iterations)
        known.answered(evaluation)
        self.posterior.listen(peer, evaluation.beliefs)

    def earn_time(self) -> None:
        """Add the device time for peers that an iteration earns; also called at the start of a session."""
        steps, called_for = (
            steps_per_iteration(self.client, self.settings),
            self.cost * len(self.client.peers),
        )
        self.peer_time.earn(steps, self.settings.share_for_peers, called_for)

    @property
    def is_brief(self) -> bool:
        """True if a slow client evaluates models on one batch where the settings state all samples."""
        return self.protects and self.settings.judged_on == "train" and self.peer_time.was_far_behind

    async def trained_first(self) -> None:
        """Evaluate the models that came during the first training of a session, before anything else."""
        if self.first_training is not None:
            self.first_training.set()
            self.first_training = None
            await asyncio.sleep(0)

    @property
    def cost(self) -> float:
        """Time of an evaluation, in units of a gradient's time."""
        one_batch = self.settings.judged_on == "batch" or self.is_brief
        batches = 1 if one_batch else self.client.compute.steps_per_epoch
        return LOSS_SHARE * batches + (self.settings.cross_gradients == "exact")


def steps_per_iteration(client: Client, settings: SCooLSettings) -> int:
    """Return the number of training steps of an iteration."""
    return settings.local_steps or settings.local_epochs * client.compute.steps_per_epoch
