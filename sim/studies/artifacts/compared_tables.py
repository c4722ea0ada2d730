"""Tables of an archive's comparisons, compared with the tables computed from its runs."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from sim.errors import UserError, one_line
from sim.studies.artifacts.anonymous import Anonymizer
from sim.studies.artifacts.archive import COMPARISON, RUNS
from sim.studies.artifacts.verdict import Verdict
from sim.studies.comparison_options import OPTIONS, ComparisonOptions
from sim.studies.tables import CSV_FILES, written_frames

_SHOWN = 10
"""Largest number of differences that are listed for a table."""
_CLOSE = 1e-9  # libraries of another version round differently
_ANONYMOUS = Anonymizer({}, ())

Rows = list[dict[str, str]]


@dataclass(frozen=True)
class ComparedTable:
    """A CSV file of a comparison. differences: the first differences from the recomputed table."""

    name: str
    differences: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return Verdict.different if self.differences else Verdict.equal


def compared_tables(packed: Path) -> list[ComparedTable]:
    """Compute the tables in the `comparison` folders of an unpacked archive again, and compare them.

    The result has a table for each CSV file that `coterie compare` wrote, and is empty if there are none.
    Numbers are equal up to the rounding of another version of a library.
    """
    found = []
    for folder in sorted((packed / RUNS).glob(f"*/{COMPARISON}")):
        files = [folder / name for name in CSV_FILES if (folder / name).is_file()]
        try:
            computed = _computed(folder) if files else {}
        except UserError as error:
            reason = f"the archived runs give no tables: {one_line(error.problem, 300)}"
            found += [ComparedTable(_name(file, packed), (reason,)) for file in files]
            continue
        for file in files:
            differences = list(islice(_differences(file, computed.get(file.name)), _SHOWN))
            if differences and not (folder / OPTIONS).is_file():
                differences.insert(0, f"the archive has no {OPTIONS}; the table is computed without options")
            found.append(ComparedTable(_name(file, packed), tuple(differences)))
    return found


def _name(file: Path, packed: Path) -> str:
    return file.relative_to(packed).as_posix()


def _computed(folder: Path) -> dict[str, Rows]:
    """Return the rows of the CSV files that `coterie compare` would write. Raises UserError."""
    # An earlier version wrote the comparison without its options.
    options = ComparisonOptions.read(folder) if (folder / OPTIONS).is_file() else ComparisonOptions()
    frames = written_frames(options.comparison(folder.parent))
    return {name: list(csv.DictReader(io.StringIO(frame.write_csv()))) for name, frame in frames.items()}


def _differences(file: Path, computed: Rows | None) -> Iterator[str]:
    """Yield the differences of a file; its first row, the header, has the number 1."""
    if computed is None:
        yield "the archived runs give no such table with the options of the comparison"
        return
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            archived = csv.DictReader(opened, restkey="", restval="")
            names, wanted = list(archived.fieldnames or ()), list(computed[0]) if computed else []
            if names != wanted:
                other = [*[each for each in names if each not in wanted], *set(wanted).difference(names)]
                listed = ", ".join(sorted(one_line(each, 100) for each in other)) or "in another order"
                yield f"row 1: other columns than those computed: {listed}"
                return
            for number, (one, two) in enumerate(zip_longest(archived, computed), 2):
                if one is None or two is None:
                    yield f"row {number}: only in the {'computed' if one is None else 'archived'} table"
                    return
                for name in [*wanted, *([""] if "" in one else [])]:
                    first, second = one.get(name), two.get(name)
                    if not _is_equal(first, second):
                        yield (
                            f"row {number}, column {one_line(name or 'without a name', 100)}: archive "
                            f"{_cell_text(first)}, computed {_cell_text(second)}"
                        )
    except (csv.Error, UnicodeDecodeError) as error:
        yield f"is not a CSV file, or is damaged: {one_line(error, 200)}"


def _is_equal(one: object, two: object) -> bool:
    if one == two:
        return True
    if not isinstance(one, str) or not isinstance(two, str):
        return False
    try:
        return math.isclose(float(one), float(two), rel_tol=_CLOSE, abs_tol=_CLOSE**2)
    except ValueError:
        return _without_folders(one) == _without_folders(two)


def _without_folders(text: str) -> str:
    """Return a text without the folders of files, which depend on the folder of the table."""
    return re.sub(r"(?:\.\./)+", "", _ANONYMOUS.value(text))


def _cell_text(value: object) -> str:
    return one_line(str(value), 60) if value else "nothing"
