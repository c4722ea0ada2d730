"""Folder of real data: images, and measured traces of networks, devices and churn."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sim.errors import UserError
from sim.files.input_file import InputFile

FOLDER_VARIABLE = "COTERIE_DATA"


@dataclass(frozen=True)
class DataFolder:
    """The data folder: the named folder, or else COTERIE_DATA, or else ./data.

    download: whether missing data sets are downloaded into it. A folder that is named here or by
    COTERIE_DATA, and does not exist, raises UserError on first use, since a run may not need it.
    """

    named: Path | None = None
    download: bool = False

    @cached_property
    def path(self) -> Path:
        """Path of the folder. Raises UserError if a named folder does not exist."""
        variable = os.environ.get(FOLDER_VARIABLE)
        if self.named is None and variable is None:
            return Path("data")
        if self.named is None and not variable:
            raise UserError(f"{FOLDER_VARIABLE} is empty; name an existing folder, or unset it")
        folder = Path(self.named or variable or "")
        if not os.path.isdir(folder):  # unlike Path.is_dir, no error for impossible names
            raise UserError(
                f"data folder {folder} ({self.chosen_by}): no such folder; name an existing folder"
            )
        return folder

    @property
    def chosen_by(self) -> str:
        """Setting that named the folder, for messages."""
        if self.named is not None:
            return "from --data-dir"
        if FOLDER_VARIABLE in os.environ:
            return f"from {FOLDER_VARIABLE}"
        return f"the default; change it with --data-dir or {FOLDER_VARIABLE}"

    def file(self, key: str, path: str) -> InputFile:
        """Return the file at `path`; a relative path that does not exist is looked up in this folder.

        Raises UserError if a relative path exists in neither place.
        """
        if os.path.exists(path) or os.path.isabs(path):
            return InputFile(key, Path(path))
        if not os.path.exists(self.path / path):
            raise UserError(
                f'{key} = "{path}": no such file in the current folder, in the scenario\'s folder, or in the '
                f"data folder {self.path} ({self.chosen_by})"
            )
        return InputFile(key, self.path / path)

    def trace(self, key: str, folder: str, file: str) -> InputFile:
        """Return the file `folder`/`file` of measurements for a key of the scenario. Raises UserError."""
        path = self.path / folder / file
        if not os.path.exists(path):
            raise UserError(
                f"{key} needs {file}, which is not in {path.parent} ({self.chosen_by}); put the file there, "
                f"or name another data folder with --data-dir or {FOLDER_VARIABLE}"
            )
        return InputFile(key, path)
