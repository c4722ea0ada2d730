"""Learning side of a run: the data on the device, and the training of each client."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from sim.core.client_data import data_on
from sim.core.learning_settings import LearningSettings
from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.augmentation import Augmentation
from sim.learning.data.dataset import Dataset
from sim.learning.engine import ClientData
from sim.learning.metrics import metric_misfit_reasons
from sim.learning.models.own import OwnModel
from sim.learning.objectives import OBJECTIVES
from sim.run.setup.plan import LearningPlan
from sim.run.setup.training import ClientTraining
from sim.scenario.protocol_errors import require_scalar_loss
from sim.scenario.scenario import Scenario


@dataclass(frozen=True)
class Learning:
    """Learning side of a run: plan, data on the device, and each client's model and training.

    `data` holds the samples of the clients, followed by the samples of the servers, if any. Servers have the
    model of the first client, and no overrides.
    """

    plan: LearningPlan
    data: ClientData
    settings: tuple[LearningSettings, ...]
    of_servers: LearningSettings

    @property
    def device(self) -> torch.device:
        """Device on which the clients are computed."""
        return self.data.train.x.device

    @property
    def kinds(self) -> dict[str, LearningSettings]:
        """Settings of the first client of each architecture, by the architecture's key."""
        kinds: dict[str, LearningSettings] = {}
        for own in self.settings:
            kinds.setdefault(own.architecture.key, own)
        return kinds


def load_learning(scenario: Scenario, plan: LearningPlan, device: torch.device) -> Learning:
    """Load the learning side of a plan with created models on a device. Raises UserError."""
    dataset, own = plan.dataset, plan.own
    settings, of_servers = _settings_of_each(scenario, plan)
    kinds = {each.architecture.key: (each, group) for each, group in zip(settings, plan.groups, strict=True)}
    for mine, group in kinds.values():
        model = scenario.models[group]
        if isinstance(model, OwnModel):
            model.require_pure(mine.architecture, mine.objective, mine.views, dataset)
    _require_fitting_metrics(scenario, plan)
    outputs = dataset.outputs * dataset.train_x.shape[1] if scenario.data.task == "language" else 0
    data = data_on(device, dataset, own.train, own.validation, own.test, own.label_maps, outputs)
    return Learning(plan, data, settings, of_servers)


def _settings_of_each(
    scenario: Scenario, plan: LearningPlan
) -> tuple[tuple[LearningSettings, ...], LearningSettings]:
    """Return the settings of each client, with one object for equal settings, and the servers' settings."""
    made: dict[tuple[str, tuple[int, ...]], LearningSettings] = {}
    settings = []
    for work, own in zip(plan.work, plan.trainings, strict=True):
        key = (work.model.key, own.overrides)
        if key not in made:
            made[key] = _learning_settings_of(scenario, plan, cast(Architecture, work.model), own)
        settings.append(made[key])
    if not scenario.training.override:
        return tuple(settings), settings[0]
    base = ClientTraining(scenario.training, scenario.protocol.settings)
    return tuple(settings), _learning_settings_of(scenario, plan, settings[0].architecture, base)


def _learning_settings_of(
    scenario: Scenario, plan: LearningPlan, architecture: Architecture, own: ClientTraining
) -> LearningSettings:
    """Return the settings of clients with this architecture and training."""
    training, dataset, objective = own.training, plan.dataset, plan.objective
    augmentation = _augmentation(scenario, dataset)
    if objective is not None:
        first = [np.concatenate([part[:2]] * objective.views) for part in (dataset.train_x, dataset.train_y)]
        require_scalar_loss(objective, architecture, *map(torch.from_numpy, first))
    return LearningSettings(
        architecture,
        OBJECTIVES[scenario.data.task] if objective is None else objective,
        dataset.outputs,
        own.optimizer,
        training.learning_rate,
        training.batch_size,
        training.sampling,
        augmentation,
        1 if objective is None else objective.views,
        training.schedule,
        own.precision,
        own.keeps_rate,
    )


def _require_fitting_metrics(scenario: Scenario, plan: LearningPlan) -> None:
    """Raise UserError for metrics that do not fit the data or the method's objective."""
    task, names = scenario.data.task, scenario.run.metrics or ()
    validates = any(map(len, plan.own.validation))
    for problem in metric_misfit_reasons(
        task, names, plan.dataset.test_y, plan.objective, validates=validates
    ):
        raise UserError(f"run.metrics: {problem}")


def _augmentation(scenario: Scenario, dataset: Dataset) -> Augmentation | None:
    chosen = scenario.training.augmentation
    if chosen is None:
        return None
    if dataset.scaling is None:  # the samples show that the data are not images
        raise UserError(
            f'training.augmentation: changes images, but data.name = "{scenario.data.name}" has rows of '
            "numbers; remove the section"
        )
    mean, std = dataset.scaling
    return Augmentation(**chosen.model_dump(), mean=mean, std=std)
