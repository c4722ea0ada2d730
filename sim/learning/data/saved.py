"""Columns of a saved folder as numbers or pixels, and their roles if the scenario does not set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from sim.errors import require_packages
from sim.files.input_file import InputFile, excerpt
from sim.files.input_table import size_without_dictionaries, to_text_or_numbers
from sim.files.saved_folder import Split, read_split, split_folders
from sim.learning.data.columns import arrays_of_tables, dataset_of_columns, select_used_columns
from sim.learning.data.dataset import Dataset
from sim.learning.data.huggingface_keys import HuggingFaceKeys
from sim.learning.data.images import dataset_of_pixels
from sim.learning.data.table_part import TablePart

_COPIES = 6  # copies of a column during its conversion
_REMEDY = (
    'data.map(lambda row: {"image": row["image"].convert("RGB").resize((32, 32))}) makes them equal before '
    "save_to_disk"
)


def load_saved(section: HuggingFaceKeys, folder: InputFile) -> Dataset:
    """Return the data set of a folder written by `save_to_disk`. Raises UserError."""
    there = split_folders(folder)
    names = {"train": ("split", section.split)}
    if section.test_split is not None or ("test" in there and section.split != "test"):
        names["test"] = ("test_split", section.test_split or "test")
    notices: tuple[str, ...] = ()
    if section.validation_split is not None:
        names["validation"] = ("validation_split", section.validation_split)
    elif "validation" in there and "validation" not in (section.split, section.test_split):
        found = names | {"validation": ("validation_split", "validation")}
        names, notices = section.with_used_validation(found, folder.key)
    for key, name in names.values():
        if name not in there:
            raise folder.refusal(
                f"has no split {excerpt(name)}, the value of data.{key}; it has {excerpt(list(there))}"
            )
    splits = {part: read_split(there[name]) for part, (_, name) in names.items()}
    section, image = _choose_columns(section, splits["train"])
    tables = {part: _rows(section, each) for part, each in splits.items()}
    if image is None:
        dataset = dataset_of_columns(section, tables)
    else:
        dataset = _dataset_of_images(section, splits, tables, image)
    return replace(dataset, notices=(*dataset.notices, *notices))


# --- roles of the columns -------------------------------------------------------------------------------


def _choose_columns(section: HuggingFaceKeys, split: Split) -> tuple[HuggingFaceKeys, str | None]:
    """Return the section with label and features set, and the column of images, which is not a feature.

    Raises UserError if a split does not show the roles of its columns.
    """
    there = split.table.column_names
    if section.label is None:
        others = {section.client, *(section.features or ()), *section.leave_out}
        classes = [name for name in split.of_type("ClassLabel") if name not in others]
        if len(classes) != 1:
            found = (
                f"has the columns {excerpt(classes)} of classes" if classes else "has no column of classes"
            )
            problem = f"{found}; set data.label to the column of the label, one of {excerpt(there)}"
            raise split.folder.refusal(problem)
        section = section.model_copy(update={"label": classes[0]})
    named = section.features or ()
    section = section.with_features(there)
    images = [name for name in section.features or () if name in split.of_type("Image")]
    if len(images) > 1 or (images and len(named) > 1):
        problem = f"has images in {excerpt(images)}; data.features must be a single column of images"
        raise split.folder.refusal(problem)
    if images:
        section = section.model_copy(update={"features": ()})
    return section, images[0] if images else None


# --- rows -----------------------------------------------------------------------------------------------


def _rows(section: HuggingFaceKeys, split: Split) -> TablePart:
    """Return the used columns as texts, numbers and classes; rows count from 0. Raises UserError."""
    there = split.table.column_names
    used = section.used
    if absent := [name for name in used if name not in there]:
        raise split.folder.refusal(f"has no column {excerpt(absent[0])}; it has {excerpt(there)}")
    classes = split.of_type("ClassLabel")
    split.folder.require_room(_COPIES * sum(size_without_dictionaries(split.table[name]) for name in used))
    columns = {name: _classes(split, name) if name in classes else _values(split, name) for name in used}
    frame = pl.DataFrame(columns).with_columns(pl.col(pl.String).str.strip_chars())
    return TablePart(split.folder, frame, np.arange(split.table.num_rows))


def _values(split: Split, name: str) -> pl.Series:
    """Return a column of texts, numbers or lists; classes in lists become names. Raises UserError."""
    column = pl.Series(pl.from_arrow(to_text_or_numbers(split.folder, name, split.table[name], lists=True)))
    inner = split.meaning(name).get("feature")
    names = inner.get("names") if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" else None
    if not isinstance(column.dtype, pl.List) or not isinstance(names, list):
        return column
    wrong = column.list.eval((pl.element() < 0) | (pl.element() >= len(names))).list.any().fill_null(False)
    if wrong.any():
        problem = f"must contain lists of classes from 0 to {len(names) - 1}"
        raise split.folder.refusal(f"column {excerpt(name)} {problem}", f"row {wrong.arg_max()}")
    texts = [str(each) for each in names]
    return column.list.eval(pl.element().replace_strict(range(len(texts)), texts, return_dtype=pl.String))


def _classes(split: Split, name: str) -> pl.Series:
    """Return a column of class numbers as names, pl.Enum; -1 becomes null. Raises UserError."""
    given, column = split.meaning(name).get("names"), split.table[name]
    names = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    is_known = names and names == given and len(set(names)) == len(names)
    if not is_known or not pa.types.is_integer(column.type):
        problem = "must contain whole numbers, and its classes must have unique names"
        raise split.folder.refusal(f"column {excerpt(name)} {problem}")
    numbers = pl.Series(name, column.to_numpy() if not column.null_count else column.to_pylist())
    wrong = ((numbers < -1) | (numbers >= len(names))).fill_null(False)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        problem = f"is {numbers[row]}; must be a class from 0 to {len(names) - 1}, or -1 for no class"
        raise split.folder.refusal(f"column {excerpt(name)} {problem}", f"row {row}")
    indices = numbers.cast(pl.Int64)
    return pl.Series(names, dtype=pl.Enum(names)).gather(indices.set(indices == -1, None))


# --- images ---------------------------------------------------------------------------------------------


def _dataset_of_images(
    section: HuggingFaceKeys, splits: Mapping[str, Split], tables: Mapping[str, TablePart], image: str
) -> Dataset:
    """Return the data set with the images of a column as samples, scaled by channel. Raises UserError."""
    require_packages("huggingface", "images", "PIL")
    tables = {part: select_used_columns(section, table) for part, table in tables.items()}
    parts, classes = arrays_of_tables(
        section, tables, lambda part: (_pixels(splits[part], image, tables[part].rows), None)
    )
    for part, each in parts.items():
        of_x = f"column {excerpt(image)} of {splits[part].folder.path.name}"
        parts[part] = replace(each, names=(of_x, *each.names[1:]))
    folder = splits["train"].folder
    dataset = dataset_of_pixels(
        parts, section, folder.refusal, classes=classes, standardise=section.standardise
    )
    return replace(dataset, features=f"{dataset.features}, column {excerpt(image)}")


def _pixels(split: Split, image: str, rows: np.ndarray) -> np.ndarray:
    """Return the images of some rows, uint8 [rows, channels, height, width]. Raises UserError."""
    from sim.learning.data.pictures import pixels

    if image not in split.table.column_names:
        problem = f"has no column {excerpt(image)}, the column of images in the training split"
        raise split.folder.refusal(problem)
    column = split.table[image]
    fields = {field.name: field.type for field in column.type} if pa.types.is_struct(column.type) else {}
    if fields.get("bytes") not in (pa.binary(), pa.large_binary()):
        raise split.folder.refusal(
            f"column {excerpt(image)} contains {column.type}; must contain images with their bytes"
        )
    encoded = pc.struct_field(column, "bytes").take(pa.array(rows))
    return pixels(
        (each.as_py() for each in encoded),
        len(rows),
        split.meaning(image).get("mode"),
        lambda index, problem: split.folder.refusal(
            f"column {excerpt(image)} {problem}", f"row {rows[index]}"
        ),
        remedy=_REMEDY,
    )
