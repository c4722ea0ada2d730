"""Common base of clients and servers: an actor with peers, a model, and optionally a device and data."""

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Literal, overload

import numpy as np

from actors.actor import Actor
from actors.delivery.round_trips import doubled_wait_s
from actors.message import Envelope, PeerUnavailable, RepeatRequest, RoundMark
from protocols.framework.compute import Batch, Compute, Reduction, Samples, TrainRequest
from protocols.framework.context import ClientContext
from protocols.framework.former_names import accept_former_names
from protocols.framework.listener import NodeListener
from protocols.framework.vectors import Scalar, Vector
from protocols.membership.view import MembershipMessage

_PICKS_DRAWN = 32
_NO_NUMBERS = array("d")
# A suspected peer is contacted again for _SEEK_FOR_S. Pauses double from _SEEK_AFTER_S to a minute, and are
# at least the silence so far divided by _SEEK_PARTS: in a long run this costs little.
_SEEK_AFTER_S = 1.0
_SEEK_PARTS = 60.0
_SEEK_FOR_S = 180 * 86_400.0


@dataclass(frozen=True)
class AreYouThere:
    """Notice to a silent peer that the sender is up, so that the peer sends messages to it again.

    The notice has no answer. The sender waits for the peer again only after the peer itself sends a message,
    because the peer may be too slow.
    """


@dataclass(frozen=True)
class ModelWanted:
    """Request of a newcomer for the receiver's model."""


@dataclass(frozen=True)
class CurrentModel:
    """Model of the sender, for a newcomer; None from a client that has not started yet."""

    params: Vector | None


_new_request = tuple.__new__
_FOR_EVERY_NODE = frozenset({AreYouThere, CurrentModel, ModelWanted, RepeatRequest})


class Node(Actor):
    """Actor that knows its peers, has a model, and computes if it has a device and data.

    Fields: `params`, the current model (an immutable handle: assign a new one); `compute`, its device and
    data, which a server has only if the scenario gives it some.
    """

    _machinery: ClassVar[bool] = True
    rng: np.random.Generator
    """Random stream of this client, derived from the scenario's seed; use no other source of randomness."""
    newcomer = False
    """True from a join, a rejoin without state, or a restart until the client has received a model to
    start from, or starts from its own initial model."""
    late = False
    """True if the client joined, rejoined or was restarted after the start."""

    finished: bool
    """True if the budget is exhausted and all jobs are done, or if the server's rounds are over. The
    client then only answers its peers."""
    compute: Compute
    _components: tuple[NodeListener, ...] = ()
    _message_listeners: tuple[NodeListener, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        accept_former_names(cls)

    def __init__(self, name: str, context: ClientContext, compute: Compute | None, initial: Vector) -> None:
        super().__init__(name, context.transport)
        self.context = context
        self._membership = context.membership
        self.rng = context.rng
        self._receivers = context.links.receivers
        self._uniforms = _NO_NUMBERS  # random numbers in [0, 1) for `pick_peer`
        # By peer: the task that contacts a suspected peer from time to time; None before the first suspicion.
        self._sought: dict[str, asyncio.Task[None]] | None = None
        self._membership.on_change = self.peer_changed
        if compute is not None:
            self.compute = compute
        self._params = initial
        # As class attributes they would be added to each object later: Python then gives up the compact form
        # of its attributes, and many clients no longer fit into the processor's cache.
        self.finished = False
        self._stepping = False  # whether `run` is repeating `step`

    def observe(self, name: str, value: Any) -> None:
        """Record a number or a Scalar under a name; each evaluation stores the mean since the last one.

        The call is free. Raises TypeError for a value that is not a number, and for these names, which
        coterie uses itself: `accuracy`, `loss`, `distance` and other metrics of `run.metrics`, also with
        `_alone` or `_of_...` appended; `iterations`, `models_at_start`, `alive`, `bytes_sent`,
        `messages_sent`, `steps_taken`, `flops`, `training_steps`, `gradients`, `samples_seen`; and, if
        coterie's code records them for the same client or server, `staleness` (`Rounds`, `AsyncClient`) or
        `versions_behind` (`AsyncServer`).
        """
        self.context.observe(self.name, name, value)

    def setup(self) -> None:
        """Set up the fields and components of a client or server; called once, before the first step."""

    def _add_component(self, component: NodeListener) -> None:
        """Register a component, which is then notified of the events of this node; `Component` calls this."""
        self._components = (*self._components, component)
        # Only components that need messages: it costs a call for each message.
        if type(component).message_received is not NodeListener.message_received:
            self._message_listeners = (*self._message_listeners, component)

    @property
    def peers(self) -> list[str]:
        """Names of the peers that this client considers up, sorted; this view may be wrong.

        In a directed topology, these are the peers to which this client may send.
        """
        peers, receivers = self._membership.peers, self._receivers
        return peers if receivers is None else [peer for peer in peers if peer in receivers]

    @property
    def senders(self) -> list[str]:
        """Names of the clients that may send to this client and are considered up; `peers` if undirected."""
        peers, senders = self._membership.peers, self.context.links.senders
        return peers if senders is None else [peer for peer in peers if peer in senders]

    @property
    def mixing_weights(self) -> Mapping[str, float] | None:
        """Weight that a weighted topology sets for the model of each sender of this client, by name.

        The client's own model has the remaining weight, up to 1. None if the topology sets no weights.
        """
        return self.context.links.weights

    def is_peer(self, name: str) -> bool:
        """Return whether `name` is among `peers`."""
        peers = self.peers
        index = bisect_left(peers, name)
        return index < len(peers) and peers[index] == name

    def pick_peer(self) -> str:
        """Return a random peer. Raises PeerUnavailable if there is none."""
        return self._any_of(self.peers)

    def _any_of(self, peers: list[str]) -> str:
        if not peers:
            raise PeerUnavailable("every peer", f"{self.name} knows no peer that is up")
        if not self._uniforms:
            # Single draws cost ten times as much; an array takes a quarter of a list's memory.
            self._uniforms = array("d", self.rng.random(_PICKS_DRAWN).tobytes())
        return peers[int(self._uniforms.pop() * len(peers))]

    def vector(self, numbers: Any) -> Any:
        """Return a handle on known numbers: a Vector for an array [n], a Scalar for a number.

        Raises ValueError for more than one dimension, and for integers of magnitude above 16,777,216.

        >>> float(client.vector([3.0, 0.0, 4.0]).norm())
        5.0
        """
        return self.params.like(numbers)

    def suspect(self, peer: str) -> None:
        """Consider a silent `peer` down until a message arrives from it.

        The network may have cut the peer off, and the peer may also consider this client down. So that the
        two find each other again, this client notifies the peer from time to time. The pause between notices
        doubles up to a minute; after the first hour, the client sends the next notice when the silence has
        grown by a sixtieth. After half a year, it sends none.
        """
        believed = peer in self.peers
        self._membership.suspect(peer)
        if believed and peer not in self.peers:
            sought = self._sought = self._sought or {}
            if peer in sought:
                sought[peer].cancel()  # the doubled pauses of an earlier silence do not count
            sought[peer] = self.spawn(self._seek(peer))

    async def _seek(self, peer: str) -> None:
        start_s = self.now
        for times in count():
            silent_s = self.now - start_s
            await self.sleep(max(doubled_wait_s(_SEEK_AFTER_S, times), silent_s / _SEEK_PARTS))
            if peer in self.peers or silent_s > _SEEK_FOR_S:
                return
            self.tell(peer, AreYouThere())

    def intercept(self, message: object, sender: str) -> bool:
        """Inspect an arriving message; return True if membership or the framework has handled it."""
        self._membership.received_from(sender)
        for component in self._message_listeners:
            component.message_received(message, sender)
        if isinstance(message, MembershipMessage):
            return self._membership.on_message(message, sender)
        return type(message) in _FOR_EVERY_NODE and self._answered(message, sender)

    def _answered(self, message: object, sender: str) -> bool:
        """Answer requests that every node handles; return False if the message is for the method."""
        if type(message) is CurrentModel:
            return not self.newcomer  # a client that has started does not need it
        if type(message) is ModelWanted:
            self._give_model(sender, None)
        elif isinstance(message, RepeatRequest):
            if message.kind != CurrentModel.__name__:
                return False
            self._give_model(sender, message.attempt)
        return True

    def _give_model(self, newcomer: str, repeat: int | None) -> None:
        model = CurrentModel(None if self.newcomer else self.params)
        self._send_marked(Envelope(self.name, newcomer, model, RoundMark(0, awaits=False, repeat=repeat)))

    def peer_changed(self, peer: str, up: bool) -> None:
        """React to a change of `peers`: `peer` joined or left. The client stops waiting for a peer that left.

        Exchanges of peers in a sampled view do not count.
        """
        if not up:
            self._forget(peer)
        for component in self._components:
            component.peer_changed(peer, up)

    # --- model and computations -----------------------------------------------------------------------------

    @property
    def params(self) -> Vector:
        """Current model, an immutable handle. Assign a new one; other objects raise TypeError.

        The model at the start is the client's initial model, or, for a server, the initial model of the
        scenario.
        """
        return self._params

    @params.setter
    def params(self, value: Vector) -> None:
        if type(value) is not type(self._params):
            raise TypeError(
                f"params must be a handle such as self.params + update, not {type(value).__name__}; "
                "arithmetic works on handles without reading their values"
            )
        self._params = value

    def _finish(self) -> None:
        """Record that the budget is exhausted, and later that the last running job is done."""
        self.finished = True
        self.compute.has_finished()

    @property
    def samples(self) -> int:
        """Number of this client's training samples."""
        return self.compute.samples

    async def train(
        self,
        steps: int = 1,
        *,
        start: Vector | None = None,
        proximal: Sequence[tuple[float | Scalar, Vector]] = (),
        weights: Any = None,
        on: Literal["batch"] | Batch = "batch",
        learning_rate: float | None = None,
        fresh_optimizer: bool = False,
    ) -> Vector:
        """Train for `steps` batches and return the UPDATE, which you add to the parameters.

        Write `update = await self.train(...)` and then `self.params = self.params + update`. In one line,
        `self.params = self.params + await self.train(...)` reads `self.params` before the await and loses all
        changes made to `params` during the training.

        A budget that allows fewer steps shortens the training; after the budget is exhausted, the update is
        zero and is returned immediately. Such a call marks the client as finished, unless `run` is still
        repeating `step`. One step of plain SGD returns -learning_rate times the gradient.

        start: parameters to train from (default: `params` now). proximal: pairs (c, a), each adding c/2 ||x -
        a||^2 to the objective. weights: one weight for each of the `samples` training samples, a handle
        [samples] or an array; a step then minimizes the mean of weight times loss over its batch, so weights
        with mean 1 keep the size of a step. on: a `batch()`, used for each of the steps; weights then belong
        to its samples. learning_rate: replaces the scenario's. fresh_optimizer: reset momentum and moments
        first; one optimizer serves all models that a client trains. Raises ValueError for a wrong number of
        weights, for weights below 0, for weights with an objective that has no loss for each sample, and for
        a learning rate that is not a number, below 0 or not finite.

        >>> update = wait(client.train(2, proximal=[(0.5, model)]))
        >>> client.params = client.params + update
        """
        if start is None:
            start = self._params
        left = self.compute.steps_left
        if left < steps:
            if not left:
                if not self._stepping:
                    self._finish()
                return start - start
            steps = int(left)
        # Takes half the time of TrainRequest(...); every step of a run is created here.
        request = _new_request(
            TrainRequest, (start, steps, proximal, learning_rate, fresh_optimizer, on, weights)
        )
        trained = await self.compute.train(request)
        if self.finished:
            self._finish()  # this was the last running job
        return trained - start

    def batch(self) -> Batch:
        """Draw a batch of training samples, to use as `on=` in calls of `loss`, `gradient` and `train`.

        The batch's `samples` is its number of samples, the same as in a training step. The call is free. No
        other client can use the batch.
        """
        return self.compute.batch()

    async def gradient(self, at: Vector, *, on: Samples = "batch", weights: Any = None) -> Vector:
        """Compute the gradient of the mean loss at the parameters `at`, on this client's data.

        on: "batch", a new batch, augmented as in training; a `batch()`, also augmented; "train" or
        "validation", all training or held-out samples, not augmented. The call takes as long as training on
        the same number of samples, and counts in budgets of samples. weights: factors of the losses in the
        mean, one for each sample of `on`, or for each training sample if `on` is "batch"; a handle or an
        array. Raises ValueError as `train` does, and for "validation" if no samples are held out.

        With batch norms and "train" or "validation", samples are processed in chunks of 512 (all at once if
        the objective has two views), and each chunk is normalized by its own mean and variance.

        >>> gradient = wait(client.gradient(model, on="train"))
        >>> client.params = client.params - 0.1 * gradient
        """
        return await self.compute.gradient(at, on, weights)

    @overload
    async def loss(
        self,
        of: Vector,
        on: Samples = "batch",
        *,
        reduction: Literal["mean", "sum"] = "mean",
        weights: Any = None,
    ) -> Scalar: ...

    @overload
    async def loss(
        self, of: Vector, on: Samples = "batch", *, reduction: Literal["none"], weights: Any = None
    ) -> Vector: ...

    async def loss(
        self,
        of: Vector,
        on: Samples = "batch",
        *,
        reduction: Reduction = "mean",
        weights: Any = None,
    ) -> Scalar | Vector:
        """Compute the loss of the parameters `of`, without augmentation or dropout, on this client's data.

        on: "batch", a new batch; "train", all training samples; "validation", the held-out samples; a
        `batch()`. reduction: "mean" and "sum" over the samples are scalars; "none" returns the loss of each
        sample, a vector in the client's order of samples, which `weights` also uses. weights: as for
        `gradient`. With weights, "mean" divides the weighted sum of the losses by the number of samples, not
        by the sum of the weights. Raises ValueError as `gradient` does, and for "none" with an objective that
        has no loss for each sample. A pass takes a third of the time of training on the same number of
        samples.

        >>> float(wait(client.loss(client.params, on="train"))) >= 0.0
        True
        """
        return await self.compute.loss(of, on, reduction, weights)

    async def class_features(self, of: Vector) -> dict[int, Vector]:
        """Compute the mean features z [d_z] of each class of this client's training samples, unaugmented.

        The decoupled model `of` computes the features in one pass over all samples.
        """
        return await self.compute.class_features(of)

    def inputs(self) -> Vector:
        """Return this client's training samples, concatenated: [samples * numbers of a sample].

        Use them for `predict`, and in functions of `apply`. The call is free. Raises ValueError for texts,
        and for samples that have neither classes nor numbers as targets.
        """
        return self.compute.inputs()

    def labels(self) -> Vector:
        """Return the labels of the training samples [samples], or their targets, concatenated.

        The order is that of `inputs()`. Raises ValueError as `inputs` does.
        """
        return self.compute.labels()

    async def predict(self, of: Vector, inputs: Any) -> Vector:
        """Compute the outputs of the parameters `of` on samples that the method provides.

        For classes, the outputs are logits: for B samples and K classes, a vector [B * K], sample by sample.
        inputs: an array [B, ...] of samples that are scaled like the data set (see docs/scenarios/data.md),
        or a handle on their numbers [B * numbers of a sample]. A pass takes a third of the time of training
        on the same number of samples. Raises ValueError for samples of another shape, for numbers that
        float32 cannot represent, and if the models have no outputs.
        """
        return await self.compute.predict(of, inputs)

    def apply(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        steps: float | None = None,
        flops: float | None = None,
        **static: Any,
    ) -> Any:
        """Apply a function to vectors and scalars; deferred.

        `function` works on torch tensors, as for one client: a Vector of n numbers is passed as [n], a Scalar
        or a number as [], an array as [n]. Its result, [] or [n], or a tuple of these, is returned as Scalar
        or Vector. The calls of all clients are computed together (by `torch.func.vmap`), so branches must not
        depend on values, and random numbers must be passed as an argument, such as
        `self.rng.standard_normal(self.params.shape)`. Keyword arguments are the same for all clients:
        numbers, strings and tuples of these, such as the k of top-k. The function may use `torch.func.grad`.

        Results [n] of bool, int8, uint8, int16, int32 or float16 keep their type, also for other functions
        that read them; in a message, they take 1, 1, 1, 2, 4 or 2 bytes for each number. Results [] of these
        types, and float32, float64 and bfloat16, become float32. int64, complex numbers and results with more
        than one dimension are rejected.

        Without a cost, the call is free and returns immediately. With a cost, it is a job of the device,
        which you await: `await self.apply(..., steps=2)`. steps: takes as long as `steps` training steps.
        flops: takes as long as `flops` floating-point operations. The result uses the arguments at the time
        of the call.

        Define the function at the top level of a file; the function must not use state that can change.
        Raises TypeError for a method, a lambda, or a function inside another one. Raises ValueError for a
        function that fails or returns no vector, for integers of magnitude above 16,777,216, and if both
        costs are given or a cost is not above 0. The function is tried at the first call with arguments of
        these shapes, so that errors appear there.

        >>> first, second = client.vector([1.0, 5.0]), client.vector([4.0, 2.0])
        >>> client.apply(torch.maximum, first, second).numpy()
        array([4., 5.], dtype=float32)
        """
        result = self._params.applied(function, arguments, static)
        return result if steps is None and flops is None else self._after(result, steps, flops)

    async def _after(self, result: Any, steps: float | None, flops: float | None) -> Any:
        await self.compute.spend(steps, flops)
        return result

    def part(self, of: Vector, name: str, row: int | None = None) -> Vector:
        """Return a part of a model, such as "head" or "backbone"; with `row`, one row of the part. Deferred.

        Parts of different clients can be mixed if they have the same size, even if their models differ.
        Raises ValueError for a part that the model does not have.
        """
        return self.compute.part(of, name, row)

    def with_part(self, of: Vector, name: str, part: Vector, row: int | None = None) -> Vector:
        """Return `of` with its part `name`, or one row of this part, replaced by `part`; deferred."""
        return self.compute.with_part(of, name, part, row)

    def trainable(self, of: Vector) -> Vector:
        """Return a model or update with 0 for values that no optimizer changes; deferred.

        Running statistics are such values: they describe the inputs, not the learned model. Use the result
        for norms, distances and cosines that compare models.
        """
        return self.context.trainable(of)

    def dot(self, first: Vector, second: Vector) -> Scalar:
        """Return the inner product; deferred, and free of device time, because a gradient costs far more."""
        return first.dot(second)
