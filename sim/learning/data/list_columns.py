"""Columns of lists in a table: lists of equally many numbers, and lists of tags.

Each becomes several columns of numbers: `name[0]`, `name[1]`, ... for numbers, and `name=tag` with 0 or 1 for
each tag of the training table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from sim.files.input_file import excerpt
from sim.learning.data.table_part import TablePart
from sim.learning.data.tabular import TabularData

LENGTH_MAX = 10_000
"""Largest number of numbers in a list, or of different tags of a column."""
_NUMBERS_MAX = 3 * 10**8  # in all columns that a column of lists becomes
_BYTES_EACH = 24  # memory of a number until it is in its column

_Convert = Callable[["TablePart"], pl.DataFrame]


def split_list_columns(
    section: TabularData, given: Mapping[str, TablePart]
) -> tuple[TabularData, Mapping[str, TablePart], frozenset[str]]:
    """Replace the used columns of lists by several columns, in the section and in its tables.

    The section must state its features. Also returns the names of the columns of tags. Raises UserError for
    lists that do not fit together.
    """
    train, tags = given["train"], set[str]()
    for name in [each for each in section.used if isinstance(train.frame.schema.get(each), pl.List)]:
        _refuse_as_client_or_class(section, train, name)
        if _has_texts(train, name) or name in section.categorical:
            convert, made = _tag_list_conversion(train, name, is_label=name in section.labels)
            tags.update(made)
        else:
            convert, made = _number_list_conversion(train, name)
        given = {part: _converted(table, name, made, convert) for part, table in given.items()}
        section = _with_replaced_columns(section, name, made)
    return section, given, frozenset(tags)


def _refuse_as_client_or_class(section: TabularData, train: TablePart, name: str) -> None:
    """Raise UserError for lists as clients or classes."""
    if name == section.client:
        raise train.file.refusal(
            f"column {excerpt(name)} contains lists; data.client needs a name in each row"
        )
    if name in section.labels and section.purpose != "regression":
        raise train.file.refusal(
            f'column {excerpt(name)} contains lists; set data.task = "regression" to predict their '
            "numbers or tags, or choose another column as data.label"
        )


def _has_texts(part: TablePart, name: str) -> bool:
    kind = part.frame.schema[name]
    return isinstance(kind, pl.List) and kind.inner == pl.String


def _with_replaced_columns(section: TabularData, name: str, made: tuple[str, ...]) -> TabularData:
    """Return the section with the columns `made` instead of `name`."""

    def with_made(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([new for each in names for new in (made if each == name else (each,))])

    categorical = tuple([each for each in section.categorical if each != name])
    stated = {"features": with_made(section.features or ()), "categorical": categorical}
    labels = {"label": with_made(section.labels)} if name in section.labels else {}
    return section.model_copy(update=stated | labels)


def _converted(part: TablePart, name: str, made: tuple[str, ...], convert: _Convert) -> TablePart:
    """Return a table with the columns `made` instead of a column of lists. Raises UserError."""
    frame = part.frame
    if name not in frame.columns:
        raise part.file.refusal(f"has no column {excerpt(name)}; it has {excerpt(frame.columns)}")
    if not isinstance(frame.schema[name], pl.List):
        raise part.file.refusal(f"column {excerpt(name)} must contain lists, as in the training table")
    if both := set(made) & set(frame.columns):
        raise part.file.refusal(
            f"has a column {excerpt(min(both))}, but the lists in column {excerpt(name)} become a column of "
            "this name, too; rename one"
        )
    count = len(frame) * len(made)
    if count > _NUMBERS_MAX:
        problem = f"{len(frame):,} lists of {len(made):,} numbers or tags; must be at most {_NUMBERS_MAX:,}"
        raise part.file.refusal(f"column {excerpt(name)} has {problem} in total")
    part.file.require_room(count * _BYTES_EACH)
    return replace(part, frame=pl.concat([frame.drop(name), convert(part)], how="horizontal"))


# --- numbers ------------------------------------------------------------------------------------------------


def _number_list_conversion(train: TablePart, name: str) -> tuple[_Convert, tuple[str, ...]]:
    """Return the conversion of lists with as many numbers as the first list of the training table."""
    lengths = train.frame[name].list.len().drop_nulls()
    length = int(lengths[0]) if len(lengths) else 0
    if not 1 <= length <= LENGTH_MAX:
        problem = f"has {length:,} numbers in its first list; must have from 1 to {LENGTH_MAX:,}"
        raise train.file.refusal(f"column {excerpt(name)} {problem}")
    made = tuple([f"{name}[{index}]" for index in range(length)])

    def convert(part: TablePart) -> pl.DataFrame:
        column = part.frame[name]
        if _has_texts(part, name):
            raise part.file.refusal(f"column {excerpt(name)} must contain numbers, as in the training table")
        others = (column.list.len() != length).fill_null(False)
        if others.any():
            found = column.list.len().filter(others)[0]
            raise part.file.refusal(
                f"column {excerpt(name)} has {found:,} numbers; must have {length:,}, as the first list "
                "(data.categorical reads numbers as tags)",
                part.row(others),
            )
        each = [column.list.get(index, null_on_oob=True) for index in range(length)]
        return pl.DataFrame([values.alias(new) for values, new in zip(each, made, strict=True)])

    return convert, made


# --- tags ---------------------------------------------------------------------------------------------------


def _tag_list_conversion(train: TablePart, name: str, *, is_label: bool) -> tuple[_Convert, tuple[str, ...]]:
    """Return the conversion of lists of tags. Tags outside the training table are refused in a label."""
    known = tuple(sorted(set(_rows_and_tags(train, name)[1].tolist())))
    if not 1 <= len(known) <= LENGTH_MAX:
        problem = f"has {len(known):,} different tags; must have from 1 to {LENGTH_MAX:,}"
        raise train.file.refusal(f"column {excerpt(name)} {problem}")
    index_of = {tag: index for index, tag in enumerate(known)}
    made = tuple([f"{name}={tag}" for tag in known])

    def convert(part: TablePart) -> pl.DataFrame:
        rows, tags = _rows_and_tags(part, name)
        indices = np.array([index_of.get(tag, -1) for tag in tags.tolist()], dtype=np.int64)
        if is_label and (indices < 0).any():
            first = int(np.flatnonzero(indices < 0)[0])
            where = pl.Series(np.arange(len(part.frame)) == rows[first])
            problem = f"has the tag {excerpt(tags[first])}, which is not in the training table"
            raise part.file.refusal(f"column {excerpt(name)} {problem}", part.row(where))
        values = np.zeros((len(part.frame), len(known)))
        values[rows[indices >= 0], indices[indices >= 0]] = 1.0
        values[part.frame[name].is_null().to_numpy()] = np.nan  # a missing list, unlike an empty one
        return pl.DataFrame({new: values[:, index] for index, new in enumerate(made)})

    return convert, made


def _rows_and_tags(part: TablePart, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each tag, from 0, and the tag as text without surrounding white space."""
    flat = part.frame.select(pl.col(name)).with_row_index("row").explode(name).drop_nulls()
    texts = flat[name].cast(pl.String).str.strip_chars()
    return flat["row"].to_numpy().astype(np.int64), np.array(texts.to_list(), dtype=object)
