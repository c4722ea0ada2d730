"""An actor with peers, a model, and perhaps a device and data: the common base of clients and servers."""

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Literal, overload

import numpy as np

from actors.actor import Actor
from actors.delivery.round_trips import doubled_s
from actors.message import Envelope, PeerUnavailable, RepeatRequest, RoundMark
from protocols.framework.compute import Batch, Compute, Reduction, Samples, TrainRequest
from protocols.framework.context import ClientContext
from protocols.framework.listener import NodeListener
from protocols.framework.vectors import Scalar, Vector
from protocols.membership.view import MembershipMessage

_PICKS_DRAWN = 32
_NO_NUMBERS = array("d")
# A suspected peer is tried again for _SEEK_FOR_S. Pauses double from _SEEK_AFTER_S up to a minute, and are at
# least the silence so far divided by _SEEK_PARTS: in a long run this costs little.
_SEEK_AFTER_S = 1.0
_SEEK_PARTS = 60.0
_SEEK_FOR_S = 180 * 86_400.0


@dataclass(frozen=True)
class AreYouThere:
    """Tells a silent peer that the sender is there, so that it takes the sender for up again and sends to it.

    There is no answer. The sender waits for the peer again only when the peer sends something by itself: it
    may be too slow.
    """


@dataclass(frozen=True)
class ModelWanted:
    """From a newcomer: asks for the receiver's model."""


@dataclass(frozen=True)
class CurrentModel:
    """The sender's model, for a newcomer; None from one that has yet to start itself."""

    params: Vector | None


_new_request = tuple.__new__
_FOR_EVERY_NODE = frozenset({AreYouThere, CurrentModel, ModelWanted, RepeatRequest})


class Node(Actor):
    """An actor that knows its peers, has a model, and computes where it has a device and data.

    Fields: `params`, the current model (an immutable handle: assign a new one); `compute`, its device and
    data, which a server has only where the scenario says so.
    """

    _machinery: ClassVar[bool] = True
    rng: np.random.Generator
    """The client's own random stream, from the scenario's seed: its only source of randomness."""
    newcomer = False
    """Whether it came later than the others, and has no model of its own yet."""
    late = False
    """Whether it came, or came back, later than the others."""

    finished: bool
    """Whether its budget is spent and what it had begun is done: from now on it only serves the others."""
    compute: Compute
    _components: tuple[NodeListener, ...] = ()
    _hearing: tuple[NodeListener, ...] = ()

    def __init__(self, name: str, context: ClientContext, compute: Compute | None, initial: Vector) -> None:
        super().__init__(name, context.transport)
        self.context = context
        self._membership = context.membership
        self.rng = context.rng
        self._receivers = context.links.receivers
        self._uniforms = _NO_NUMBERS  # random numbers in [0, 1) for `pick_peer`
        # By peer: the task that looks for a suspected peer from time to time; None before the first.
        self._sought: dict[str, asyncio.Task[None]] | None = None
        self._membership.on_change = self.peer_changed
        if compute is not None:
            self.compute = compute
        self._params = initial
        # In the class they would come to each object later: Python then gives up the compact form of all its
        # attributes, and many clients no longer fit into the processor's cache.
        self.finished = False
        self._stepping = False  # whether its iterations go on

    def observe(self, name: str, value: Any) -> None:
        """Record a number or a Scalar under a name; free. Kept is the mean since the evaluation before.

        TypeError for what is no number, and for a name under which coterie records: `accuracy`, `loss`,
        `distance` and other measures of `run.metrics`, also with `_alone` or `_of_...` behind them;
        `iterations`, `models_at_start`, `alive`, `bytes_sent`, `messages_sent`, `steps_taken`, `flops`,
        `training_steps`, `gradients`, `samples_seen`; and where coterie's code does so for the same client or
        server, `staleness` (`Rounds`, `AsyncClient`) or `versions_behind` (`AsyncServer`).
        """
        self.context.observe(self.name, name, value)

    def begin(self) -> None:
        """Set up what the method's clients, or servers, keep: their fields, and what they are made of."""

    def _add_component(self, component: NodeListener) -> None:
        """Let a part of the method follow what happens to this node; `Component` calls it."""
        self._components = (*self._components, component)
        if type(component).heard is not NodeListener.heard:  # a call for each message
            self._hearing = (*self._hearing, component)

    @property
    def peers(self) -> list[str]:
        """Names of the peers that this client believes to be up, sorted; a belief, not the truth.

        In a directed topology these are the ones that it may send to.
        """
        peers, receivers = self._membership.peers, self._receivers
        return peers if receivers is None else [peer for peer in peers if peer in receivers]

    @property
    def senders(self) -> list[str]:
        """Names of those that may send to this client and are believed to be up: `peers`, if not directed."""
        peers, senders = self._membership.peers, self.context.links.senders
        return peers if senders is None else [peer for peer in peers if peer in senders]

    @property
    def mixing_weights(self) -> Mapping[str, float] | None:
        """The weight that a weighted topology gives to the model of each sender of this client, by name.

        What is left of 1 is for its own model. None where the topology states no weights.
        """
        return self.context.links.weights

    def is_peer(self, name: str) -> bool:
        """Whether `name` is among `peers`."""
        peers = self.peers
        index = bisect_left(peers, name)
        return index < len(peers) and peers[index] == name

    def pick_peer(self) -> str:
        """One peer at random; PeerUnavailable when there is none."""
        return self._any_of(self.peers)

    def _any_of(self, peers: list[str]) -> str:
        if not peers:
            raise PeerUnavailable("every peer", f"{self.name} knows of none that is up")
        if not self._uniforms:
            # One by one they cost ten times as much; as an array they take a quarter of a list's memory.
            self._uniforms = array("d", self.rng.random(_PICKS_DRAWN).tobytes())
        return peers[int(self._uniforms.pop() * len(peers))]

    def vector(self, numbers: Any) -> Any:
        """A handle on known numbers: a Vector of an array [n], a Scalar of a number. ValueError else.

        >>> float(client.vector([3.0, 0.0, 4.0]).norm())
        5.0
        """
        return self.params.like(numbers)

    def suspect(self, peer: str) -> None:
        """`peer` kept silent too long: count it out until something is heard from it.

        It may have been cut off, and count this client out as well. So that they find each other again, it is
        told from time to time that this client is there: each time after twice as long, up to a minute, and
        after the first hour whenever it has been silent for a sixtieth longer.
        """
        believed = peer in self.peers
        self._membership.suspect(peer)
        if believed and peer not in self.peers:
            sought = self._sought = self._sought or {}
            if peer in sought:
                sought[peer].cancel()  # what it has doubled since an earlier silence does not count
            sought[peer] = self.spawn(self._seek(peer))

    async def _seek(self, peer: str) -> None:
        began_s = self.now
        for times in count():
            silent_s = self.now - began_s
            await self.sleep(max(doubled_s(_SEEK_AFTER_S, times), silent_s / _SEEK_PARTS))
            if peer in self.peers or silent_s > _SEEK_FOR_S:
                return
            self.tell(peer, AreYouThere())

    def heard(self, message: object, sender: str) -> bool:
        """A message arrived, of whatever kind; True when it was about membership and needs no handler."""
        self._membership.heard_from(sender)
        for component in self._hearing:
            component.heard(message, sender)
        if isinstance(message, MembershipMessage):
            return self._membership.on_message(message, sender)
        return type(message) in _FOR_EVERY_NODE and self._answered(message, sender)

    def _answered(self, message: object, sender: str) -> bool:
        """Answer what is asked of every node; False if it is for the method after all."""
        if type(message) is CurrentModel:
            return not self.newcomer  # one that is no newcomer needs it no more
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
        """`peer` was added to `peers`, or taken out of them: whoever is gone is not waited for.

        Not called for those whom a sampled view exchanges for others.
        """
        if not up:
            self._forget(peer)
        for component in self._components:
            component.peer_changed(peer, up)

    # --- the model, and what the device computes ------------------------------------------------------------

    @property
    def params(self) -> Vector:
        """The current model, an immutable handle. Assign a new one; TypeError for anything else.

        At first a client's initial model, and a server's the scenario's.
        """
        return self._params

    @params.setter
    def params(self, value: Vector) -> None:
        if type(value) is not type(self._params):
            raise TypeError(
                f"params must be a handle such as self.params + update, not {type(value).__name__}; "
                "arithmetic on handles needs no numbers"
            )
        self._params = value

    def _finish(self) -> None:
        """Called when the budget is spent, and again when the last job under way is done."""
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
        """Train for `steps` batches and return the UPDATE, to be added to the parameters.

        Write `update = await self.train(...)` and then `self.params = self.params + update`. In one line,
        `self.params = self.params + await self.train(...)` reads the left-hand side before the await and
        loses whatever was merged meanwhile.

        A budget that leaves fewer steps shortens the training; one that is spent leaves an update of zeros,
        at once. The first such call after the end of `run`, or in a method whose `run` is another, says that
        the client has finished. One step of plain SGD returns -learning_rate times the gradient.

        start: parameters to train from (default: `params` now). proximal: pairs (c, a), each adding
        c/2 ||x - a||^2 to the objective. weights: one for each of the `samples` training samples, a handle
        [samples] or an array; a step then minimises the mean over its batch of weight times loss, so that
        weights of mean 1 leave the step's size as it is. on: a `batch()`, for each of the steps; weights are
        then those of its samples. learning_rate: instead of the scenario's. fresh_optimizer: forget momentum
        and moments first; one optimizer serves all models that a client trains. ValueError for weights of
        another number or below 0, or with an objective that has no loss of each sample, and for a learning
        rate that is no number, below 0 or not finite.

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
        # Half of what TrainRequest(...) takes, and every step of a run passes here.
        request = _new_request(
            TrainRequest, (start, steps, proximal, learning_rate, fresh_optimizer, on, weights)
        )
        trained = await self.compute.train(request)
        if self.finished:
            self._finish()  # it was the last job that was under way
        return trained - start

    def batch(self) -> Batch:
        """Some of its training samples, drawn now: `on=` of losses, gradients and training, for many models.

        Its `samples` says how many: as many as a training step takes. Free; no other client can use it.
        """
        return self.compute.batch()

    async def gradient(self, at: Vector, *, on: Samples = "batch", weights: Any = None) -> Vector:
        """Gradient of the mean loss at the parameters `at`, on this client's own data.

        on: "batch", a fresh one, augmented as in training; a `batch()`, likewise; "train" or "validation",
        all samples that are trained on or held back, as they are. Costs as much as training on so many
        samples, and counts in budgets of samples. weights: of the mean of weight times loss; one for each
        sample that `on` names, or for "batch" one for each training sample; a handle or an array. ValueError
        as for `train`, and where no samples are held back. Of a model with batch norms all samples go
        through in pieces of 512, each normalised by its own mean and variance.

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
        """Loss of the parameters `of`, evaluated (no augmentation, no dropout) on this client's own data.

        on: "batch", a fresh one; "train", all training samples; "validation", those held back; a `batch()`.
        reduction: "mean" and "sum" over the samples are scalars; "none" is the loss of each, a vector in the
        client's order of samples, which is that of `weights`, too. weights: as for `gradient`; the mean is of
        weight times loss, so it divides by the number of samples, not by the sum of the weights. ValueError
        as for `gradient`, and for "none" with an objective that has no loss of each sample. A pass over so
        many samples takes a third of the time of training on them.

        >>> float(wait(client.loss(client.params, on="train"))) >= 0.0
        True
        """
        return await self.compute.loss(of, on, reduction, weights)

    async def class_features(self, of: Vector) -> dict[int, Vector]:
        """Mean features z [d_z] of each class that this client has training samples of, without augmentation.

        Of the decoupled model `of`, in a pass over all its samples.
        """
        return await self.compute.class_features(of)

    def inputs(self) -> Vector:
        """This client's own training samples as they are, side by side: [samples * numbers of a sample].

        For `predict`, and for functions of `apply`; free. ValueError for texts, and for samples that have
        neither classes nor numbers.
        """
        return self.compute.inputs()

    async def predict(self, of: Vector, inputs: Any) -> Vector:
        """Outputs of the parameters `of`, evaluated on samples that the method has, such as public ones.

        For classes they are the logits: of B samples and K classes a vector [B * K], sample by sample.
        inputs: an array [B, ...] of samples that are scaled as the data are (docs/scenarios/data.md says
        how), or a handle on their numbers [B * numbers of a sample]. A pass over so many samples takes a
        third of the time of training on them. ValueError for samples of another shape, for numbers that
        float32 does not hold, and where models predict nothing.
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
        """The result of a function of the method's own on vectors and scalars; deferred.

        `function` works on torch tensors, as for one client: a Vector of n numbers comes as [n], a Scalar or
        a number as [], an array as [n]. What it returns, [] or [n], or a tuple of these, comes back as Scalar
        or Vector. The calls of all clients are computed together (by `torch.func.vmap`), so a branch must not
        depend on a number, and random numbers go in as an argument, such as
        `self.rng.standard_normal(self.params.shape)`. What goes in by keyword is the same for all: numbers,
        texts, tuples of them, such as the k of top-k. `torch.func.grad` may be used inside.

        Results of bool, int8, uint8, int16, int32 or float16, [] or [n], keep their type: a vector with 1, 1,
        1, 2, 4 or 2 bytes for each number in a message, and for other functions to read. float32, float64 and
        bfloat16 become float32. int64, complex numbers and more dimensions than one are refused.

        Without a cost it is free and returns at once. With one it is a job of the device, and awaited: `await
        self.apply(..., steps=2)`. steps: as long as so many training steps take. flops: as long as so many
        floating-point operations take. The result is that of the arguments at the call.

        The function is written at the top of a file, and must not use anything that changes. Raises TypeError
        for a method, a lambda, a function inside of another, ValueError for one that fails or returns what
        can be no vector, for whole numbers that float32 does not hold, and for both costs or one that is not
        above 0. It is tried where it is first called with arguments of such shapes, so that this shows there.

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
        """A part of a model: "head", "backbone", "prototypes"; with `row`, one row of that matrix. Deferred.

        Parts of different clients can be mixed if they are as large, whatever else the models are made of.
        ValueError for a part that the model has not.
        """
        return self.compute.part(of, name, row)

    def with_part(self, of: Vector, name: str, part: Vector, row: int | None = None) -> Vector:
        """A model like `of`, with another part (or row of it); deferred."""
        return self.compute.with_part(of, name, part, row)

    def trainable(self, of: Vector) -> Vector:
        """A model, or an update, with 0 for what no optimizer changes, such as running statistics; deferred.

        Norms, distances and cosines by which models are compared are those of this: the statistics tell what
        inputs are like, not what has been learned of them.
        """
        return self.context.trainable(of)

    def dot(self, first: Vector, second: Vector) -> Scalar:
        """Inner product; deferred, and free of device time (it is small beside a gradient)."""
        return first.dot(second)
