"""The composition root: from a validated scenario to everything that a run consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocols.learner import Learner, Server, ServerPlan, Surroundings
from sim.clients import Client
from sim.compute import DeviceCompute, LearningSettings
from sim.errors import UserError
from sim.learning.datasets import Dataset, load_dataset
from sim.learning.dealing import Labels
from sim.learning.engine import ClientData, Engine, Optimizer, Vector
from sim.learning.models import architecture
from sim.learning.objectives import OBJECTIVES
from sim.learning.partitions import PARTITIONS, Partition
from sim.scenario import Scenario
from sim.settings import ImageData, QuadraticData
from sim.simulation import Simulation
from sim.world import topology
from sim.world.churn import ChurnEvent, absent_at_start
from sim.world.clock import VirtualLoop
from sim.world.devices import CostModel, Device, Slowdown, Slowness, TransientSlowdown
from sim.world.distributions import Constant, Distribution, LogNormal, Uniform
from sim.world.membership import AllKnowing, Announced, Directory, Membership
from sim.world.network import NetworkModel, SimulatedNetwork
from sim.world.partitions import Partition as NetworkPartition
from sim.world.random import Draws, key, stream


@dataclass(frozen=True)
class Learning:
    """The learning side of a run: data on the device, the model, and how clients train."""

    dataset: Dataset
    data: ClientData
    clusters: tuple[int, ...] | None
    settings: LearningSettings


def check(scenario: Scenario, data_dir: Path | None = None) -> None:
    """Build everything without running it; raises UserError for what a scenario file alone does not show."""
    build(scenario, data_dir, "cpu").close()


def choose_device(name: str) -> torch.device:
    """ "auto", "cpu" or "cuda" as a torch device; UserError when there is no such device."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: must be one of auto, cpu, cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("--device cuda: this machine has no CUDA device that torch can use; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and available else "cpu")


def build(scenario: Scenario, data_dir: Path | None = None, device: str = "auto") -> Simulation:
    """A simulation at virtual time 0, ready to run. Raises UserError."""
    learning = load_learning(scenario, data_dir, choose_device(device))
    engine = Engine(
        learning.data,
        seed=scenario.run.seed,
        device=learning.data.train.x.device,
        way=scenario.engine.way,
        deferred=scenario.engine.deferred,
        pending_limit_bytes=scenario.engine.pending_limit,
    )
    return _Builder(scenario, learning, engine).simulation()


# --- learning -----------------------------------------------------------------------------------------------


def load_learning(scenario: Scenario, data_dir: Path | None, device: torch.device) -> Learning:
    """Data, shared out to the clients, and the model that fits it. Raises UserError."""
    dataset = _dataset(scenario, data_dir)
    partition, validation = _partition(scenario, dataset)
    if min(len(rows) for rows in partition.train) == 0:
        raise UserError("data.partition: some client has no training sample")
    data = ClientData(
        (dataset.train_x.to(device), dataset.train_y.to(device)),
        (dataset.test_x.to(device), dataset.test_y.to(device)),
        train_rows=partition.train,
        validation_rows=validation,
        test_rows=partition.test,
        label_maps=partition.label_maps,
    )
    model = scenario.model.model_dump(exclude={"name", "initialisation"})
    training = scenario.training
    settings = LearningSettings(
        architecture(scenario.model.name, model, dataset.input_shape, dataset.classes),
        OBJECTIVES[dataset.task],
        Optimizer(
            training.optimizer,
            training.momentum,
            training.nesterov,
            training.weight_decay,
            training.betas,
            training.epsilon,
        ),
        training.learning_rate,
        training.batch_size,
        training.sampling,
    )
    return Learning(dataset, data, partition.clusters, settings)


def _dataset(scenario: Scenario, data_dir: Path | None) -> Dataset:
    if isinstance(scenario.data, QuadraticData):
        options = scenario.data.model_dump(exclude={"name"})
        options |= {"clients": scenario.clients.count, "seed": scenario.run.seed}
        return load_dataset("quadratic", options=options)
    return load_dataset(scenario.data.name, data_dir)


def _partition(scenario: Scenario, dataset: Dataset) -> tuple[Partition, Sequence[np.ndarray]]:
    """Everybody's training and test rows, and the validation rows held back from the former."""
    seed, count = scenario.run.seed, scenario.clients.count
    if dataset.partition is not None:
        partition = dataset.partition
    else:
        assert isinstance(scenario.data, ImageData)
        labels = Labels(dataset.train_y.numpy(), dataset.test_y.numpy(), dataset.classes)
        options = scenario.data.partition.model_dump(exclude={"kind"})
        partition = PARTITIONS[scenario.data.partition.kind](labels, count, seed, **options)
    validation: Sequence[np.ndarray] = [np.empty(0, dtype=np.int64)] * count
    if isinstance(scenario.data, ImageData):
        if scenario.data.test_samples is not None:
            partition = partition.cap_test(scenario.data.test_samples, seed)
        if scenario.data.validation_share:
            partition, validation = partition.hold_back(scenario.data.validation_share, seed)
    return partition, validation


# --- the world ----------------------------------------------------------------------------------------------


def client_name(index: int) -> str:
    """The actor name of client number `index`."""
    return f"client-{index}"


def distribution(settings: Any) -> Distribution:
    """A distribution from its section in a scenario."""
    match settings.kind:
        case "constant":
            return Constant(settings.value)
        case "uniform":
            return Uniform(settings.low, settings.high)
        case "lognormal":
            return LogNormal(settings.median, settings.sigma)
    raise AssertionError(f"no distribution is called {settings.kind!r}")


def network_model(scenario: Scenario) -> NetworkModel:
    """The network of a scenario, its clients by name."""
    settings = scenario.network
    return NetworkModel(
        distribution(settings.latency),
        settings.uplink,
        settings.downlink,
        settings.link,
        settings.loss,
        settings.retransmission_delay,
        tuple(
            NetworkPartition(
                cut.start,
                cut.end,
                groups=tuple(tuple(map(client_name, group)) for group in cut.groups or ()),
                sources=tuple(map(client_name, cut.sources or ())),
                targets=tuple(map(client_name, cut.to or ())),
            )
            for cut in settings.partition
        ),
    )


def neighbour_lists(scenario: Scenario) -> list[list[int]]:
    """Each client's neighbours in the topology, by number. UserError for a graph that can't be made."""
    chosen, n, seed = scenario.clients.topology, scenario.clients.count, scenario.run.seed
    try:
        match chosen.kind:
            case "complete":
                graph = topology.complete(n)
            case "ring":
                graph = topology.ring(n)
            case "k-regular":
                graph = topology.k_regular(n, chosen.degree, seed)
            case "erdos-renyi":
                graph = topology.erdos_renyi(n, chosen.probability, seed)
            case "small-world":
                graph = topology.small_world(n, chosen.degree, chosen.rewire, seed)
            case "clusters":
                sizes = chosen.sizes or [
                    len(part) for part in np.array_split(np.arange(n), chosen.count or 1)
                ]
                graph = topology.clusters(sizes)
            case "edge-list":
                graph = topology.from_edge_list(chosen.file, n)
    except (ValueError, OSError) as error:
        raise UserError(f"clients.topology: {error}") from None
    return topology.neighbours(graph)


def slowness(scenario: Scenario, client: int) -> Slowness:
    """How slow a client's device is over time."""
    settings, seed = scenario.devices, scenario.run.seed
    factor = 1.0
    for override in settings.override:
        if client in override.clients and override.slowdown is not None:
            factor *= override.slowdown
    scheduled = []
    for number, slow in enumerate(settings.slowdown):
        # A coin of the client's own, not a draw among all: adding a client must not change who is slow.
        chosen = (
            client in slow.clients
            if slow.clients is not None
            else Draws(seed, "slowdown", number, client).uniform() < (slow.share or 0.0)
        )
        if chosen:
            scheduled.append(Slowdown(slow.start, slow.end, slow.factor))
    spells = settings.transient
    transient = None if spells is None else TransientSlowdown(spells.every, spells.length, spells.factor)
    return Slowness(factor, scheduled, transient, Draws(seed, "transient slowdown", client))


def cost_model(scenario: Scenario, client: int) -> CostModel:
    """What a client's computing costs: drawn for each client, unless it is stated for this one."""
    settings, seed = scenario.devices, scenario.run.seed
    stated = [override for override in settings.override if client in override.clients]
    if settings.step_time is not None:
        times = [override.step_time for override in stated if override.step_time is not None]
        drawn = distribution(settings.step_time).sample(Draws(seed, "device", client))
        return _cost(client, step_time_s=times[-1] if times else drawn)
    speeds = [override.speed for override in stated if override.speed is not None]
    drawn = distribution(settings.speed).sample(Draws(seed, "device", client))
    return _cost(client, flops_per_s=speeds[-1] if speeds else drawn)


def _cost(client: int, **speed: float) -> CostModel:
    try:
        return CostModel(**speed)
    except ValueError as error:
        raise UserError(f"devices: client {client}: {error}") from None


# --- actors -------------------------------------------------------------------------------------------------


class _Builder:
    """Makes the parts of one simulation, in the order in which they need each other."""

    def __init__(self, scenario: Scenario, learning: Learning, engine: Engine) -> None:
        self.scenario = scenario
        self.learning = learning
        self.engine = engine
        self.seed = scenario.run.seed
        self.names = [client_name(index) for index in range(scenario.clients.count)]
        self.events = [
            ChurnEvent(event.at, event.event, event.clients, event.state) for event in scenario.churn
        ]
        self.absent = [self.names[index] for index in absent_at_start(self.events)]
        self.plans = self._server_plans()
        up = [name for name in self.names if name not in self.absent] + [plan.name for plan in self.plans]
        self.directory = Directory(up)
        self.neighbours = self._neighbours()
        self.initial = self._initial_parameters()
        self.loop = VirtualLoop(shuffle_seed=key(self.seed, "ties") if scenario.run.shuffle_ties else None)
        self.network = SimulatedNetwork(self.loop, self.seed, network_model(scenario))
        self._set_server_links()

    def simulation(self) -> Simulation:
        """The finished simulation; if something is refused half-way, the loop is closed."""
        try:
            simulation = Simulation(
                self.scenario, self.loop, self.network, self.engine, self.learning.settings, self.events
            )
            simulation.clusters = self.learning.clusters
            simulation.clients = [
                self._client(simulation, index, name) for index, name in enumerate(self.names)
            ]
            simulation.servers = [partial(self._server, simulation, plan) for plan in self.plans]
            return simulation
        except BaseException:
            self.loop.close()
            raise

    def _server_plans(self) -> list[ServerPlan]:
        protocol = self.scenario.protocol
        try:
            return protocol.learner.servers(protocol.settings, self.names, self.learning.clusters)
        except ValueError as error:
            raise UserError(str(error)) from None

    def _neighbours(self) -> dict[str, tuple[str, ...]]:
        """Who may talk to whom. With servers, a client's only neighbour is its server."""
        if self.plans:
            served = {client: (plan.name,) for plan in self.plans for client in plan.clients}
            return served | {plan.name: plan.clients for plan in self.plans}
        lists = neighbour_lists(self.scenario)
        return {
            name: tuple([self.names[peer] for peer in peers])
            for name, peers in zip(self.names, lists, strict=True)
        }

    def _set_server_links(self) -> None:
        links = self.scenario.network.server
        if links is not None:
            for plan in self.plans:
                self.network.set_link(plan.name, links.uplink, links.downlink)

    def _initial_parameters(self) -> list[Vector]:
        """Each client's x_0: the same vector for all, or each its own."""
        shared = self.scenario.model.initialisation == "shared"

        def draw(*names: str | int) -> Vector:
            generator = torch.Generator().manual_seed(key(self.seed, "initial parameters", *names) >> 1)
            return self.engine.vector(self.learning.settings.architecture.initial(generator))

        if shared:
            return [draw()] * len(self.names)
        return [draw(index) for index in range(len(self.names))]

    def _membership(self, name: str) -> Membership:
        neighbours = self.neighbours[name]
        if self.scenario.network.membership == "all-knowing":
            return AllKnowing(name, neighbours, self.directory)
        return Announced(name, neighbours, self.absent)

    def _surroundings(self, simulation: Simulation, name: str, membership: Membership) -> Surroundings:
        return Surroundings(
            self.network,
            membership,
            self.neighbours[name],
            stream(self.seed, "actor", name),
            key(self.seed, "shared by all clients"),
            partial(simulation.observe, name),
        )

    def _client(self, simulation: Simulation, index: int, name: str) -> Client:
        device = Device(self.loop, slowness(self.scenario, index), up=name not in self.absent)
        compute = DeviceCompute(
            self.engine,
            self.learning.settings,
            index,
            device,
            cost_model(self.scenario, index),
            self.initial[index],
        )
        membership = self._membership(name)
        surroundings = self._surroundings(simulation, name, membership)
        protocol = self.scenario.protocol

        def fresh() -> Learner:
            compute.forget()
            return protocol.learner(name, surroundings, compute, protocol.settings)

        return Client(index, name, compute, membership, fresh, up_at_start=name not in self.absent)

    def _server(self, simulation: Simulation, plan: ServerPlan) -> Server:
        surroundings = self._surroundings(simulation, plan.name, self._membership(plan.name))
        return plan.kind(plan.name, surroundings, self.scenario.protocol.settings, self.initial[0])  # type: ignore[arg-type]
