"""Data sets of the Hugging Face Hub, and of folders that its package datasets has saved."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from actors.settings.base import SettingError
from sim.errors import UserError, one_line
from sim.files.data_folder import FOLDER_VARIABLE, DataFolder
from sim.files.input_file import InputFile
from sim.files.named_files import IF_FOUND
from sim.files.saved_folder import is_saved
from sim.learning.data.dataset import Dataset
from sim.learning.data.table import TabularData

_OF_HUB = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_Text = Annotated[str, Field(min_length=1, max_length=200)]


class HuggingFaceData(TabularData):
    """A data set of the Hugging Face Hub, or a folder that its package datasets has written (`save_to_disk`).

    Samples are images, of one column, or rows as of a table, where a column of classes that is a feature has
    one number for each.
    """

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
    def _says_what_is_what(self) -> HuggingFaceData:
        if self.purpose == "regression" and self.label is None:
            raise SettingError("label", None, 'must be stated for data.task = "regression"')
        if self.test_split == self.split:
            raise SettingError("test_split", self.test_split, "must be another one than data.split")
        return self

    @property
    def is_images(self) -> bool:
        """Whether samples may be images: only the data say it."""
        return True

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """The splits' rows, as numbers or pixels; downloaded first where that is needed. Raises UserError."""
        from sim.learning.data.saved import load_saved

        return load_saved(self, InputFile("data.source", self._folder(folder)))

    def _folder(self, folder: DataFolder) -> Path:
        """Where the data lie, after a download if need be. UserError."""
        stated = [key for key in ("subset", "revision") if getattr(self, key) is not None]
        for place in (Path(self.source), folder.path / self.source):
            if os.path.exists(place) or os.path.isabs(self.source):
                if stated:
                    raise UserError(f"data.{stated[0]}: is of the Hub, and data.source = {place} is a folder")
                return place
        looked = (
            f'data.source = "{self.source}": there is no such folder here, nor beside the scenario, nor in '
            f"the data folder {folder.path} ({folder.chosen_by})"
        )
        if not _OF_HUB.fullmatch(self.source):
            raise UserError(f'{looked}, and on the Hub names are like "ylecun/mnist"')
        parts = [self.source.replace("/", "--"), self.subset or "", self.revision or ""]
        into = folder.path / "huggingface" / quote("@".join(parts).rstrip("@"), safe="@")
        if is_saved(into):
            return into
        if not folder.download:
            raise UserError(
                f"{looked}, and nothing is downloaded here (coterie run downloads it from the Hub)"
            )
        self._download(into, looked)
        return into

    def _download(self, into: Path, looked: str) -> None:
        from sim.learning.data.hub import download

        try:
            download(self.source, self.subset, self.revision, into)
        except Exception as error:  # what a stranger has put there can make any reader fail in any way
            problem = (
                error.problem
                if isinstance(error, UserError)
                else one_line(f"{type(error).__name__}: {error}", 400)
            )
            given = ", ".join(repr(each) for each in (self.source, self.subset) if each is not None)
            given += f", revision={self.revision!r}" if self.revision else ""
            raise UserError(
                f"{looked}, and it could not be downloaded from the Hub: {problem}\n"
                f"Where it can be, datasets.load_dataset({given}).save_to_disk(folder) saves it; copy that "
                f"to {into}, or name another data folder by --data-dir or {FOLDER_VARIABLE}"
            ) from None
