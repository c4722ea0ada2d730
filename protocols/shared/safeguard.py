"""Protection of a slow client's own training from help that does not pay.

Methods without rounds mix what their peers send, with weights that assume roughly equal progress. A client
that is much slower than its peers can lose its few own steps in such a mixture. It therefore compares models
by their losses on its own samples, and continues from the best one: the model of its own training, as without
peers; the model that the method mixed; or a peer's model.
"""

import math

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.compute import Batch, Samples
from protocols.framework.vectors import Vector
from protocols.shared.judging import model_losses
from protocols.shared.pace import RelativePace

FITTED = 0.1
"""Loss on training samples, as a share of the loss of guessing among the classes, below which models count as
equally good: the samples then no longer show which model generalizes, so the method decides."""
COMPARED = 3
"""Maximum number of peers' models in a comparison."""
PAUSE_MAX = 16
"""Maximum number of iterations of own training without a comparison, after comparisons without effect."""


class Safeguard(Component):
    """Choice between a client's own training and its peers' help, by a client that is far behind its peers.

    Each comparison uses the held-out samples or, if the method has none, a batch of training samples,
    and takes a third of a training step per model and batch. If no help is better, the client trains
    alone for 1, 2, 4, ..., at most `PAUSE_MAX` iterations. Other clients compare nothing.

    rests_first: train alone in the first iteration of a session, for methods whose peers send only updates.

    helped: whether the last comparison chose a peer's help; False before the first one.
    """

    def __init__(
        self,
        client: Client,
        pace: RelativePace,
        *,
        enabled: bool,
        held_back: bool = False,
        rests_first: bool = False,
    ) -> None:
        super().__init__(client)
        self.pace = pace
        self.enabled = enabled
        self.held_back = held_back
        self.helped = False
        self.rests_first = rests_first
        self.pause_left = int(rests_first)
        self.next_pause = 1
        self._batch: Batch | None = None
        self._own: tuple[Vector, float] | None = None

    def session_started(self) -> None:
        self.pause_left, self.next_pause, self._batch, self._own = int(self.rests_first), 1, None, None

    def step_ended(self) -> None:
        self.pause_left = max(0, self.pause_left - 1)
        self._batch = self._own = None

    @property
    def active(self) -> bool:
        """True if the safeguard is enabled and this client is so far behind that it must compare models."""
        return self.enabled and self.pace.is_far_behind

    @property
    def resting(self) -> bool:
        """True if `active` and this client trains alone now: no help was better, or it `rests_first`."""
        return self.pause_left > 0 and self.active

    async def loss_of(self, own: Vector) -> float:
        """Return the loss of `own`, this client's own model, computed once per iteration."""
        if self._own is None or self._own[0] is not own:
            [loss] = await model_losses(self.client, [own], self._samples)
            self._own = (own, loss)
        return self._own[1]

    @property
    def _samples(self) -> Samples:
        if self.held_back:
            return "validation"
        self._batch = self._batch or self.client.batch()
        return self._batch

    async def best(self, own: Vector, mixed: Vector, *others: Vector) -> Vector:
        """Return the model to continue from: the client's model trained alone, the method's, or another.

        own: the model after the client's own steps, as without peers. mixed: the method's model. others:
        models of peers. Returns `mixed` unless the safeguard is `active`, and `own` while it is `resting`.
        Of equally good models, `mixed` is preferred, then the first one of `others`.
        """
        if not self.active:
            return mixed
        if self.resting:
            return own
        candidates = [mixed, *others]
        losses = [*await model_losses(self.client, candidates, self._samples), await self.loss_of(own)]
        classes = self.client.compute.classes
        if classes and not self.held_back:
            losses = [max(loss, FITTED * math.log(classes)) for loss in losses]
        chosen = losses.index(min(losses))
        self.helped = chosen < len(candidates)
        if self.helped:
            self.next_pause = 1
        else:
            self.pause_left = 1 + self.next_pause  # this iteration ends, too
            self.next_pause = min(2 * self.next_pause, PAUSE_MAX)
        return candidates[chosen] if self.helped else own
