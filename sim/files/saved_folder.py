"""Folders written by `save_to_disk` of the package `datasets`: Arrow files, and types of their columns.

They are read without that package, because its `load_from_disk` opens any file and creates objects of any
class that the folder names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from sim.files import input_file
from sim.files.arrow_sizes import unpacked_bytes
from sim.files.input_file import SETTINGS_BYTES, InputFile, excerpt, too_large_message
from sim.files.input_table import require_table_fits

if TYPE_CHECKING:
    import pyarrow as pa

_INFO, _STATE, _SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"
_Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=100)]


class _File(BaseModel):
    filename: Annotated[str, Field(pattern=r"^[^/\\]+\.arrow$")]


class _StateJson(BaseModel):
    files: list[_File] = Field(alias="_data_files", min_length=1)


class _DatasetInfoJson(BaseModel):
    features: dict[str, Any]


class _Splits(BaseModel):
    splits: list[_Name]


@dataclass(frozen=True)
class Split:
    """The rows of a split, and the type of each column, such as `{"_type": "Image"}`."""

    folder: InputFile
    table: pa.Table
    meanings: Mapping[str, Any]

    def of_type(self, kind: str) -> list[str]:
        """Return the columns of a type of the package `datasets`, such as Image or ClassLabel."""
        return [name for name in self.table.column_names if self.meaning(name).get("_type") == kind]

    def meaning(self, column: str) -> Mapping[str, Any]:
        """Return the type of a column; empty if the type is unknown or written as a list."""
        found = self.meanings.get(column)
        return found if isinstance(found, dict) else {}


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`, with one split or several."""
    return (folder / _SPLITS).is_file() or (folder / _STATE).is_file()


def saved_files(folder: Path) -> list[Path]:
    """Return the files of a saved folder with rows and types, sorted."""
    names = ("*.arrow", "*/*.arrow", _INFO, f"*/{_INFO}")
    return sorted(file for name in names for file in folder.glob(name)) if is_saved(folder) else []


def split_folders(folder: InputFile) -> dict[str, InputFile]:
    """Return the folders of the splits by name; a single split is "train". Raises UserError."""
    if not is_saved(folder.path):
        raise folder.refusal(
            f"has no {_SPLITS} or {_STATE}, so save_to_disk did not write it; to write one, call "
            "data.save_to_disk(folder) on a data set loaded by the package `datasets`"
        )
    if not (folder.path / _SPLITS).is_file():
        return {"train": folder}
    listed = InputFile(folder.key, folder.path / _SPLITS)
    names = listed.parsed(_Splits.model_validate_json, "a list of splits", SETTINGS_BYTES).splits
    return {name: InputFile(folder.key, folder.path / name) for name in names}


def read_split(folder: InputFile) -> Split:
    """Read the rows of a split's folder. Raises UserError for no rows, or too many for the memory."""
    import pyarrow as pa

    state, info = [InputFile(folder.key, folder.path / name) for name in (_STATE, _INFO)]
    files = state.parsed(_StateJson.model_validate_json, "the list of a split's files", SETTINGS_BYTES).files
    meanings = info.parsed(
        _DatasetInfoJson.model_validate_json, "the column types of a split", SETTINGS_BYTES
    ).features
    tables: list[pa.Table] = []
    for each in files:
        file = InputFile(folder.key, folder.path / each.filename)
        table = file.parsed(partial(_read_arrow, file), "an Arrow file as save_to_disk writes it")
        require_table_fits(file, table.num_rows, table.num_columns)
        if tables and table.schema != tables[0].schema:
            raise file.refusal(
                f"has columns that differ from {files[0].filename}; must have the same columns"
            )
        tables.append(table)
        if sum(one.nbytes for one in tables) > input_file.LIMIT_BYTES:
            most = f"{input_file.LIMIT_BYTES // 2**20} MiB"
            raise folder.refusal(f"its files exceed {most} in total; save fewer rows")
    table = pa.concat_tables(tables)
    require_table_fits(folder, table.num_rows, table.num_columns)
    names = table.column_names
    if twice := [name for name in names if names.count(name) > 1]:
        raise folder.refusal(f"has the column {excerpt(twice[0])} twice; column names must be unique")
    if not table.num_rows:
        raise folder.refusal("has no rows; must have at least one")
    return Split(folder, table, meanings)


def _read_arrow(file: InputFile, content: bytes) -> pa.Table:
    import pyarrow as pa

    if unpacked_bytes(content) > input_file.LIMIT_BYTES:
        raise file.refusal(too_large_message(input_file.LIMIT_BYTES, unpacked=True))
    with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
        table = stream.read_all()
    table.validate(full=True)  # damaged offsets could point anywhere
    return table
