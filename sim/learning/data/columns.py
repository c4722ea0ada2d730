"""Conversion of a table's columns to numbers: numbers stay, texts become one number for each category."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from sim.files.data_folder import DataFolder
from sim.files.input_file import excerpt
from sim.files.input_table import TextFormat, read_table
from sim.learning.data.dataset import Dataset, names_in_one_line
from sim.learning.data.list_columns import split_list_columns
from sim.learning.data.raw_arrays import LARGEST, require_exact_differences
from sim.learning.data.table_part import TablePart, first_true_row
from sim.learning.data.tabular import TableKeys, TabularData
from sim.learning.data.user_arrays import CLASSES_MAX, ArraysPart, dataset_from_arrays

_OTHERS = "*"
_CATEGORIES_MAX = 10_000
_FEW_CATEGORIES, _ROWS_EACH = 20, 4  # few categories are always fine; more need rows for each
_NUMBERS_MAX = 3 * 10**8  # in all features of a table
_CELL_BYTES = 80  # memory of a text of a feature, while its column is converted
_TEXT_BYTES = 300  # memory of a text until it is an index of a category, class or client
_NUMBER_BYTES = 32  # memory of a number until it is scaled
_NUMBER = re.compile(  # decimal comma, thousands separators, currency, unit: "-1.234,5 kg"
    r"[-+\u2212]?\s?[$\u20ac\xa3\xa5]?\s?(\d{1,3}(,\d{2,3})+|\d{1,3}([.'\u2019_\s]\d{3})+|\d*)([.,]?\d+)?(e[-+]?\d+)?"
    r"(?P<gap>\s?)(?P<unit>[^\W\d_]{1,9}(/[^\W\d_]{1,9})?[\xb2\xb3]?|[^\w\s.,:/-][^\W\d_]?)?",
    re.IGNORECASE,
)
_UNITS_MAX = 3  # more different endings are not units
_ORDINALS = {"st", "nd", "rd", "th"}


@dataclass(frozen=True)
class ColumnConversion:
    """Conversion of a column: a number, or, with categories, one number for each category.

    start: subtracted from whole numbers that float64 cannot represent, before they are standardized.
    """

    name: str
    categories: tuple[str, ...] | None
    start: int = 0

    @property
    def width(self) -> int:
        return 1 if self.categories is None else len(self.categories)


def load_table(section: TableKeys, folder: DataFolder) -> Dataset:
    """Return the data set of a table, and of its test and validation tables, if any. Raises UserError."""
    given = {"train": _read(section, folder, "data.file", section.file)}
    if section.test_file is not None:
        given["test"] = _read(section, folder, "data.test_file", section.test_file)
    if section.validation_file is not None:
        given["validation"] = _read(section, folder, "data.validation_file", section.validation_file)
    return dataset_of_columns(section, given)


def _read(section: TableKeys, folder: DataFolder, key: str, path: str) -> TablePart:
    file = folder.file(key, path)
    form = TextFormat(section.separator, section.comment, section.columns, section.strip)
    frame = read_table(file, form, lists=True)
    return TablePart(file, frame, np.arange(1, len(frame) + 1))  # from 1, without the header


def dataset_of_columns(section: TabularData, given: Mapping[str, TablePart]) -> Dataset:
    """Return the data set of these tables: "train", and optionally "test" and "validation".

    Raises UserError for columns that do not fit the settings.
    """
    section = section.with_features(given["train"].frame.columns)
    if not section.features:
        problem = "has no feature column besides label and client; at least one is needed"
        raise given["train"].file.refusal(problem)
    section, given, tags = split_list_columns(section, given)
    tables = {name: select_used_columns(section, table) for name, table in given.items()}
    train = tables["train"]
    columns = [learn_conversion(train, name, section) for name in section.features or ()]
    parts, classes = arrays_of_tables(
        section, tables, lambda part: encoded(tables[part], columns, wide=section.standardise)
    )
    unscaled = [each.categories is not None or each.name in tags for each in columns]
    scaled = [
        np.full(each.width, section.standardise and not kept)
        for each, kept in zip(columns, unscaled, strict=True)
    ]
    dataset = dataset_from_arrays(
        parts, section, train.file.refusal, classes=classes, standardise=np.concatenate(scaled)
    )
    notices = [said for each in columns if (said := _describe_unique_texts(section, train, each))]
    return replace(dataset, features=_describe_columns(columns), notices=tuple(notices))


def _describe_unique_texts(section: TabularData, part: TablePart, column: ColumnConversion) -> str:
    """Describe a text column with mostly unique values; return "" for other columns."""
    rows, width = len(part.frame), column.width
    if column.categories is None or column.name in section.categorical:
        return ""
    if width < _FEW_CATEGORIES or width * _ROWS_EACH < rows:
        return ""
    return (
        f"{part.file.key}: column {excerpt(column.name)} has {width:,} different texts in {rows:,} rows, and "
        "each becomes a category. Free texts, dates and identifiers give a model no information about "
        "other rows: "
        "list the column in data.leave_out, or convert it to numbers (data.categorical silences this notice)"
    )


def arrays_of_tables(
    section: TabularData,
    tables: Mapping[str, TablePart],
    inputs: Callable[[str], tuple[np.ndarray, np.ndarray | None]],
) -> tuple[dict[str, ArraysPart], int | None]:
    """Return inputs, labels and clients of each table's rows, and the number of classes. Raises UserError.

    inputs: function that takes the name of a table, and returns the inputs [rows, ...] of all its rows and a
    mask of missing numbers or None.
    """
    labels, classes = _labels(section, tables)
    owners = _owners(section, tables)
    parts = {}
    for name in tables:
        kept, whose = owners[name]
        x, missing = inputs(name)
        gaps = None if missing is None else missing[kept]
        of_y = f"column {excerpt(section.labels[0])}"
        parts[name] = ArraysPart(("x", of_y, "client"), x[kept], labels[name][kept], whose, gaps)
    return parts, classes


def _describe_columns(columns: Sequence[ColumnConversion]) -> str:
    """Describe the feature columns, and the number of values of each category column."""
    plain = [each.name for each in columns if each.categories is None]
    sizes = [f"{each.name} ({each.width:,})" for each in columns if each.categories is not None]
    kinds = [("numbers", plain), ("categories", sizes)]
    lists = [f"{len(names):,} of {kind}: {names_in_one_line(names)}" for kind, names in kinds if names]
    return f"{'; '.join(lists)}; {sum(each.width for each in columns):,} in all for each sample"


def select_used_columns(section: TabularData, part: TablePart) -> TablePart:
    """Return the table with its used columns, and null for allowed missing values. Raises UserError.

    With `missing = "drop"`, rows with a missing value are left out.
    """
    file, frame = part.file, part.frame
    used, needed = section.used, [*section.labels, *filter(None, [section.client])]
    if absent := [name for name in used if name not in frame.columns]:
        raise file.refusal(f"has no column {excerpt(absent[0])}; it has {excerpt(frame.columns)}")
    if unknown := [name for name in section.categorical if name not in used]:
        name = excerpt(unknown[0])
        problem = f"does not use column {name}" if unknown[0] in frame.columns else f"has no column {name}"
        raise file.refusal(f"{problem}; correct data.categorical")
    texts = [name for name in used if name not in needed and not frame[name].dtype.is_numeric()]
    figures = len(used) - len(texts) - len(needed)
    at_once = len(needed) + (1 if texts else 0)  # text features are converted one at a time
    file.require_room(len(frame) * (_TEXT_BYTES * at_once + _CELL_BYTES * len(texts) + 24 * figures))
    is_missing = pl.col(pl.String).is_in(list(section.missing_values))
    frame = frame.select(used).with_columns(
        pl.col(pl.Float64).fill_nan(None),
        pl.when(is_missing).then(None).otherwise(pl.col(pl.String)).name.keep(),
    )
    rows = part.rows
    if section.missing == "drop":
        whole = frame.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
        frame, rows = frame.filter(whole), rows[whole.to_numpy()]
        if not len(frame):
            raise file.refusal("every row has a missing value; at least one complete row is needed")
    part = TablePart(file, frame, rows)
    for name in used if section.missing == "refuse" else needed:
        if (gaps := frame[name].is_null()).any():
            others = "" if name in needed else '; data.missing = "fill" fills it'
            raise file.refusal(
                f'column {excerpt(name)} has no value; add a value (data.missing = "drop" leaves out '
                "incomplete "
                f"rows{others})",
                part.row(gaps),
            )
    return part


def _labels(
    section: TabularData, tables: Mapping[str, TablePart]
) -> tuple[dict[str, np.ndarray], int | None]:
    """Return the labels of each table, and the number of classes.

    Labels are classes, int64 [rows], or numbers [rows, columns]; numbers have no classes: None.
    """
    train = tables["train"]
    if section.task == "regression":
        found = {
            name: np.column_stack([number_column(table, label).to_numpy() for label in section.labels])
            for name, table in tables.items()
        }
        if section.standardise_label:
            known = found["train"]
            mean, std = known.mean(axis=0), np.where(np.ptp(known, axis=0) > 0, known.std(axis=0), 1)
            found = {name: (values - mean) / std for name, values in found.items()}
        return found, None
    [label] = section.labels
    column = train.frame[label]
    if isinstance(column.dtype, pl.Enum):
        classes = tuple(column.dtype.categories.to_list())
    else:
        classes = sorted_texts(as_text(column).unique())
    if not 2 <= len(classes) <= CLASSES_MAX:
        raise train.file.refusal(
            f"column {excerpt(label)} must have from 2 to {CLASSES_MAX:,} different values, the classes, not "
            f"{len(classes):,}"
        )
    indices = {name: category_indices(table, label, classes) for name, table in tables.items()}
    for name, table in tables.items():
        unknown = pl.Series(indices[name] < 0)
        if unknown.any():
            value = table.frame[label][first_true_row(unknown)]
            allowed = f"one of the classes in {train.file.key}: {excerpt(list(classes))}"
            problem = f"is {excerpt(value)}; must be {allowed}"
            raise table.file.refusal(f"column {excerpt(label)} {problem}", table.row(unknown))
    return indices, len(classes)


def _owners(
    section: TabularData, tables: Mapping[str, TablePart]
) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Return the used rows of each table, and the client of each of them, if there are clients."""
    client, groups = section.client, section.groups
    everything = {name: np.arange(len(table.frame)) for name, table in tables.items()}
    if client is None:
        return {name: (rows, None) for name, rows in everything.items()}
    texts = {name: as_text(table.frame[client]) for name, table in tables.items()}
    if groups is None:
        # "007" is a name, different from "7".
        numbers = {name: each.cast(int, strict=False) for name, each in texts.items()}
        if all((numbers[name].cast(str) == each).fill_null(False).all() for name, each in texts.items()):
            texts = numbers
        return {name: (rows, texts[name].to_numpy()) for name, rows in everything.items()}
    index_of = {str(value): index for index, group in enumerate(groups) for value in group}
    others = index_of.pop(_OTHERS, -1)
    if unknown := set(index_of) - set(pl.concat(texts.values()).to_list()):
        there = excerpt(list(sorted_texts(texts["train"].unique())))
        problem = f"has no value {min(unknown)!r} of data.groups; it has {there}"
        raise tables["train"].file.refusal(f"column {excerpt(client)} {problem}")
    group_of = np.array([*index_of.values(), others])  # the last entry, at -1, for all other values
    found = {
        name: group_of[category_indices(table, client, list(index_of))] for name, table in tables.items()
    }
    return {name: (np.flatnonzero(whose >= 0), whose[whose >= 0]) for name, whose in found.items()}


def number_column(part: TablePart, name: str, start: int = 0) -> pl.Series:
    """Return a column as float64, with nulls for missing values.

    start: subtracted before whole numbers are rounded to float64. Raises UserError for texts that are no
    numbers, and for numbers outside float32.
    """
    column = part.frame[name]
    column = as_text(column) if isinstance(column.dtype, pl.Enum) else column
    found = column.cast(pl.Float64, strict=False)
    if start:
        exact = column.cast(pl.Int64, strict=False) - start
        found = exact.cast(pl.Float64).zip_with(exact.is_not_null(), found - start)
    # Values outside float32 also have squares outside float64.
    bad = (found.is_null() & column.is_not_null()) | ~(found.abs() <= LARGEST).fill_null(True)
    if bad.any():
        value = column[first_true_row(bad)]
        raise part.file.refusal(
            f"column {excerpt(name)} is {excerpt(value)}; must be a finite float32 number "
            "(list a column of categories in data.categorical, and texts for missing values in "
            "data.missing_values)",
            part.row(bad),
        )
    return found


def learn_conversion(part: TablePart, name: str, section: TabularData) -> ColumnConversion:
    """Return the conversion of a feature column, as learned from the training file. Raises UserError."""
    column = part.frame[name]
    known = column.drop_nulls()
    if not len(known):
        raise part.file.refusal(f"column {excerpt(name)} has no values; list it in data.leave_out")
    is_text = known.dtype == pl.String and known.cast(pl.Float64, strict=False).null_count() == len(known)
    if name not in section.categorical and not isinstance(known.dtype, pl.Enum):
        if not is_text:
            return _number(part, name, known, section.standardise)
        _refuse_numbers_as_texts(part, name, known)
    values = sorted_texts(as_text(known).unique())
    if len(values) > _CATEGORIES_MAX:
        raise part.file.refusal(
            f"column {excerpt(name)} has {len(values):,} categories; must have at most {_CATEGORIES_MAX:,}: "
            "list it in data.leave_out"
        )
    categories = (*values, "") if column.null_count() else values  # missing is also a category
    return ColumnConversion(name, tuple(categories))


def _number(part: TablePart, name: str, known: pl.Series, standardise: bool) -> ColumnConversion:
    """Return the conversion of numbers. Raises UserError if rounding to float32 would make some equal."""
    whole, start = known.cast(pl.Int64, strict=False), 0
    is_long = not whole.null_count() and int(whole.abs().max()) > 2**53  # type: ignore[arg-type]
    if standardise:
        start = int(whole[0]) if is_long else 0
    else:
        values = whole if is_long else number_column(part, name).drop_nulls()
        remedy = "data.standardise = true keeps the differences"
        require_exact_differences(values.to_numpy(), f"column {excerpt(name)}", part.file.refusal, remedy)
    return ColumnConversion(name, None, start)


def _refuse_numbers_as_texts(part: TablePart, name: str, known: pl.Series) -> None:
    """Raise UserError if all texts are numbers in another format: they would become categories."""
    found = [_NUMBER.fullmatch(text) for text in known.unique().to_list()]
    matches = [each for each in found if each and any(map(str.isdigit, each[0]))]
    if len(matches) < len(found):
        return
    units = {each["unit"] for each in matches if each["unit"]}
    apart = all(each["gap"] or not each["unit"] for each in matches)
    if len(units) <= (_UNITS_MAX if apart else 1) and not (units and units <= _ORDINALS):
        raise part.file.refusal(
            f"column {excerpt(name)} is {excerpt(known[0])}, a number as a text; use a decimal point and "
            "neither thousands separators nor a unit, or list the column in data.categorical"
        )


def encoded(
    part: TablePart, columns: Sequence[ColumnConversion], *, wide: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return features [rows, numbers], float32 (float64 if `wide`), 0 if missing, and a mask of missing ones.

    A category that is not in the training file becomes all zeros.
    """
    rows, width = len(part.frame), sum(column.width for column in columns)
    if rows * width > _NUMBERS_MAX:
        widest = max(columns, key=lambda column: column.width)
        most = f"{excerpt(widest.name)} alone has {widest.width:,} categories"
        hint = "" if widest.categories is None else f" ({most})"
        raise part.file.refusal(
            f"has {rows:,} rows of {width:,} numbers; must have at most {_NUMBERS_MAX:,} numbers{hint}"
        )
    part.file.require_room(rows * width * _NUMBER_BYTES)
    found = np.zeros((rows, width), dtype=np.float64 if wide else np.float32)
    missing = np.zeros((rows, width), dtype=bool)
    index = 0
    for column in columns:
        if column.categories is None:
            values = number_column(part, column.name, column.start)
            found[:, index] = values.fill_null(0.0).to_numpy()
            missing[:, index] = values.is_null().to_numpy()
        else:
            which = category_indices(part, column.name, column.categories)
            known = np.flatnonzero(which >= 0)
            found[known, index + which[known]] = 1.0
        index += column.width
    return found, missing


def category_indices(part: TablePart, name: str, values: Sequence[str]) -> np.ndarray:
    """Return the index of each row's value among these texts, int64; -1 for others. A missing value is ""."""
    texts = as_text(part.frame[name]).fill_null("")
    return texts.replace_strict(
        list(values), list(range(len(values))), default=-1, return_dtype=pl.Int64
    ).to_numpy()


def as_text(column: pl.Series) -> pl.Series:
    """Return a column as texts; whole numbers without a point, so that all tables have the same texts."""
    if column.dtype in (pl.String, pl.Enum):
        return column.cast(pl.String)
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        return whole.cast(pl.String).zip_with(
            (whole.cast(column.dtype) == column).fill_null(False), column.cast(pl.String)
        )
    whole = column.cast(pl.Int64, strict=False)
    is_whole = bool((whole.cast(pl.Float64) == column).fill_null(True).all())
    return (whole if is_whole else column).cast(pl.String)


def sorted_texts(values: pl.Series) -> tuple[str, ...]:
    """Return unique texts in order: by number, then text, if all are numbers, otherwise by text."""
    as_numbers = values.cast(pl.Float64, strict=False)
    if as_numbers.null_count():
        return tuple(values.sort().to_list())
    both = pl.DataFrame([as_numbers.alias("number"), values.alias("text")])
    return tuple(both.sort("number", "text")["text"].to_list())
