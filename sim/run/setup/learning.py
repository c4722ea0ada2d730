"""The learning side of a run: data, their owners, the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from protocols.framework.server import ServerPlan
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.architecture import Architecture
from sim.learning.augmentation import Augmentation
from sim.learning.data import Dataset
from sim.learning.engine import ClientData, Optimizer
from sim.learning.engine.backends.kernels import Kernel
from sim.learning.metrics import unfit
from sim.learning.models import Decoupled, Lora
from sim.learning.models.backbones import client_backbones
from sim.learning.models.own import OwnModel
from sim.learning.objectives import OBJECTIVES
from sim.plugins.section import FAILURES, in_short
from sim.run.live.learning_settings import LearningSettings
from sim.run.setup.memory import require_room
from sim.run.setup.owners import owned
from sim.scenario.protocol_errors import objective_of, require_scalar_loss, servers_of
from sim.scenario.scenario import Scenario
from sim.scenario.sections.clients import FreshStart
from sim.world.participants import client_name


@dataclass(frozen=True)
class Learning:
    """The learning side of a run: data on the device, each client's model and how it trains, the servers.

    `data` holds the clients', whose `names` these are, and then what each server owns, if it owns any.
    """

    dataset: Dataset
    data: ClientData
    names: tuple[str, ...]
    clusters: tuple[int, ...] | None
    settings: tuple[LearningSettings, ...]
    servers: tuple[ServerPlan, ...] = ()

    @property
    def device(self) -> torch.device:
        """The device that the clients are computed on."""
        return self.data.train.x.device

    @property
    def kinds(self) -> dict[str, LearningSettings]:
        """The different settings, by their architecture's key, in the order of the first client of each."""
        kinds: dict[str, LearningSettings] = {}
        for own in self.settings:
            kinds.setdefault(own.architecture.key, own)
        return kinds


def load_learning(scenario: Scenario, folder: DataFolder, device: torch.device) -> Learning:
    """Data, shared out to the clients, and the model that fits it. Raises UserError."""
    seed, count = scenario.run.seed, scenario.clients.count
    dataset = scenario.data.load(count, seed, folder)
    settings = _settings(scenario, dataset, folder)
    require_room(scenario, settings, device)
    partition, validation = scenario.data.share_out(dataset, count, seed)
    if min(len(rows) for rows in partition.train) == 0:
        raise UserError("data.partition: some client has no training sample")
    names = partition.names or tuple([client_name(index) for index in range(count)])
    plans: tuple[ServerPlan, ...] = ()
    if not scenario.protocol.alone:
        protocol = scenario.protocol
        plans = servers_of(protocol.method, protocol.settings, names, partition.clusters)
    own = owned(scenario, partition, validation, len(plans), len(dataset.train_y))
    _try_single_samples(scenario, dataset, settings, own.train)
    data = ClientData(
        (torch.from_numpy(dataset.train_x).to(device), torch.from_numpy(dataset.train_y).to(device)),
        (torch.from_numpy(dataset.test_x).to(device), torch.from_numpy(dataset.test_y).to(device)),
        train_rows=own.train,
        validation_rows=own.validation,
        test_rows=own.test,
        label_maps=own.label_maps,
        output_numbers=dataset.outputs * dataset.train_x.shape[1] if scenario.data.task == "language" else 0,
    )
    return Learning(dataset, data, names, partition.clusters, settings, plans)


def _try_single_samples(
    scenario: Scenario, dataset: Dataset, each: Sequence[LearningSettings], owned_rows: Sequence[np.ndarray]
) -> None:
    """UserError for a model that cannot train on one sample, where an actor's batches have no more.

    Batch norms cannot, and what drops each dimension of size 1. It is tried once for each model.
    """
    tried: set[str] = set()
    for number, rows in enumerate(owned_rows):
        learning = each[number] if number < len(each) else each[0]  # servers have the first client's
        architecture, size = learning.architecture, min(learning.batch_size, len(rows))
        if size > 1 or learning.views > 1 or architecture.key in tried:
            continue
        tried.add(architecture.key)
        x, y = [torch.from_numpy(part[rows[:1]])[None] for part in (dataset.train_x, dataset.train_y)]
        start = architecture.initial(torch.Generator().manual_seed(0))[None]
        who = client_name(number) if number < len(each) else f"server {number - len(each)}"
        about = f"{who} trains on one sample at a time ({len(rows)} of its own)"
        try:
            Kernel(architecture, learning.objective, "vmap").gradients(start, x, y)
        except UserError as error:
            raise UserError(f"{error.problem}; {about}") from None
        except FAILURES as error:
            if not isinstance(scenario.model, OwnModel):
                raise
            raise scenario.model.refusal(f"cannot be computed: {about}: {in_short(error)}", error) from error


def _settings(scenario: Scenario, dataset: Dataset, folder: DataFolder) -> tuple[LearningSettings, ...]:
    """How each client trains; those with the same model share one object."""
    model, shape = scenario.model, dataset.input_shape
    parts = scenario.protocol.method.parts
    each, options = ["common"] * scenario.clients.count, {"common": dict[str, Any]()}
    if isinstance(model, Decoupled):
        each = _backbones(scenario, model, folder)
        options = {backbone: {"backbone": backbone, "parts": parts or ()} for backbone in each}
        if len(options) > 1:
            _require_heterogeneous(scenario, model)
    elif parts is not None:
        raise UserError(
            f'model.name = "{model.name}": protocol.name = "{scenario.protocol.name}" exchanges parts of '
            'models, for which it must be "decoupled"'
        )
    elif isinstance(model, Lora):
        options["common"]["base"] = model.load(dataset, folder)
    elif isinstance(model, OwnModel):
        options["common"]["seed"] = scenario.run.seed
        if dataset.inputs is not None:
            options["common"]["inputs"] = dataset.inputs
    kinds = {
        kind: _trained(scenario, dataset, model.architecture(shape, dataset.outputs, **given))
        for kind, given in options.items()
    }
    if isinstance(model, OwnModel):
        own = kinds["common"]
        model.require_pure(own.architecture, own.objective, own.views, dataset)
    return tuple([kinds[kind] for kind in each])


def _trained(scenario: Scenario, dataset: Dataset, architecture: Architecture) -> LearningSettings:
    """How the clients with models of this architecture train."""
    training, protocol = scenario.training, scenario.protocol
    augmentation = _augmentation(scenario, dataset)
    objective = objective_of(protocol.method, protocol.settings)
    for problem in unfit(scenario.data.task, scenario.run.metrics or (), dataset.test_y, objective):
        raise UserError(f"run.metrics: {problem}")
    if objective is None:
        _require_classes(scenario, dataset)
    else:
        first = [np.concatenate([part[:2]] * objective.views) for part in (dataset.train_x, dataset.train_y)]
        require_scalar_loss(objective, architecture, *map(torch.from_numpy, first))
    return LearningSettings(
        architecture,
        OBJECTIVES[scenario.data.task] if objective is None else objective,
        dataset.outputs,
        Optimizer(
            training.optimizer,
            training.momentum,
            training.dampening,
            training.nesterov,
            training.weight_decay,
            training.betas,
            training.epsilon,
            training.clip_norm,
        ),
        training.learning_rate,
        training.batch_size,
        training.sampling,
        augmentation,
        1 if objective is None else objective.views,
        training.schedule,
    )


def _require_classes(scenario: Scenario, dataset: Dataset) -> None:
    """UserError for a classification with nothing to tell apart: any model would be right from the start."""
    labels = dataset.train_y
    if scenario.data.task == "classification" and bool((labels == labels[0]).all()):
        raise UserError(
            f'data.name = "{scenario.data.name}": all {len(labels):,} training labels are class '
            f"{int(labels[0])}; must be of two classes at least"
        )


def _require_heterogeneous(scenario: Scenario, model: Decoupled) -> None:
    """UserError unless models of different architectures can take part."""
    backbones, newcomers = list(model.backbones), scenario.clients.newcomers
    if not scenario.protocol.method.heterogeneous:
        raise UserError(
            f'model.backbones = {backbones}: protocol.name = "{scenario.protocol.name}" mixes whole '
            "models, so that all clients need the same backbone; name one"
        )
    if not isinstance(newcomers, FreshStart):
        raise UserError(
            f'clients.newcomers.kind = "{newcomers.kind}": takes over whole models, but model.backbones = '
            f'{backbones} makes them different; must be "fresh", or name one backbone'
        )


def _backbones(scenario: Scenario, model: Decoupled, folder: DataFolder) -> list[str]:
    """The backbone of each client."""
    count = scenario.clients.count
    devices = scenario.devices.build(scenario.run.seed, folder, count)
    speeds = [devices.relative_speed(index) for index in range(count)] if model.assign == "by-speed" else []
    return client_backbones(model.assign, model.backbones, count, scenario.run.seed, speeds)


def _augmentation(scenario: Scenario, dataset: Dataset) -> Augmentation | None:
    chosen = scenario.training.augmentation
    if chosen is None:
        return None
    if dataset.scaling is None:  # of data that only their samples show to be no images
        raise UserError(
            f'training.augmentation: changes images, and data.name = "{scenario.data.name}" has rows of '
            "numbers; leave the section out"
        )
    mean, std = dataset.scaling
    return Augmentation(**chosen.model_dump(), mean=mean, std=std)
