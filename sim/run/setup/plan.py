"""What a run consists of, before anything of it is computed.

Whatever a scenario's file alone does not show is refused here: data that are too few, models that do not fit
in memory, impossible topologies and the like. No torch, unless models are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from actors.settings.base import SettingError
from actors.source_location import of_error, written
from protocols.framework.context import Links
from protocols.framework.server import ServerPlan
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.files.input_file import no_room
from sim.learning.data.dataset import Dataset
from sim.learning.engine.optimizers import Optimizer
from sim.learning.models.size import Sized
from sim.plugins.section import FAILURES, in_short
from sim.run.setup.links import Names, links_among
from sim.run.setup.memory import Room, Workload, machines_room, require_room, require_room_on_device
from sim.run.setup.models import models_of_clients
from sim.run.setup.owners import Owned, owned
from sim.scenario.protocol_errors import servers_of
from sim.scenario.refusals import show
from sim.scenario.scenario import Scenario
from sim.scenario.sections.change import changed_networks
from sim.scenario.sections.churn import ChurnSchedule, churn_schedule
from sim.world.devices.device import CostModel
from sim.world.devices.slowness import Slowness
from sim.world.membership.kinds import Bootstrap
from sim.world.network_model import NetworkModel
from sim.world.participants import Participants, client_name

if TYPE_CHECKING:
    from protocols.framework.objectives import Objective


@dataclass(frozen=True)
class LearningPlan:
    """Who learns what: the data, their owners, each client's work, and the servers.

    objective: a method's own; None for that of the data. optimizer: of all clients. work: of each client; for
    equal models the same object. own: what the clients, whose `names` these are, own of the data, and behind
    them the servers.
    """

    dataset: Dataset
    objective: Objective | None
    optimizer: Optimizer
    work: tuple[Workload, ...]
    names: tuple[str, ...]
    clusters: tuple[int, ...] | None
    servers: tuple[ServerPlan, ...]
    own: Owned

    @property
    def models(self) -> list[Sized]:
        """The clients' models, each once."""
        return list({work.model.key: work.model for work in self.work}.values())


@dataclass(frozen=True)
class ClientPlan:
    """A client: its work, with so many samples of its own, and its device.

    steps: the training steps that its budget allows; infinite for a budget of other things, or none.
    """

    work: Workload
    samples: int
    cost: CostModel
    slowness: Slowness
    up_at_start: bool
    steps: float

    @property
    def steps_per_epoch(self) -> int:
        """Training steps of a pass over its samples."""
        return max(1, self.samples // self.work.batch_of(self.samples))

    @property
    def step_s(self) -> float:
        """Seconds of a training step on a whole batch, without temporary slow times."""
        flops = None
        if self.cost.flops_per_s is not None:
            seen = self.work.batch_of(self.samples) * self.work.views
            flops = float(seen * self.work.model.training_flops_per_sample)
        return self.cost.seconds(steps=1.0, flops=flops) * self.slowness.factor


@dataclass(frozen=True)
class RunPlan:
    """A run: who learns what, the clients, who comes and goes, and the network.

    neighbours: the peers that each has a link with; links: what else is said of these links. network: as it
    is at first; networks: those that follow at changes, each with its time (seconds).
    """

    learning: LearningPlan
    clients: tuple[ClientPlan, ...]
    churn: ChurnSchedule
    neighbours: Names
    links: Mapping[str, Links]
    network: NetworkModel
    networks: list[tuple[float, NetworkModel]]

    @property
    def notices(self) -> tuple[str, ...]:
        """What has less effect than stated, or is surely not meant so, a line for each thing."""
        return (*self.churn.notices, *self.learning.dataset.notices)


@contextmanager
def users_faults(scenario: Scenario) -> Iterator[None]:
    """Whatever the user's code raises before the first step is a UserError that names its line."""
    try:
        yield
    except UserError:
        raise
    except FAILURES as error:
        plugins = [(each, each.sources) for each in scenario.plugins]
        files = {str(own.root / name): each for each, own in plugins if own is not None for name in own.files}
        frames = [frame for frame in of_error(error) if frame[0] in files]
        if not frames:  # a fault of ours
            raise
        about = files[frames[-1][0]].stated
        raise UserError(f"{about}: {written(*frames[-1])}: {in_short(error)}") from error


def planned(
    scenario: Scenario, folder: DataFolder, *, made: bool = True, room: Room | None = None
) -> RunPlan:
    """The plan of a scenario. UserError.

    made: make the models, each an `Architecture`; else only their sizes are known, those of fully connected
    ones. room: where they must fit; by default this machine's memory.
    """
    learning = _learning(scenario, folder, made, machines_room() if room is None else room)
    names, seed = list(learning.names), scenario.run.seed
    devices = scenario.devices.build(seed, folder, len(names))
    participants = Participants(seed, names, (), learning.clusters, folder)
    churn = churn_schedule(
        scenario.churn, scenario.churn_process, scenario.change, participants, scenario.run.duration
    )
    neighbours, links = links_among(scenario, names, learning.servers)
    _refuse_samples_with_servers(scenario, learning)
    _refuse_what_is_said_of_servers(scenario, learning)
    everybody = replace(participants, servers=[plan.name for plan in learning.servers])
    network = scenario.network.build(everybody)
    networks = changed_networks(scenario.network, scenario.change, everybody)
    clients = []
    for index, work in enumerate(learning.work):
        require_room_on_device(devices, index, work)
        samples, up = len(learning.own.train[index]), index not in churn.absent
        slowness, cost = devices.slowness(index), devices.cost_model(index)
        steps = _steps_allowed(scenario, names[index], work, samples)
        clients.append(ClientPlan(work, samples, cost, slowness, up, steps))
    return RunPlan(learning, tuple(clients), churn, neighbours, links, network, networks)


def _learning(scenario: Scenario, folder: DataFolder, made: bool, room: Room) -> LearningPlan:
    """Data, shared out to the clients, and the models that fit them."""
    seed, count = scenario.run.seed, scenario.clients.count
    dataset = scenario.data.load(count, seed, folder)
    if problem := no_room(dataset.size_bytes):
        raise UserError(f'data.name = "{scenario.data.name}": {problem}')
    models = models_of_clients(scenario, dataset, folder, made=made)
    protocol, training = scenario.protocol, scenario.training
    objective = protocol.objective
    if objective is None:
        _require_classes(scenario, dataset)
    optimizer = Optimizer(
        training.optimizer,
        training.momentum,
        training.dampening,
        training.nesterov,
        training.weight_decay,
        training.betas,
        training.epsilon,
        training.clip_norm,
    )
    views = 1 if objective is None else objective.views
    kinds = {
        model.key: Workload(model, optimizer.slots, training.batch_size, training.sampling, views)
        for model in models
    }
    work = tuple([kinds[model.key] for model in models])
    require_room(scenario, work, room)
    partition, validation = scenario.data.share_out(dataset, count, seed)
    if min(len(rows) for rows in partition.train) == 0:
        raise UserError("data.partition: some client has no training sample")
    names = partition.names or tuple([client_name(index) for index in range(count)])
    plans: tuple[ServerPlan, ...] = ()
    if not protocol.alone:
        plans = servers_of(protocol.method, protocol.settings, names, partition.clusters)
    own = owned(scenario, partition, validation, len(plans), len(dataset.train_y))
    return LearningPlan(dataset, objective, optimizer, work, names, partition.clusters, plans, own)


def _require_classes(scenario: Scenario, dataset: Dataset) -> None:
    """UserError for a classification with nothing to tell apart: any model would be right from the start."""
    labels = dataset.train_y
    if scenario.data.task == "classification" and bool((labels == labels[0]).all()):
        raise UserError(
            f'data.name = "{scenario.data.name}": all {len(labels):,} training labels are class '
            f"{int(labels[0])}; must be of two classes at least"
        )


def _steps_allowed(scenario: Scenario, name: str, work: Workload, samples: int) -> float:
    budget = scenario.run.budget
    if budget is None or budget.samples is None:
        return math.inf if budget is None or budget.steps is None else budget.steps
    of_a_step = work.batch_of(samples) * work.views
    if budget.samples < of_a_step:
        raise UserError(
            f"run.budget.samples = {budget.samples}: {name} sees {of_a_step:,} in a "
            "training step; must be at least as many"
        )
    return budget.samples // of_a_step


def _refuse_samples_with_servers(scenario: Scenario, learning: LearningPlan) -> None:
    if learning.servers and isinstance(scenario.network.membership, Bootstrap):
        raise UserError(
            'network.membership.kind = "bootstrap": gives clients other clients as peers, but with '
            f'protocol.name = "{scenario.protocol.name}" each talks to its server only; must be one '
            "of announce, all-knowing, swim"
        )


def _refuse_what_is_said_of_servers(scenario: Scenario, learning: LearningPlan) -> None:
    """Without servers nothing may be said of them; but alone, what is said of the method's may stay."""
    protocol = scenario.protocol
    about = [*scenario.network.about_servers()]
    if scenario.server is not None:
        about.append(SettingError("server", None, "must be left out"))
    unfit = next(iter(about), None)
    if unfit is not None and not (learning.servers or protocol.alone):
        value = "" if unfit.value is None else f" = {show(unfit.value)}"
        raise UserError(
            f'{unfit.key}{value}: {unfit.problem}, as protocol.name = "{protocol.name}" has no servers'
        )
