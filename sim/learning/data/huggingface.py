"""Data sets of the Hugging Face Hub, and of folders that the package `datasets` saved."""

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
    """Data set of the Hugging Face Hub, or folder that `save_to_disk` of the package `datasets` wrote.

    Samples are images, from one column, or rows as in a table. A column of classes that is a feature becomes
    one number for each class.
    """

    @property
    def is_images(self) -> bool:
        """True, because samples may be images; only the data shows whether they are."""
        return True

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return the rows of the splits as numbers or pixels; download them if needed. Raises UserError."""
        from sim.learning.data.saved import load_saved

        return load_saved(self, InputFile("data.source", self._folder(folder)))

    def _folder(self, folder: DataFolder) -> Path:
        """Return the folder of the data, after a download if necessary. Raises UserError."""
        stated = [key for key in ("subset", "revision") if getattr(self, key) is not None]
        for path in (Path(self.source), folder.path / self.source):
            if os.path.exists(path) or os.path.isabs(self.source):
                if stated:
                    raise UserError(
                        f"data.{stated[0]} applies only to the Hub; data.source = {path} is the path of a "
                        "folder"
                    )
                return path
        looked = (
            f'data.source = "{self.source}": no such folder in the current folder, the scenario\'s '
            f"folder, or the data folder {folder.path} ({folder.chosen_by})"
        )
        if not _OF_HUB.fullmatch(self.source):
            raise UserError(f'{looked}; a name on the Hub has the form "owner/name", such as "ylecun/mnist"')
        parts = [self.source.replace("/", "--"), self.subset or "", self.revision or ""]
        into = folder.path / "huggingface" / quote("@".join(parts).rstrip("@"), safe="@")
        if is_saved(into):
            return into
        if not folder.download:
            raise UserError(
                f"{looked}, and this command does not download (coterie run downloads it from the Hub)"
            )
        self._download(into, looked)
        return into

    def _download(self, into: Path, looked: str) -> None:
        from sim.learning.data.hub import download

        try:
            download(self.source, self.subset, self.revision, into)
        except Exception as error:  # untrusted data can make any reader fail in any way
            problem = (
                error.problem
                if isinstance(error, UserError)
                else one_line(f"{type(error).__name__}: {error}", 400)
            )
            given = ", ".join(repr(each) for each in (self.source, self.subset) if each is not None)
            given += f", revision={self.revision!r}" if self.revision else ""
            raise UserError(
                f"{looked}, and it could not be downloaded from the Hub: {problem}\n"
                f"With Hub access, datasets.load_dataset({given}).save_to_disk(folder) saves it; copy the "
                f"folder to {into}, or name another data folder with --data-dir or {FOLDER_VARIABLE}"
            ) from None
