"""Learning side of a run: the data on the device, and the training of each client."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from sim.core.client_data import data_on
from sim.core.learning_settings import LearningSettings
from sim.errors import FAILURES, UserError
from sim.learning.architecture import Architecture
from sim.learning.augmentation import Augmentation
from sim.learning.data.dataset import Dataset
from sim.learning.engine import ClientData
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.metrics import unfit
from sim.learning.models.own import OwnModel
from sim.learning.objectives import OBJECTIVES
from sim.plugins.section import in_short
from sim.run.setup.plan import LearningPlan
from sim.run.setup.training import ClientTraining
from sim.scenario.protocol_errors import require_scalar_loss
from sim.scenario.scenario import Scenario
from sim.world.participants import client_name


@dataclass(frozen=True)
class Learning:
    """Learning side of a run: plan, data on the device, and each client's model and training.

    `data` holds the samples of the clients, followed by those of the servers, if any. Servers have the model
    of the first client, and no overrides.
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
        """Different settings, by the architecture's key, in the order of the first client of each."""
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
    _try_single_samples(scenario, plan, (*settings, *[of_servers] * len(plan.servers)))
    outputs = dataset.outputs * dataset.train_x.shape[1] if scenario.data.task == "language" else 0
    data = data_on(device, dataset, own.train, own.validation, own.test, own.label_maps, outputs)
    return Learning(plan, data, settings, of_servers)


def _try_single_samples(scenario: Scenario, plan: LearningPlan, each: tuple[LearningSettings, ...]) -> None:
    """Raise UserError for a model that cannot train on one sample, if an actor's batches have only one.

    each: the settings of all clients and then of all servers, of which those without samples are skipped.
    This applies to batch norms, and to code that drops dimensions of size 1. Each model is tried once.
    """
    dataset, tried = plan.dataset, set[str]()
    for number, (rows, learning) in enumerate(zip(plan.own.train, each, strict=False)):
        architecture, size = learning.architecture, min(learning.batch_size, len(rows))
        if size > 1 or learning.views > 1 or architecture.key in tried:
            continue
        tried.add(architecture.key)
        x, y = [torch.from_numpy(part[rows[:1]])[None] for part in (dataset.train_x, dataset.train_y)]
        start = architecture.initial(torch.Generator().manual_seed(0))[None]
        clients = len(plan.work)
        who = client_name(number) if number < clients else f"server {number - clients}"
        about = f"{who} trains on one sample at a time (it owns {len(rows)})"
        try:
            ModelKernel(architecture, learning.objective, "vmap").gradients(start, x, y)
        except UserError as error:
            raise UserError(f"{error.problem}; {about}") from None
        except FAILURES as error:
            model = scenario.models[plan.groups[number] if number < clients else 0]
            if not isinstance(model, OwnModel):
                raise
            raise model.refusal(f"cannot be computed: {about}: {in_short(error)}", error) from error


def _settings_of_each(
    scenario: Scenario, plan: LearningPlan
) -> tuple[tuple[LearningSettings, ...], LearningSettings]:
    """Return the settings of each client, of which equal ones share an object, and those of servers."""
    made: dict[tuple[str, tuple[int, ...]], LearningSettings] = {}
    settings = []
    for work, own in zip(plan.work, plan.trainings, strict=True):
        key = (work.model.key, own.overrides)
        if key not in made:
            made[key] = _trained(scenario, plan, cast(Architecture, work.model), own)
        settings.append(made[key])
    if not scenario.training.override:
        return tuple(settings), settings[0]
    base = ClientTraining(scenario.training, scenario.protocol.settings)
    return tuple(settings), _trained(scenario, plan, settings[0].architecture, base)


def _trained(
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
    for problem in unfit(task, names, plan.dataset.test_y, plan.objective, validates=validates):
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
