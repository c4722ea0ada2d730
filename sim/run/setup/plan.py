"""Plan of a run, before any computation.

Planning finds errors that the scenario file alone does not show: too few samples, models that do not fit in
memory, impossible topologies and others. It imports torch only if models are created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from protocols.framework.context import Links
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.server import ServerPlan
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.files.input_file import no_room_message
from sim.learning.data.dataset import Dataset
from sim.learning.models.size import ModelProperties
from sim.run.energy.constants import EnergyConstants, energy_constants
from sim.run.setup.links import Names, links_among
from sim.run.setup.memory import (
    DeviceMemory,
    Workload,
    machines_room,
    require_room,
    require_room_on_device,
    steps_allowed,
    workloads,
)
from sim.run.setup.models import groups_of_clients, models_of_clients
from sim.run.setup.owners import OwnedSamples, assign_samples
from sim.run.setup.training import ClientTraining, training_of_each
from sim.scenario.protocol_errors import protocol_servers
from sim.scenario.scenario import Scenario
from sim.scenario.sections.change import changed_networks
from sim.scenario.sections.churn import ChurnSchedule, churn_schedule
from sim.world.devices.device import CostModel
from sim.world.devices.slowness import Slowness
from sim.world.network_model import NetworkModel
from sim.world.participants import Participants, client_name

if TYPE_CHECKING:
    from protocols.framework.objectives import Objective


@dataclass(frozen=True)
class LearningPlan:
    """Plan of learning: the data and their owners, each client's work, and the servers.

    objective: the method's objective; None for the objective of the data. groups: index in the scenario's
    models, by client. trainings, work: by client; clients with equal models and training share an object.
    own: the samples of the clients, in the order of `names`, and then of the servers.
    """

    dataset: Dataset
    objective: Objective | None
    groups: tuple[int, ...]
    trainings: tuple[ClientTraining, ...]
    work: tuple[Workload, ...]
    names: tuple[str, ...]
    clusters: tuple[int, ...] | None
    servers: tuple[ServerPlan, ...]
    own: OwnedSamples

    @property
    def models(self) -> list[ModelProperties]:
        """Models of the clients, without duplicates."""
        return list({work.model.key: work.model for work in self.work}.values())


@dataclass(frozen=True)
class ClientPlan:
    """Plan of a client: work, number of samples, device, and settings of the protocol.

    steps: the training steps that its budget allows; infinite without a budget of steps or samples. watts:
    power of the device, busy and idle, and region: its region; None if unknown.
    """

    work: Workload
    samples: int
    cost: CostModel
    slowness: Slowness
    up_at_start: bool
    steps: float
    settings: ProtocolSettings
    watts: tuple[float, float] | None
    region: str | None

    @property
    def steps_per_epoch(self) -> int:
        """Training steps of a pass over the client's samples."""
        return max(1, self.samples // self.work.batch_samples(self.samples))

    @property
    def step_s(self) -> float:
        """Duration of a training step on a whole batch in seconds, without temporary slow times."""
        flops = None
        if self.cost.flops_per_s is not None:
            seen = self.work.batch_samples(self.samples) * self.work.views
            flops = float(seen * self.work.model.training_flops_per_sample)
        return self.cost.seconds(steps=1.0, flops=flops) * self.slowness.factor


@dataclass(frozen=True)
class RunPlan:
    """Plan of a run: learning, clients, churn and network.

    neighbours: the linked peers of each client and server; links: the properties of these links. network: the
    network at the start; networks: those after changes, each with its time (seconds).
    """

    learning: LearningPlan
    clients: tuple[ClientPlan, ...]
    churn: ChurnSchedule
    neighbours: Names
    links: Mapping[str, Links]
    network: NetworkModel
    networks: list[tuple[float, NetworkModel]]
    energy: EnergyConstants | None = None
    """Constants of energy; None if the scenario states none."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Lines about settings with less effect than their values suggest, or an unintended effect."""
        return (*self.churn.notices, *self.learning.dataset.notices)


def plan_run(
    scenario: Scenario, folder: DataFolder, *, made: bool = True, room: DeviceMemory | None = None
) -> RunPlan:
    """Return the plan of a scenario. Raises UserError.

    made: create the models, each an `Architecture`; otherwise the plan has only the sizes of fully connected
    models. room: the memory in which they must fit; by default this machine's.
    """
    learning = _learning(scenario, folder, made, machines_room() if room is None else room)
    names, seed = list(learning.names), scenario.run.seed
    devices = scenario.devices.build(seed, folder, len(names))
    participants = Participants(seed, names, (), learning.clusters, folder)
    churn = churn_schedule(
        scenario.churn, scenario.churn_process, scenario.change, participants, scenario.run.duration
    )
    neighbours, links = links_among(scenario, names, learning.servers)
    with_servers = replace(participants, servers=[plan.name for plan in learning.servers])
    network = scenario.network.build(with_servers)
    networks = changed_networks(scenario.network, scenario.change, with_servers)
    clients = []
    for index, work in enumerate(learning.work):
        require_room_on_device(devices, index, work)
        samples, up = len(learning.own.train[index]), index not in churn.absent
        slowness, cost = devices.slowness(index), devices.cost_model(index)
        steps = steps_allowed(scenario, names[index], work, samples)
        settings = learning.trainings[index].settings
        watts, region = devices.power(index), devices.region(index)
        clients.append(ClientPlan(work, samples, cost, slowness, up, steps, settings, watts, region))
    power = None if scenario.server is None else scenario.server.power
    of_servers = {each.name: devices.server_power(power, each.name) for each in learning.servers}
    of_clients = {name: (each.watts, each.region) for name, each in zip(names, clients, strict=True)}
    energy = energy_constants(scenario, of_clients, of_servers)
    return RunPlan(learning, tuple(clients), churn, neighbours, links, network, networks, energy)


def _learning(scenario: Scenario, folder: DataFolder, made: bool, room: DeviceMemory) -> LearningPlan:
    """Load and partition the data, and plan the models that fit them."""
    seed, count = scenario.run.seed, scenario.clients.count
    dataset = scenario.data.load(count, seed, folder)
    if problem := no_room_message(dataset.size_bytes):
        raise UserError(f'data.name = "{scenario.data.name}": {problem}')
    protocol = scenario.protocol
    objective = protocol.objective
    if objective is None:
        _require_classes(scenario, dataset)
    partition, validation = scenario.data.share_out(dataset, count, seed)
    clients = [client_name(index) for index in range(count)]
    participants = Participants(seed, clients, (), partition.clusters)
    groups = groups_of_clients(scenario, participants)
    models = models_of_clients(scenario, groups, dataset, folder, made=made)
    trainings = training_of_each(scenario, participants)
    work = workloads(models, trainings, 1 if objective is None else objective.views)
    require_room(scenario, work, room)
    if min(len(rows) for rows in partition.train) == 0:
        raise UserError("data.partition: leaves a client without a training sample")
    names = partition.names or tuple(clients)
    plans: tuple[ServerPlan, ...] = ()
    if not protocol.alone:
        plans = protocol_servers(protocol.method, protocol.settings, names, partition.clusters)
    own = assign_samples(scenario, partition, validation, len(plans), len(dataset.train_y))
    return LearningPlan(dataset, objective, groups, trainings, work, names, partition.clusters, plans, own)


def _require_classes(scenario: Scenario, dataset: Dataset) -> None:
    """Raise UserError for a classification with only one class."""
    labels = dataset.train_y
    if scenario.data.task == "classification" and bool((labels == labels[0]).all()):
        raise UserError(
            f'data.name = "{scenario.data.name}": all {len(labels):,} training labels are class '
            f"{int(labels[0])}; the labels must have at least two classes"
        )
