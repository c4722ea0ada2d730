"""Assembles a simulation from its parts: the clients, the servers, the network, and the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from protocols.framework import vectors
from protocols.framework.client import Client, client_class_for_mode
from protocols.framework.compute import Compute
from protocols.framework.context import NO_LINKS, ClientContext, Links, NewcomersStart, Noise
from protocols.framework.server import Server
from protocols.membership.view import AnnouncedView
from sim.core.budget import BudgetedCompute
from sim.core.client_training import DeviceCompute
from sim.core.learning_settings import LearningSettings
from sim.core.lives import ClientLife, ServerLife
from sim.core.rules import RunRules
from sim.core.simulation import Simulation
from sim.kernel.clock import VirtualLoop
from sim.kernel.random import key, stream
from sim.learning.architecture import Architecture
from sim.learning.engine import Engine, Vector
from sim.world.churn.schedule import ChurnEvent, State, rejoins
from sim.world.churn.server_crash import ServerCrash
from sim.world.devices.device import CostModel, Device
from sim.world.devices.slowness import Slowness
from sim.world.membership.kinds import Announce, MembershipContext, MembershipKind, ViewOf
from sim.world.network import SimulatedNetwork
from sim.world.network_model import NetworkModel


@dataclass(frozen=True, kw_only=True)
class ClientParts:
    """A client. Client number i owns part i of the engine's data.

    cost, slowness: properties of the device. model_group: number of its group of models. start: initial
    model, by default shared by all clients with the same model. neighbours: names of linked clients and
    servers, by default all other clients. later: state after a return that is not listed in the `churn` of
    the simulation. backup_every_s: seconds between backups of the model.
    own_settings: settings of the protocol that differ for this client.
    """

    name: str
    training: LearningSettings
    cost: CostModel
    start: Vector | None = None
    neighbours: Sequence[str] | None = None
    slowness: Slowness | None = None
    links: Links = NO_LINKS
    up_at_start: bool = True
    model_group: int = 0
    later: State = "fresh"
    backup_every_s: float = 0.0
    own_settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServerParts:
    """A server. kind: its class. start: initial model. training: by default the training of the first client.

    cost: cost model of the server's device; None for a server without a device. The data of the engine has a
    part for each server with a device, after the parts of the clients.
    """

    name: str
    kind: type[Server]
    start: Vector
    neighbours: Sequence[str]
    cost: CostModel | None = None
    training: LearningSettings | None = None
    crashes: Sequence[ServerCrash] = ()


@dataclass(frozen=True, kw_only=True)
class Classes:
    """Classes of the parts of a simulation. Pass subclasses to change the behavior of the world."""

    simulation: type[Simulation] = Simulation
    loop: Callable[[int | None], VirtualLoop] = VirtualLoop
    """Creates the event loop; called with the key that shuffles simultaneous events, or None."""
    network: Callable[[Any, int, NetworkModel], SimulatedNetwork] = SimulatedNetwork
    """Creates the network; called with the loop, the seed, and the model of the network."""
    compute: type[DeviceCompute] = DeviceCompute
    device: type[Device] = Device
    engine: Callable[..., Engine] = Engine


ANNOUNCE, FRESH = Announce(kind="announce"), NewcomersStart()


@dataclass(frozen=True, kw_only=True)
class SimulationParts:
    """Parts of a simulation.

    networks: later changes to the network, as pairs (time in seconds, network). churn: arrivals and
    departures of clients. staying: pairs (client, time in seconds) of churn events that are skipped. alone:
    True if every client trains without peers. tie_key: key that shuffles simultaneous events. refuses:
    function that returns True for messages that the network drops because of their contents. make: function
    that creates an actor of a class. clusters: cluster of each client, for comparison with the
    collaboration graph. turned_away: arrivals for which no client was left. features: description of the
    samples' features.
    """

    rules: RunRules
    method: type[Client]
    engine: Engine
    clients: Sequence[ClientParts]
    network: NetworkModel
    servers: Sequence[ServerParts] = ()
    networks: Sequence[tuple[float, NetworkModel]] = ()
    churn: Sequence[ChurnEvent] = ()
    staying: frozenset[tuple[int, float]] = frozenset()
    membership: MembershipKind = ANNOUNCE
    newcomers: NewcomersStart = FRESH
    alone: bool = False
    tie_key: int | None = None
    refuses: Callable[[object], bool] | None = None
    make: Callable[..., Any] = lambda kind, *arguments: kind(*arguments)
    classes: Classes = Classes()
    clusters: Sequence[int] | None = None
    turned_away: int = 0
    features: str = ""


def assemble(parts: SimulationParts) -> Simulation:
    """Create a simulation at virtual time 0. Close it after use, even if it never runs."""
    loop = parts.classes.loop(parts.tie_key)
    try:
        return _Assembly(parts, loop).finished()
    except BaseException:
        loop.close()
        raise


class _Assembly:
    """Creates the parts of a simulation in order of their dependencies."""

    def __init__(self, parts: SimulationParts, loop: VirtualLoop) -> None:
        self.parts, self.classes, self.seed = parts, parts.classes, parts.rules.seed
        self.loop = loop
        self.view_of = self._views()
        self.network = self.classes.network(self.loop, self.seed, parts.network)
        self.network.refuses = parts.refuses
        names = [client.name for client in parts.clients]
        self.network.expect([*names, *[server.name for server in parts.servers]])
        self.simulation = self.classes.simulation(
            parts.rules, self.loop, self.network, parts.engine, parts.churn
        )
        self.returns = rejoins(parts.churn)
        self.shared = self._shared_context()
        self.starts: dict[str, Vector] = {}  # by the architecture's key, as the next
        self.trainable: dict[str, Callable[[vectors.Vector], vectors.Vector]] = {}

    def finished(self) -> Simulation:
        simulation, parts = self.simulation, self.parts
        simulation.networks, simulation.staying = list(parts.networks), parts.staying
        simulation.clusters = None if parts.clusters is None else tuple(parts.clusters)
        simulation.features = parts.features
        simulation.churn.turned_away = parts.turned_away
        simulation.clients += [self._client(index, client) for index, client in enumerate(parts.clients)]
        simulation.servers = [self._server(number, server) for number, server in enumerate(parts.servers)]
        return simulation

    def _views(self) -> ViewOf:
        """Return the function that creates the view of peers of an actor."""
        parts = self.parts
        if parts.alone:
            return lambda name, neighbours: AnnouncedView(name, ())
        up = [client.name for client in parts.clients if client.up_at_start]
        absent = [client.name for client in parts.clients if not client.up_at_start]
        servers = [server.name for server in parts.servers]
        return parts.membership.views(MembershipContext(self.loop, self.seed, [*up, *servers], absent))

    def _shared_context(self) -> dict[str, Any]:
        """Return the objects that the contexts of all clients and servers share."""
        seed, observer = self.seed, self.simulation.observer
        return {
            "transport": self.network,
            "shared_seed": key(seed, "shared by all clients"),
            "observe": observer.observe,
            "newcomers": self.parts.newcomers,
            "alone": self.parts.alone,
            "noise": cache(lambda name: Noise(stream(seed, "noise", name))),
            "report": observer.report,
        }

    def _trainable_of(self, model: Architecture) -> Callable[[vectors.Vector], vectors.Vector]:
        """Return a function that sets the untrained parameters of a vector of this model to 0."""
        if model.key not in self.trainable:
            engine = self.parts.engine
            self.trainable[model.key] = lambda of: engine.trainable(cast(Vector, of), model)
        return self.trainable[model.key]

    def _context(
        self,
        name: str,
        neighbours: Sequence[str],
        training: LearningSettings,
        links: Links = NO_LINKS,
        number: int | None = None,
        model_group: int = 0,
        compute: Compute | None = None,
    ) -> ClientContext:
        """Create a context. number: number of a client. compute: a server's device and data."""
        model = training.architecture
        return ClientContext(
            membership=self.view_of(name, neighbours),
            rng=stream(self.seed, "actor", name),
            links=links,
            trainable=self._trainable_of(model),
            compute=compute,
            model=model,
            number=number,
            model_group=model_group,
            **self.shared,
        )

    def _client(self, index: int, client: ClientParts) -> ClientLife:
        returns = self.returns.get(index, ())
        backups_s = [each.backup_every_s for each in returns if each.state == "stale"]
        backups_s += [client.backup_every_s] if client.later == "stale" else []
        who = (client.name, self._neighbours(client), client.training, client.links, index)
        return ClientLife(
            client.name,
            self._context(*who, client.model_group),
            self._make_client,
            returns=tuple([(each.time_s, each.state) for each in returns]),
            later=client.later,
            compute=self._compute(index, client),
            index=index,
            bytes_sent=self.network.bytes_sent,
            own_settings=client.own_settings,
            up_at_start=client.up_at_start,
            backup_every_s=backups_s[0] if backups_s else None,
        )

    def _neighbours(self, client: ClientParts) -> Sequence[str]:
        if client.neighbours is not None:
            return client.neighbours
        return [each.name for each in self.parts.clients if each is not client]

    def _start(self, client: ClientParts) -> Vector:
        if client.start is not None:
            return client.start
        model = client.training.architecture
        if model.key not in self.starts:
            self.starts[model.key] = self.parts.engine.vector(model.starting_parameters(self.seed))
        return self.starts[model.key]

    def _make_client(self, life: ClientLife) -> Client:
        settings = life.own(self.simulation.settings)
        kind = client_class_for_mode(self.parts.method, settings)
        return cast(Client, self.parts.make(kind, life.name, life.context, life.compute, settings))

    def _compute(self, index: int, client: ClientParts) -> DeviceCompute:
        network, budget = self.network, self.parts.rules.budget
        device = self.classes.device(self.loop, client.slowness or Slowness(), up=client.up_at_start)
        given = (self.parts.engine, client.training, index, device, client.cost, self._start(client))
        if budget is None:
            return self.classes.compute(*given)
        return BudgetedCompute(*given, budget=budget, bytes_sent=lambda: network.bytes_sent[client.name])

    def _server(self, number: int, server: ServerParts) -> ServerLife:
        parts, compute = self.parts, None
        training = server.training or parts.clients[0].training
        if server.cost is not None:
            owner, device = len(parts.clients) + number, self.classes.device(self.loop)
            compute = self.classes.compute(parts.engine, training, owner, device, server.cost, server.start)

        def make(life: ServerLife) -> Server:
            settings = self.simulation.settings
            return cast(Server, parts.make(server.kind, life.name, life.context, settings, server.start))

        returns = [(crash.back, crash.state) for crash in server.crashes if crash.back is not None]
        context = self._context(server.name, server.neighbours, training, compute=compute)
        return ServerLife(server.name, context, make, compute, returns, crashes=server.crashes)
