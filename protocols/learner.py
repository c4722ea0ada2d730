"""A client that learns: what it knows, what it can do, and how its iterations run.

A method is a subclass with a `step` (one iteration, repeated until the run ends) and an `on_message`. All
that a learner knows is in its own fields, came in a message, or was handed to it in its `Surroundings`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from actors.actor import Actor
from actors.message import PeerUnavailable
from actors.transport import Transport
from protocols import settings as base
from protocols.vectors import Scalar, Vector, mix

_TIMELESS_STEPS_MAX = 1_000
_ATTEMPTS_TO_START = 3
_SEEK_AFTER_S = 1.0
_PICKS_DRAWN = 32
_SEEK_TIMES_MAX = 24  # the last one after half a year


class Compute(ABC):
    """A client's device and data. Verbs that are awaited take the device's time, one job after the other."""

    samples: int
    """Number of the client's own training samples."""
    steps_per_epoch: int
    """Training steps of a pass over the client's own samples, without the last incomplete batch."""

    @abstractmethod
    def initial(self) -> Vector:
        """The parameters that this client starts from."""

    @abstractmethod
    async def train(
        self,
        start: Vector,
        steps: int,
        pulls: Sequence[tuple[float | Scalar, Vector]],
        learning_rate: float | None,
        fresh_optimizer: bool,
    ) -> Vector:
        """Parameters after `steps` optimizer steps from `start`."""

    @abstractmethod
    async def gradient(self, at: Vector) -> Vector:
        """Stochastic gradient of the client's objective at `at`, on a fresh batch."""

    @abstractmethod
    async def loss(self, of: Vector, on: str) -> Scalar:
        """Mean loss of the parameters `of` on this client's data."""

    @abstractmethod
    def dot(self, first: Vector, second: Vector) -> Scalar:
        """Inner product."""

    @abstractmethod
    def scalar(self, value: float) -> Scalar:
        """A known number as a handle."""


class Membership(Protocol):
    """Who this client believes to be there. `on_change(peer, up)` is called when that belief changes."""

    on_change: Callable[[str, bool], None] | None

    @property
    def peers(self) -> list[str]:
        """Names of the peers believed to be up, sorted."""

    def suspect(self, peer: str) -> None:
        """`peer` did not answer in time."""

    def heard_from(self, sender: str) -> None:
        """A message came from `sender`."""

    def on_message(self, message: object, sender: str) -> bool:
        """Whether the message was about membership, and has been dealt with."""


@dataclass(frozen=True)
class AreYouThere:
    """To a peer that has been silent. No answer: the peer now knows of the sender, and will be heard from.

    That it is there is no reason to wait for it again: it may be slow. It will speak when it is ready.
    """


@dataclass(frozen=True)
class ModelWanted:
    """From a newcomer: asks for the receiver's model."""


@dataclass(frozen=True)
class CurrentModel:
    """The sender's model, for a newcomer; None from one that has yet to start itself."""

    params: Vector | None


@dataclass(frozen=True)
class NewcomersStart:
    """What a client that comes later starts from: the mean of the models of `peers` random peers.

    With 0 it starts from its own initial model. `patience`: seconds that it waits for their answers.
    """

    peers: int = 0
    patience: float = 10.0


@dataclass(frozen=True)
class Surroundings:
    """Everything that a learner or a server is given by whoever runs it.

    `neighbours` are its possible peers in the topology; `rng` is its own random stream; `shared_seed` is a
    number that all clients were given before the start; `observe(name, value)` reports to the observer and
    costs nothing.
    """

    transport: Transport
    membership: Membership
    neighbours: tuple[str, ...]
    rng: np.random.Generator
    shared_seed: int
    observe: Callable[[str, float], None]
    newcomers: NewcomersStart = NewcomersStart()


class Member(Actor):
    """An actor that knows its peers and has a model: the common base of learners and servers."""

    params: Vector
    newcomer = False
    """Whether it came later than the others, and has no model of its own yet."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings.transport)
        self.surroundings = surroundings
        self.membership = surroundings.membership
        self.rng = surroundings.rng
        self.observe = surroundings.observe
        self._uniforms: list[float] = []  # random numbers in [0, 1) for `pick_peer`
        # Suspected peers that are asked now and then whether they are there.
        self._sought: dict[str, None] = {}
        self.membership.on_change = self.peer_changed

    @property
    def peers(self) -> list[str]:
        """Names of the peers that this client believes to be up, sorted; a belief, not the truth."""
        return self.membership.peers

    def is_peer(self, name: str) -> bool:
        """Whether `name` is among `peers`."""
        peers = self.peers
        place = bisect_left(peers, name)
        return place < len(peers) and peers[place] == name

    def pick_peer(self) -> str:
        """One peer at random; PeerUnavailable when there is none."""
        return self._any_of(self.peers)

    def _any_of(self, peers: list[str]) -> str:
        if not peers:
            raise PeerUnavailable("every peer", f"{self.name} knows of none that is up")
        if not self._uniforms:
            self._uniforms = self.rng.random(_PICKS_DRAWN).tolist()  # one by one they cost ten times as much
        return peers[int(self._uniforms.pop() * len(peers))]

    def suspect(self, peer: str) -> None:
        """`peer` kept silent too long: count it out until something is heard from it.

        It may have been cut off, and count this client out as well. So that they find each other again, it is
        told from time to time that this client is there, each time after twice as long.
        """
        believed = peer in self.peers
        self.membership.suspect(peer)
        if believed and peer not in self.peers and peer not in self._sought:
            self.spawn(self._seek(peer))

    async def _seek(self, peer: str) -> None:
        self._sought[peer] = None
        try:
            wait_s = _SEEK_AFTER_S
            for _ in range(_SEEK_TIMES_MAX):
                await self.sleep(wait_s)
                if peer in self.peers:
                    return
                self.tell(peer, AreYouThere())
                wait_s *= 2
        finally:
            del self._sought[peer]

    def heard(self, message: object, sender: str) -> bool:
        """A message arrived, of whatever kind; True when it was about membership and needs no handler."""
        membership, kind = self.membership, type(message)
        membership.heard_from(sender)
        if kind is ModelWanted:
            self.tell(sender, CurrentModel(None if self.newcomer else self.params))
            return True
        return kind is AreYouThere or membership.on_message(message, sender)

    def peer_changed(self, peer: str, up: bool) -> None:
        """`peer` was added to `peers`, or taken out of them: whoever is gone is not waited for."""
        if not up:
            self.give_up_on(peer)


@dataclass(frozen=True)
class ServerPlan:
    """A server that a method needs: its name, its class, and the clients it serves."""

    name: str
    kind: type[Server]
    clients: tuple[str, ...]


class Server(Member):
    """An actor without data or device of its own that coordinates clients, as in federated averaging."""

    def __init__(self, name: str, surroundings: Surroundings, settings: Settings, initial: Vector) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self.params = initial


class Settings(base.Settings):
    """Settings of a method; its own keys stand beside `protocol.name` in a scenario file."""


class Learner(Member):
    """A client: trains on its own data and talks to its peers.

    Fields: `params`, the current model (an immutable handle: assign a new one); `settings`; `iterations`,
    steps done; `peers`; `rng`; `samples`, the number of its training samples.
    """

    Settings: ClassVar[type[base.Settings]] = Settings
    collected: ClassVar[tuple[type, ...]] = (CurrentModel,)

    def __init__(
        self, name: str, surroundings: Surroundings, compute: Compute, settings: base.Settings
    ) -> None:
        super().__init__(name, surroundings)
        self.compute = compute
        self.settings = settings
        self._params = compute.initial()
        self.iterations = 0

    @property
    def params(self) -> Vector:
        """The current model, an immutable handle. Assign a new one; TypeError for anything else."""
        return self._params

    @params.setter
    def params(self, value: Vector) -> None:
        if type(value) is not type(self._params):
            raise TypeError(
                f"params must be a handle such as self.params + update, not {type(value).__name__}; "
                "arithmetic on handles needs no numbers"
            )
        self._params = value

    async def on_start(self) -> None:
        if self.newcomer:
            await self.start_from_peers()
            self.newcomer = False

    async def start_from_peers(self) -> None:
        """Start from the mean of some random peers' models, as far as the scenario says so.

        Newcomers among them have none to give, and others are asked at once. If nobody answers, or there are
        none but newcomers, some are asked again after the patience, and after the third time this client
        starts from its own initial model. `models_at_start` tells the observer how many models it got.
        """
        wanted = self.surroundings.newcomers
        if not wanted.peers:
            return
        models: list[Vector] = []
        newcomers: set[str] = set()
        attempts = 0
        while not models and attempts < _ATTEMPTS_TO_START:
            others = [peer for peer in self.peers if peer not in newcomers]
            chosen = self.rng.choice(len(others), size=min(wanted.peers, len(others)), replace=False)
            asked = [others[int(index)] for index in chosen]
            for peer in asked:
                self.tell(peer, ModelWanted())
            answers = await self.collect(CurrentModel, asked, timeout=wanted.patience)
            models = [answer.params for answer in answers.values() if answer.params is not None]
            newcomers |= answers.keys()
            if not answers:
                attempts += 1
                if newcomers and not asked:  # by then some of them have started
                    await self.sleep(wanted.patience)
                newcomers.clear()
        if models:
            self.params = mix([(1 / len(models), model) for model in models])
        self.observe("models_at_start", len(models))

    # --- the method -----------------------------------------------------------------------------------------

    async def step(self) -> None:
        """One iteration of the method; repeated until the run ends."""
        raise NotImplementedError(f"{type(self).__name__} defines no step()")

    async def run(self) -> None:
        """Repeat `step` for ever. A method that only answers messages overrides this to return at once."""
        timeless, now = 0, self._transport.now
        while True:
            before = now()
            await self.step()
            self.finish_iteration()
            timeless = timeless + 1 if now() == before else 0
            if timeless == _TIMELESS_STEPS_MAX:
                raise RuntimeError(
                    f"step() of {type(self).__name__} took no virtual time {timeless} times in a row, so "
                    "time stands still: train, sleep or wait for a message in it"
                )

    def finish_iteration(self) -> None:
        """Count one iteration; `run` does so after each step."""
        self.iterations += 1
        self.observe("iterations", self.iterations)

    def weights(self) -> Mapping[str, float | Scalar] | None:
        """The collaboration weight of each peer, for the observer; None for methods that learn no graph."""
        return None

    @property
    def weights_are_shares(self) -> bool:
        """Whether the weights add up to 1, so that only their proportions tell who collaborates."""
        return False

    @classmethod
    def servers(
        cls, settings: base.Settings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[ServerPlan]:
        """The servers that this method needs. clusters: the true cluster of each client, for oracles only."""
        return []

    # --- verbs that cost the client's device time -----------------------------------------------------------

    @property
    def samples(self) -> int:
        """Number of this client's training samples."""
        return self.compute.samples

    async def train(
        self,
        steps: int = 1,
        *,
        start: Vector | None = None,
        pulls: Sequence[tuple[float | Scalar, Vector]] = (),
        learning_rate: float | None = None,
        fresh_optimizer: bool = False,
    ) -> Vector:
        """Train for `steps` batches and return the UPDATE, to be added to the parameters.

        Write `update = await self.train(...)` and then `self.params = self.params + update`. In one line,
        `self.params = self.params + await self.train(...)` reads the left-hand side before the await and
        loses whatever was merged meanwhile.

        start: parameters to train from (default: `params` now). pulls: pairs (c, a), each adding
        c/2 ||x - a||^2 to the objective. learning_rate: instead of the scenario's. fresh_optimizer: forget
        momentum and moments first.
        """
        if start is None:
            start = self.params
        return await self.compute.train(start, steps, pulls, learning_rate, fresh_optimizer) - start

    async def gradient(self, at: Vector) -> Vector:
        """Stochastic gradient at the parameters `at`, on a fresh batch of this client's own data."""
        return await self.compute.gradient(at)

    async def loss(self, of: Vector, on: Literal["batch", "train", "validation"] = "batch") -> Scalar:
        """Mean loss of the parameters `of` on a fresh batch, all training samples, or the held-back ones."""
        return await self.compute.loss(of, on)

    def dot(self, first: Vector, second: Vector) -> Scalar:
        """Inner product; deferred, and free of device time (it is small beside a gradient)."""
        return self.compute.dot(first, second)

    # --- verbs of the network -------------------------------------------------------------------------------

    def gossip(self, message: object, fanout: int = 1) -> list[str]:
        """Tell `fanout` different random peers (fewer if fewer are known); returns their names."""
        peers = self.peers
        if fanout == 1 and peers:
            names = [self._any_of(peers)]
        else:
            names = [peers[k] for k in self.rng.permutation(len(peers))[:fanout].tolist()]
        for peer in names:
            self.tell(peer, message)
        return names
