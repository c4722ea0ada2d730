"""Client of a method: its state, its operations, and how its iterations run.

A method is a subclass with a `step` (one iteration, repeated until the run ends) and an `on_message`. A
client knows only its own fields, the messages that it got, and its `ClientContext`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

from actors.delivery.round_messages import temporary_round_messages
from protocols.framework.coalition import Coalition
from protocols.framework.compute import Compute
from protocols.framework.context import ClientContext
from protocols.framework.node import CurrentModel, ModelWanted, Node
from protocols.framework.objectives import Objective
from protocols.framework.requirements import ProtocolSettings, Requirement, two_way_links_requirement
from protocols.framework.search_space import SearchSpace
from protocols.framework.server import ServerPlan
from protocols.framework.vectors import Scalar, Vector, mix

_TIMELESS_STEPS_MAX = 1_000
_ATTEMPTS_TO_START = 3


class Client(Node):
    """Base class of clients. A client trains on its own data and communicates with its peers.

    Fields: `params`, the current model (an immutable handle: assign a new one); `settings`; `iterations`, the
    steps done; `peers`; `rng`; `samples`, the number of its training samples.
    """

    _machinery: ClassVar[bool] = True
    Settings: ClassVar[type[ProtocolSettings]] = ProtocolSettings
    """Keys of the method, written next to `protocol.name` in a scenario: a nested `class
    Settings(Client.Settings)` with a type and an optional default for each. Read them as `self.settings`."""
    collected: ClassVar[tuple[type, ...]] = (CurrentModel,)
    parts: ClassVar[tuple[str, ...] | None] = None
    """Parts that a decoupled model needs besides backbone and head; None if the method accepts any model."""
    heterogeneous: ClassVar[bool] = False
    """True if the method supports clients with different backbones, and so never mixes whole models."""
    merges_adapters: ClassVar[bool] = False
    """True if adapters of `model.name = "lora"` also get an untrained matrix for merged products."""
    two_way: ClassVar[bool] = False
    """True if both ends of a link must receive from each other; a directed topology is then rejected."""
    search_space: ClassVar[SearchSpace | None] = None
    """Settings that `coterie tune` varies; None for only the learning rate."""
    asynchronous: ClassVar[type[Client] | None] = None
    """Class of the method's clients with `mode = "asynchronous"`, if the method has two forms."""
    weights_are_shares: bool = False
    """True if the weights add up to 1, so only their proportions show the collaborators."""
    edge_threshold: float = 0.5
    """Weight above which a peer is an edge of the learned graph; for shares, relative to the largest."""

    def __init__(
        self, name: str, context: ClientContext, compute: Compute, settings: ProtocolSettings
    ) -> None:
        super().__init__(name, context, compute, compute.initial())
        self.settings = settings
        self.iterations = 0
        """Number of completed steps; 0 again for a client that restarts without its state."""
        self.setup()

    @property
    def model_group(self) -> int:
        """Number of the client's group of models: 0 for `[model]`, k for `[[model_group]]` number k."""
        return self.context.model_group

    async def on_start(self) -> None:
        if self.newcomer:
            await self._start_from_peers()
            self.newcomer = False

    async def _start_from_peers(self) -> None:
        """Start from the mean of the models of some random peers, as `clients.newcomers` states.

        A newcomer among these peers has no model to give, so the client then asks other peers at once. If no
        peer answers, or all are newcomers, it asks again after its patience. After the third attempt, it
        starts from its own initial model. The metric `models_at_start` counts the models received.
        """
        wanted = self.context.newcomers
        if not wanted.peers:
            return
        models: list[Vector] = []
        newcomers: set[str] = set()
        attempts = 0
        with temporary_round_messages(self) as messages:  # it requests lost models again
            while not models and attempts < _ATTEMPTS_TO_START:
                others = [peer for peer in self.senders if peer not in newcomers]
                chosen = self.rng.choice(len(others), size=min(wanted.peers, len(others)), replace=False)
                names = [others[int(index)] for index in chosen]
                for peer in names:
                    self.tell(peer, ModelWanted())
                found = await messages.collect(CurrentModel, names, wanted.patience, where=lambda mark: True)
                answers = {peer: cast(CurrentModel, envelope.message) for peer, envelope in found.items()}
                models = [answer.params for answer in answers.values() if answer.params is not None]
                newcomers |= answers.keys()
                if not answers:
                    attempts += 1
                    if newcomers and not names:  # after the wait, some of them have started
                        await self.sleep(wanted.patience)
                    newcomers.clear()
        self.discard(CurrentModel)
        if models:
            self.params = mix([(1 / len(models), model) for model in models])
        self.context.report(self.name, "models_at_start", len(models))

    # --- the method -----------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Run one iteration of the method; repeated until the run ends."""
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    async def run(self) -> None:
        """Repeat `step` until the budget is exhausted, or without end if there is no budget.

        Raises RuntimeError if 1,000 steps in a row take no virtual time. Handlers and spawned coroutines
        continue after the last step. A method that only answers messages overrides this method with one that
        returns at once.
        """
        self._tasks.relabel("step")
        for component in self._components:
            component.session_started()
        timeless, now = 0, self._transport.now
        before = now()
        self._stepping = True
        while self.compute.steps_left:
            await self.step()
            self._finish_iteration()
            after = now()
            timeless, before = timeless + 1 if after == before else 0, after
            if timeless == _TIMELESS_STEPS_MAX:
                raise RuntimeError(
                    f"step() of {type(self).__name__} took no virtual time {timeless} times in a row, so "
                    "virtual time cannot advance: train, sleep or wait for a message in step()"
                )
        self._stepping = False
        self._finish()
        for component in self._components:
            component.budget_spent()

    def _finish(self) -> None:
        super()._finish()
        self.context.report(self.name, "iterations", self.iterations)  # lets the observer evaluate again

    def _progress(self) -> str:
        """Return the current iteration in words."""
        return f"iteration {self.iterations + 1}"

    def _finish_iteration(self) -> None:
        """Count one iteration; `run` calls this after each step."""
        self.iterations += 1
        self.context.report(self.name, "iterations", self.iterations)
        for component in self._components:
            component.step_ended()

    def weights(self) -> Mapping[str, float | Scalar] | None:
        """Return the collaboration weight of each peer; None if the method has no learned graph."""
        return None

    def evaluated(self) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
        """Return the models to evaluate, by name; the first is the client's main model.

        A model is a handle such as `params`, or an ensemble: a list of pairs (weight, model), whose predicted
        probabilities are averaged by their weights. With several names, the accuracy of "shared", for
        example, is recorded as `accuracy_of_shared`; the accuracy of the first model is also recorded as
        `accuracy`. Evaluations take no virtual time.
        """
        return {"model": self.params}

    def coalition(self) -> Coalition | None:
        """Return the coalition of this client for the results; None without a coalition.

        Takes no virtual time.
        """
        return None

    @classmethod
    def servers(
        cls, settings: ProtocolSettings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[ServerPlan]:
        """Return the servers of this method. clusters: the true cluster of each client, for oracles only."""
        return []

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        """Return the method's requirements on the scenario; `unusual` lists keys that may deviate."""
        return two_way_links_requirement(settings) if cls.two_way else ()

    @classmethod
    def objective(cls, settings: ProtocolSettings) -> Objective | None:
        """Return the objective of the clients; None for the default of the data (classes: cross-entropy)."""
        return None

    # --- communication --------------------------------------------------------------------------------------

    def gossip(self, message: object, fanout: int = 1) -> list[str]:
        """Send a message to `fanout` different random peers, or fewer if fewer are known; return their names.

        >>> sorted(client.gossip(Greeting("hello"), fanout=2))
        ['client-1', 'client-2']
        """
        peers = self.peers
        if fanout == 1 and peers:
            drawn = self._uniforms  # as `pick_peer`, without a further call for each message
            names = [peers[int(drawn.pop() * len(peers))] if drawn else self._any_of(peers)]
        else:
            names = [peers[k] for k in self.rng.permutation(len(peers))[:fanout].tolist()]
        for peer in names:
            self.tell(peer, message)
        return names


def client_class_for_mode(method: type[Client], settings: ProtocolSettings) -> type[Client]:
    """Return the class of a method's clients: `asynchronous` if `mode` selects it, otherwise `method`."""
    if method.asynchronous is not None and getattr(settings, "mode", None) == "asynchronous":
        return method.asynchronous
    return method
