"""The learning side of a run: data, their owners, the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.augmentation import Augmentation
from sim.learning.data import Dataset
from sim.learning.engine import ClientData, Optimizer
from sim.learning.models import Decoupled, require_fit
from sim.learning.models.backbones import client_backbones
from sim.learning.models.own import OwnModel
from sim.learning.objectives import OBJECTIVES
from sim.run.compute import LearningSettings
from sim.run.memory import require_room
from sim.scenario.protocol_checks import objective_of
from sim.scenario.scenario import Scenario
from sim.scenario.sections.clients import FreshStart


@dataclass(frozen=True)
class Learning:
    """The learning side of a run: data on the device, and each client's model and how it trains."""

    dataset: Dataset
    data: ClientData
    clusters: tuple[int, ...] | None
    settings: tuple[LearningSettings, ...]

    @property
    def kinds(self) -> dict[str, LearningSettings]:
        """The different settings, by their architecture's key, in the order of the first client of each."""
        kinds: dict[str, LearningSettings] = {}
        for own in self.settings:
            kinds.setdefault(own.architecture.key, own)
        return kinds


def choose_device(name: str) -> torch.device:
    """ "auto", "cpu" or "cuda" as a torch device; UserError when there is no such device."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: must be one of auto, cpu, cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("--device cuda: this machine has no CUDA device that torch can use; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and available else "cpu")


def load_learning(
    scenario: Scenario, data_dir: Path | None, device: torch.device, *, download: bool = True
) -> Learning:
    """Data, shared out to the clients, and the model that fits it. Raises UserError."""
    seed, count = scenario.run.seed, scenario.clients.count
    dataset = scenario.data.load(count, seed, data_dir, download=download)
    settings = _settings(scenario, dataset, data_dir)
    require_room(scenario, settings, device)
    partition, validation = scenario.data.share_out(dataset, count, seed)
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
    return Learning(dataset, data, partition.clusters, settings)


def _settings(scenario: Scenario, dataset: Dataset, data_dir: Path | None) -> tuple[LearningSettings, ...]:
    """How each client trains; those with the same model share one object."""
    training, protocol = scenario.training, scenario.protocol
    own_objective = objective_of(protocol.learner, protocol.settings)
    objective, views = (
        (OBJECTIVES[scenario.data.task], 1) if own_objective is None else (own_objective, own_objective.views)
    )
    augmentation = _augmentation(scenario, dataset)
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

    model, shape, classes = scenario.model, dataset.input_shape, scenario.data.classes
    require_fit(model, shape)

    def settings(architecture: Architecture) -> LearningSettings:
        return LearningSettings(
            architecture,
            objective,
            classes,
            optimizer,
            training.learning_rate,
            training.batch_size,
            training.sampling,
            augmentation,
            views,
            training.schedule,
        )

    parts = protocol.learner.parts
    if not isinstance(model, Decoupled):
        if parts is not None:
            raise UserError(
                f'model.name = "{model.name}": protocol.name = "{protocol.name}" exchanges parts of '
                'models, for which it must be "decoupled"'
            )
        common = settings(model.architecture(shape, classes))
        if isinstance(model, OwnModel):
            model.require_pure(common.architecture, objective, views, classes)
        return (common,) * scenario.clients.count
    each = _backbones(scenario, model, data_dir)
    kinds = {
        backbone: settings(model.architecture(shape, classes, backbone, parts or ()))
        for backbone in dict.fromkeys(each)
    }
    if len(kinds) > 1 and not protocol.learner.heterogeneous:
        raise UserError(
            f'model.backbones = {list(model.backbones)}: protocol.name = "{protocol.name}" mixes whole '
            "models, so that all clients need the same backbone; name one"
        )
    newcomers = scenario.clients.newcomers
    if len(kinds) > 1 and not isinstance(newcomers, FreshStart):
        raise UserError(
            f'clients.newcomers.kind = "{newcomers.kind}": takes over whole models, but model.backbones = '
            f'{list(model.backbones)} makes them different; must be "fresh", or name one backbone'
        )
    return tuple([kinds[backbone] for backbone in each])


def _backbones(scenario: Scenario, model: Decoupled, data_dir: Path | None) -> list[str]:
    """The backbone of each client."""
    devices, count = scenario.devices.build(scenario.run.seed, data_dir), scenario.clients.count
    speeds = [devices.relative_speed(index) for index in range(count)] if model.assign == "by-speed" else []
    return client_backbones(model.assign, model.backbones, count, scenario.run.seed, speeds)


def _augmentation(scenario: Scenario, dataset: Dataset) -> Augmentation | None:
    chosen = scenario.training.augmentation
    if chosen is None:
        return None
    assert dataset.scaling is not None, "refused by the checks of the scenario"
    mean, std = dataset.scaling
    return Augmentation(**chosen.model_dump(), mean=mean, std=std)
