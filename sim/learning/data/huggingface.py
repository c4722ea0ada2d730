"""Data sets of the Hugging Face Hub, and of folders that its package datasets has saved."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from sim.errors import UserError, one_line
from sim.files.data_folder import FOLDER_VARIABLE, DataFolder
from sim.files.input_file import InputFile
from sim.files.saved_folder import is_saved
from sim.learning.data.dataset import Dataset
from sim.learning.data.huggingface_keys import HuggingFaceKeys

_OF_HUB = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


class HuggingFaceData(HuggingFaceKeys):
    """A data set of the Hugging Face Hub, or a folder that its package datasets has written (`save_to_disk`).

    Samples are images, of one column, or rows as of a table, where a column of classes that is a feature has
    one number for each.
    """

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
