"""The folder with real data: images, and measured traces of networks, devices and churn."""

import os
from pathlib import Path

from sim.errors import UserError
from sim.files.input_file import InputFile

FOLDER_VARIABLE = "COTERIE_DATA"


def data_folder(data_dir: Path | None) -> tuple[Path, str]:
    """The data folder and, for messages, who chose it; a folder that somebody named must exist."""
    named = os.environ.get(FOLDER_VARIABLE)
    if data_dir is not None:
        folder, chosen_by = Path(data_dir), "from --data-dir"
    elif named is not None:
        if not named:
            raise UserError(f"{FOLDER_VARIABLE} is empty; name an existing folder, or unset it")
        folder, chosen_by = Path(named), f"from {FOLDER_VARIABLE}"
    else:
        return Path("data"), f"the default; --data-dir or {FOLDER_VARIABLE} change it"
    if not os.path.isdir(folder):  # unlike Path.is_dir, no error for names that cannot be
        raise UserError(f"data folder {folder} ({chosen_by}): no such folder; name an existing one")
    return folder, chosen_by


def data_file(key: str, data_dir: Path | None, path: str) -> InputFile:
    """The file at `path`, which may also be below the data folder; UserError where there is none."""
    if os.path.exists(path) or os.path.isabs(path):
        return InputFile(key, Path(path))
    root, chosen_by = data_folder(data_dir)
    if not os.path.exists(root / path):
        raise UserError(
            f'{key} = "{path}": there is no such file here, nor beside the scenario, nor in the data folder '
            f"{root} ({chosen_by})"
        )
    return InputFile(key, root / path)


def trace_file(key: str, data_dir: Path | None, folder: str, file: str) -> InputFile:
    """The measured trace `folder`/`file` of the data folder, which the scenario's `key` asks for.

    UserError when it is not there, with what to put where.
    """
    root, chosen_by = data_folder(data_dir)
    path = root / folder / file
    if not os.path.exists(path):
        raise UserError(
            f"{key}: needs the trace {file}, not found in {root / folder} ({chosen_by}); put it there, or "
            f"name another data folder by --data-dir or {FOLDER_VARIABLE}"
        )
    return InputFile(key, path)
