"""The keys of a data set of the Hugging Face Hub, or of a folder that its package datasets has saved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from actors.settings.base import SettingError
from sim.files.named_files import IF_FOUND
from sim.learning.data.tabular import TabularData

_Text = Annotated[str, Field(min_length=1, max_length=200)]


class HuggingFaceKeys(TabularData):
    """The keys of a data set of Hugging Face."""

    name: Literal["huggingface"]
    """The data set."""
    source: Annotated[_Text, IF_FOUND]
    """The folder, its path relative to the current one, the scenario's, or the data folder; or else the name
    on the Hub, "ylecun/mnist", downloaded once into the data folder, by the package datasets."""
    subset: _Text | None = None
    """Which of several data sets that the Hub has under that name, where there are several."""
    revision: _Text | None = None
    """The commit, branch or tag on the Hub; by default what is newest when it is downloaded."""
    split: _Text = "train"
    """The split to train on."""
    test_split: _Text | None = None
    """The split to test on; by default "test", where there is one."""
    label: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The column of the label, by default the only one of classes; in a regression also a list of columns.
    Classes that the data list are in their order, others in order of the values."""
    features: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The column of images, by default the only one there is; or, without any, the columns of the features,
    by default all others."""
    standardise: bool = True
    """Whether columns of numbers, and channels of images, are shifted and scaled to mean 0 and standard
    deviation 1 in training."""

    @model_validator(mode="after")
    def _says_what_is_what(self) -> HuggingFaceKeys:
        if self.purpose == "regression" and self.label is None:
            raise SettingError("label", None, 'must be stated for data.task = "regression"')
        if self.test_split == self.split:
            raise SettingError("test_split", self.test_split, "must be another one than data.split")
        return self
