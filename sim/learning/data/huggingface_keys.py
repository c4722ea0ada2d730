"""Keys of a data set of the Hugging Face Hub, or of a folder that the package `datasets` saved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError
from sim.files.named_files import IF_FOUND
from sim.learning.data.tabular import TabularData

_Text = Annotated[str, Field(min_length=1, max_length=200)]


class HuggingFaceKeys(TabularData):
    """Keys of a data set of Hugging Face."""

    name: Literal["huggingface"]
    """Name of the data set."""
    source: Annotated[_Text, IF_FOUND]
    """Folder, with a path relative to the current folder, the scenario's folder, or the data folder;
    otherwise the name on the Hub, such as "ylecun/mnist". The package `datasets` downloads it once into the
    data folder."""
    subset: _Text | None = None
    """Subset, if the Hub has several data sets under that name."""
    revision: _Text | None = None
    """Commit, branch or tag on the Hub; by default the newest version at the time of the download."""
    split: _Text = "train"
    """Split for training."""
    test_split: _Text | None = None
    """Split for testing; by default "test", if there is one."""
    validation_split: _Text | None = None
    """Split for validation; by default "validation", if there is one and the partition distributes it (iid
    and natural do)."""
    label: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Column of the label, by default the only column of classes; in a regression also a list of columns.
    Classes keep their order in the data's list of classes; without a list, they are in order of their
    values."""
    features: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Column of images, by default the only one; or, without images, the feature columns, by default all
    other columns."""
    standardise: bool = True
    """True: columns of numbers, and channels of images, are standardized to mean 0 and standard deviation 1
    in training."""

    @model_validator(mode="after")
    def _says_what_is_what(self) -> HuggingFaceKeys:
        if self.purpose == "regression" and self.label is None:
            raise SettingError("label", None, 'is required for data.task = "regression"')
        if self.test_split == self.split:
            raise SettingError("test_split", self.test_split, "must be different from data.split")
        if self.validation_split in (self.split, self.test_split) and self.validation_split is not None:
            problem = "must be different from data.split and data.test_split"
            raise SettingError("validation_split", self.validation_split, problem)
        return self
