"""A small world for tests of a method: exact gradients, a scripted network, and virtual time.

from coterie.testing import World

def test_two_clients_average_their_models():
    with World(MyMethod, optima=[[0.0], [4.0]], step_s=1.0, latency_s=0.5) as world:
        world.run(until_s=2.0)
        assert [message.time_s for message in world.messages()] == [1.0, 1.0, 2.0, 2.0]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from actors.settings.base import Settings
from protocols.framework.client import Client
from protocols.framework.server import Server
from sim.core.assembly import Classes, ClientParts, ServerParts, SimulationParts, assemble
from sim.core.client_data import data_on
from sim.core.learning_settings import LearningSettings
from sim.core.process import simulating
from sim.core.rules import RunRules
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.learning.data.dataset import Dataset
from sim.learning.engine import Engine, Optimizer
from sim.learning.models.point import Point
from sim.learning.objectives import OBJECTIVES
from sim.scenario.protocol_errors import protocol_servers
from sim.world.churn.schedule import ChurnEvent, absent_at_start, validate_schedule
from sim.world.devices.device import CostModel
from sim.world.distributions import Constant
from sim.world.network import Connection, SimulatedNetwork
from sim.world.network_model import ConnectionModel, NetworkModel

Fate = Callable[[str, str, int], float | None]
"""Function of sender, receiver and number (0 for the first message of this pair).

It returns the latency of the message in seconds, or None if the message is lost.
"""
Event = tuple[float, Literal["join", "leave", "crash", "rejoin"], int]
"""Time in seconds, event, and number of the client. A client that rejoins has the state that it had when it
left."""


class Message(NamedTuple):
    """An event of a message: virtual time, names of the sender and the receiver, and name of its class."""

    time_s: float
    sender: str
    receiver: str
    type: str


class World:
    """Clients with quadratic objectives, whose method runs in virtual time. Use it as a context manager.

    Client i minimizes c/2 ||x - optima[i]||², with the exact gradient c (x - optima[i]). So a training step
    with the learning rate eta gives x - eta c (x - optima[i]), which a test can compute by hand. Equal
    arguments give equal runs.

    method: class of the clients. optima: numbers [clients, P]. start: initial model of all clients [P], or of
    each client [clients, P]; by default 0. curvature: c, a number, or a number for each client. settings:
    settings of the method, as in the section [protocol] of a scenario. step_s: virtual seconds of a training
    step, for all or for each client. latency_s: virtual seconds from sending to delivery, or a function that
    decides for each message (see `Fate`). events: joins, departures and returns of clients. seed: seed of the
    random numbers of the clients.

    Raises UserError for invalid settings and for a method that exchanges parts of models, and ValueError for
    other invalid arguments.
    """

    def __init__(
        self,
        method: type[Client],
        optima: ArrayLike,
        *,
        start: ArrayLike = 0.0,
        curvature: ArrayLike = 1.0,
        settings: Mapping[str, Any] | None = None,
        learning_rate: float = 0.1,
        step_s: float | Sequence[float] = 1.0,
        latency_s: float | Fate = 0.0,
        events: Iterable[Event] = (),
        seed: int = 0,
    ) -> None:
        if method.parts is not None:
            raise UserError(
                f"{method.__name__} exchanges parts of models, but a World has models without parts"
            )
        targets = np.asarray(optima, np.float32)
        if targets.ndim != 2 or not targets.size:
            raise ValueError(
                f"optima has shape {targets.shape}; must be [clients, numbers of a model], not empty"
            )
        self.names = [f"client-{index}" for index in range(len(targets))]
        self._method = method
        self._settings = _settings_of(method, settings or {})
        self._targets, self._seed, self._learning_rate = targets, seed, learning_rate
        self._curvature = _of_each("curvature", curvature, (len(targets),))
        self._starts = _of_each("start", start, targets.shape)
        self._step_s = _of_each("step_s", step_s, (len(targets),), np.float64)
        self._fate = latency_s if callable(latency_s) else _constant(latency_s)
        self._events = [ChurnEvent(time_s, event, (client,), "keep") for time_s, event, client in events]
        validate_schedule(self._events, len(targets))
        self._open = ExitStack()
        self._simulation: Simulation | None = None

    def __enter__(self) -> World:
        with ExitStack() as stack:
            stack.enter_context(simulating())
            self._simulation = stack.enter_context(closing(assemble(self._parts())))
            self._simulation.begin()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(self, until_s: float) -> None:
        """Continue until this virtual time, including all events at it.

        Raises RuntimeError with the traceback if a client or a server failed, and ValueError for a time in
        the past.
        """
        if not self.now_s <= until_s < math.inf:
            raise ValueError(
                f"until_s = {until_s!r}; must be finite and at least {self.now_s:g} s, "
                "the current virtual time"
            )
        world = self._world
        world.loop.run_until(until_s)
        for failure in world.supervisor.failures:
            raise RuntimeError(f"{failure}\n{failure.traceback}")

    @property
    def now_s(self) -> float:
        """Virtual time in seconds."""
        return self._world.loop.time()

    @property
    def clients(self) -> list[Client | None]:
        """Objects of the clients, by number; None for a client that is down."""
        return [life.actor if life.up else None for life in self._world.clients]

    @property
    def servers(self) -> list[Server | None]:
        """Objects of the servers; None for a server that is down."""
        return [life.actor if life.up else None for life in self._world.servers]

    @property
    def params(self) -> NDArray[np.float32]:
        """Models of all clients, [clients, P]; nan for a client that is down."""
        down = np.full(self._targets.shape[1], np.nan, np.float32)
        return np.stack([down if each is None else each.params.numpy() for each in self.clients])

    def messages(self, event: str = "sent", type: str | None = None) -> list[Message]:
        """Return the messages with this event so far, in order.

        event: "sent", "delivered", "lost" or "dropped". type: name of a message class; by default all.
        """
        return [
            Message(row["time"], row["actor"], row["peer"], row["type"])
            for row in self._world.trace.to_table().to_pylist()
            if row["event"] == event and type in (None, row["type"])
        ]

    @property
    def trace_hash(self) -> str:
        """Hash of all events so far; equal for equal runs."""
        return self._world.trace.hash()

    @property
    def _world(self) -> Simulation:
        if self._simulation is None:
            raise RuntimeError("a World is a context manager: write `with World(...) as world:`")
        return self._simulation

    def _parts(self) -> SimulationParts:
        training, engine = self._training_and_engine()
        plans = protocol_servers(self._method, self._settings, self.names, None)
        linked = {plan.name: (*plan.clients, *plan.servers) for plan in plans}
        absent = absent_at_start(self._events)

        def peers_of(name: str) -> list[str]:
            if not linked:
                return [other for other in self.names if other != name]
            return [server for server, others in linked.items() if name in others]

        starts = [engine.vector(_tensor(row)) for row in self._starts]
        return SimulationParts(
            rules=RunRules(settings=self._settings, task="quadratic", metrics=("distance",), seed=self._seed),
            method=self._method,
            engine=engine,
            clients=[
                ClientParts(
                    name=name,
                    training=training,
                    cost=CostModel(step_time_s=float(self._step_s[index])),
                    start=starts[index],
                    neighbours=peers_of(name),
                    up_at_start=index not in absent,
                )
                for index, name in enumerate(self.names)
            ],
            servers=[
                ServerParts(name=plan.name, kind=plan.kind, start=starts[0], neighbours=linked[plan.name])
                for plan in plans
            ],
            churn=self._events,
            network=NetworkModel(ConnectionModel(Constant(value=0.0), reliable=False)),
            classes=Classes(network=self._network),
        )

    def _training_and_engine(self) -> tuple[LearningSettings, Engine]:
        rows = np.column_stack([self._curvature, self._targets])
        labels = np.zeros(len(rows), np.int64)
        samples = Dataset(rows, labels, rows, labels, outputs=0)
        own = tuple([np.array([index]) for index in range(len(rows))])
        engine = Engine(
            data_on("cpu", samples, own, (np.empty(0, np.int64),) * len(rows), own), seed=self._seed
        )
        model = Point(name="point").architecture(samples.input_shape, 0)
        loss, rate = OBJECTIVES["quadratic"], self._learning_rate
        return LearningSettings(model, loss, 0, Optimizer("sgd"), learning_rate=rate, batch_size=1), engine

    def _network(self, loop: Any, seed: int, model: NetworkModel) -> SimulatedNetwork:
        return _ScriptedNetwork(loop, seed, model, self._fate)


class _ScriptedNetwork(SimulatedNetwork):
    """Network without limits of bandwidth, in which a function decides the fate of each message."""

    def __init__(self, loop: Any, seed: int, model: NetworkModel, script: Fate) -> None:
        super().__init__(loop, seed, model)
        self._script = script
        # Messages of each pair. A `Connection` counts, too, but an idle one is removed.
        self._count: Counter[tuple[str, str]] = Counter()

    def fate(self, connection: Connection, pair_index: int) -> tuple[float, bool, float | None]:
        number = self._count[connection.pair]
        self._count[connection.pair] += 1
        latency_s = self._script(*connection.pair, number)
        if latency_s is not None and not 0 <= latency_s < math.inf:
            raise ValueError(f"latency_s returned {latency_s!r}; must be seconds, 0 or more, or None")
        return latency_s or 0.0, latency_s is None, None


def _settings_of(method: type[Client], settings: Mapping[str, Any]) -> Any:
    kind: type[Settings] = method.Settings
    try:
        return kind(**settings)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise UserError(f"settings: {'; '.join(lines)}") from None


def _of_each(
    name: str, values: ArrayLike, shape: tuple[int, ...], dtype: type[np.floating[Any]] = np.float32
) -> NDArray[Any]:
    given = np.asarray(values, dtype)
    try:
        return np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {given.shape}; must have shape {shape}, or broadcast to it"
        ) from None


def _constant(latency_s: float) -> Fate:
    return lambda sender, receiver, number: latency_s


def _tensor(row: NDArray[np.float32]) -> Any:
    import torch

    return torch.tensor(row)
