"""The learning side of a run: data, their owners, the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sim.compute import LearningSettings
from sim.errors import UserError
from sim.learning.augmentation import Augmentation
from sim.learning.datasets import Dataset, load_dataset
from sim.learning.dealing import Labels
from sim.learning.engine import ClientData, Optimizer
from sim.learning.models import architecture
from sim.learning.objectives import OBJECTIVES
from sim.learning.partitions import PARTITIONS, Partition
from sim.scenario import Scenario
from sim.settings.data import ImageData, QuadraticData


@dataclass(frozen=True)
class Learning:
    """The learning side of a run: data on the device, the model, and how clients train."""

    dataset: Dataset
    data: ClientData
    clusters: tuple[int, ...] | None
    settings: LearningSettings


def choose_device(name: str) -> torch.device:
    """ "auto", "cpu" or "cuda" as a torch device; UserError when there is no such device."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: must be one of auto, cpu, cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("--device cuda: this machine has no CUDA device that torch can use; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and available else "cpu")


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
        _augmentation(scenario, dataset),
    )
    return Learning(dataset, data, partition.clusters, settings)


def _augmentation(scenario: Scenario, dataset: Dataset) -> Augmentation | None:
    chosen = scenario.training.augmentation
    if chosen is None:
        return None
    assert dataset.scaling is not None, "refused by the checks of the scenario"
    mean, std = dataset.scaling
    return Augmentation(**chosen.model_dump(), mean=mean, std=std)


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
