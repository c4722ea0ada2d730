"""What all data of the user's own have in common: the keys, and how they are shared out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import SettingError
from actors.settings.quantities import Count
from sim.errors import UserError
from sim.learning.data.dataset import Dataset, LabelledData, Rows
from sim.learning.data.given import Wanted
from sim.learning.partitions import Partition

_BetweenNoneAndAll = Annotated[float, Field(gt=0, lt=1)]


class GivenData(LabelledData):
    """Samples that the user gives."""

    tasks = ("classification", "regression")
    classes = None
    input_shape = None

    purpose: Literal["classification", "regression"] = Field("classification", alias="task")
    """What is learned: classes, or numbers, by the mean squared error."""
    test_share: _BetweenNoneAndAll = 0.2
    """Share of the samples to test on, where the data have no test part: of each client's, or else of each
    class's, one at least. They are the same for all seeds."""

    @property
    def task(self) -> str:
        return self.purpose

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.purpose == "regression" and self.partition.needs_classes:
            kind = self.partition.model_dump()["kind"]
            problem = 'shares out samples by class, and data.task = "regression" has none'
            yield SettingError("data.partition.kind", kind, problem)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        for misfit in self.partition.misfits(clients, dataset.outputs, self.name):
            raise UserError(f"{misfit.key} = {misfit.value}: {misfit.problem}")
        return super().share_out(dataset, clients, seed)


class GivenArrays(GivenData):
    """Samples that are arrays already."""

    number_of_classes: Count | None = Field(None, alias="classes")
    """Number of classes; by default one more than the largest label."""
    standardise: bool = False
    """Whether each number of a sample is shifted and scaled: mean 0, standard deviation 1 in training."""

    @property
    def wanted(self) -> Wanted:
        """What is to be made of the samples."""
        regression = self.purpose == "regression"
        return Wanted(regression, self.number_of_classes, self.test_share, self.standardise)
