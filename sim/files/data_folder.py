"""The folder with real data: images, and measured traces of networks, devices and churn."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sim.errors import UserError
from sim.files.input_file import InputFile

FOLDER_VARIABLE = "COTERIE_DATA"


@dataclass(frozen=True)
class DataFolder:
    """The data folder: the one that is named, else that in COTERIE_DATA, else ./data.

    download: whether data sets that are missing are downloaded into it. What it has raises UserError if it is
    named and does not exist, when that is first asked for: a run may need no data of it.
    """

    named: Path | None = None
    download: bool = False

    @cached_property
    def path(self) -> Path:
        """The folder's path. UserError if a named one does not exist."""
        variable = os.environ.get(FOLDER_VARIABLE)
        if self.named is None and variable is None:
            return Path("data")
        if self.named is None and not variable:
            raise UserError(f"{FOLDER_VARIABLE} is empty; name an existing folder, or unset it")
        folder = Path(self.named or variable or "")
        if not os.path.isdir(folder):  # unlike Path.is_dir, no error for names that cannot be
            raise UserError(f"data folder {folder} ({self.chosen_by}): no such folder; name an existing one")
        return folder

    @property
    def chosen_by(self) -> str:
        """Which setting named it, for messages."""
        if self.named is not None:
            return "from --data-dir"
        if FOLDER_VARIABLE in os.environ:
            return f"from {FOLDER_VARIABLE}"
        return f"the default; --data-dir or {FOLDER_VARIABLE} change it"

    def file(self, key: str, path: str) -> InputFile:
        """The file at `path`, which may also be below this folder; UserError where there is none."""
        if os.path.exists(path) or os.path.isabs(path):
            return InputFile(key, Path(path))
        if not os.path.exists(self.path / path):
            raise UserError(
                f'{key} = "{path}": there is no such file here, nor beside the scenario, nor in the data '
                f"folder {self.path} ({self.chosen_by})"
            )
        return InputFile(key, self.path / path)

    def trace(self, key: str, folder: str, file: str) -> InputFile:
        """The file `folder`/`file` of measurements, for a key of the scenario; else UserError."""
        path = self.path / folder / file
        if not os.path.exists(path):
            raise UserError(
                f"{key}: needs {file}, not found in {path.parent} ({self.chosen_by}); put it "
                f"there, or name another data folder by --data-dir or {FOLDER_VARIABLE}"
            )
        return InputFile(key, path)
