"""Results folder of a run: writing and reading its files, described in docs/results.md."""

import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sim.errors import UserError, one_line
from sim.files.input_file import InputFile, no_room_message
from sim.results.metrics import Metrics, arrow_table
from sim.results.store import output_dir
from sim.results.store.before_checksums import TRACE_HASH, HashesOfSummary
from sim.results.store.events_file import EventsFile
from sim.results.store.formats import FORMAT, KEY, require_known
from sim.results.store.manifest import Manifest
from sim.results.store.output_dir import MARK, PROGRESS, READS, REPORT, HiddenFolder
from sim.results.store.summary_file import SUMMARY_KEYS, parse_summary
from sim.results.store.tables import (
    INTERVALS_SCHEMA,
    SPECIAL_TABLES,
    TABLES,
    require_columns,
    with_columns_of_table,
)
from sim.results.trace import Trace

TEXTS = ("summary.json", "scenario.toml", "provenance.json")
_PACKED = 1000  # largest ratio of a table's memory to its file's size
_ROOM_BYTES = 8 << 20  # the report alone takes 5 MB


class RunDirectory:
    """The files of one run. `create` for writing, `load` for reading.

    A new folder has a hidden, temporary name until `finalise` renames it. If a run is interrupted, readers
    find the old results or the new ones, never a mixture. Reading a changed file of a finished run raises
    UserError with its name.
    """

    def __init__(
        self,
        path: Path,
        hidden: HiddenFolder | None = None,
        manifest: Manifest | HashesOfSummary | None = None,
    ) -> None:
        self.path = path
        self._hidden = hidden
        self._trace_hash: str | None = None
        self._manifest = manifest  # None during the run, and after a killed process
        self._events: EventsFile | None = None
        self._checked: set[str] = set()  # tables with checked columns
        self.wrote_parent = False
        """True if measurements of a fork's parent were written, even if the file is lost."""

    @classmethod
    def create(
        cls, out_base: Path, scenario_name: str, seed: int, short_hash: str, *, overwrite: bool = False
    ) -> Self:
        """Create a folder for `<out_base>/<scenario>-<seed>-<hash>`, with its parents.

        Hidden folders of dead processes are removed from `out_base`. With `overwrite`, existing results are
        replaced at the end. Raises UserError if results cannot be written or replaced.
        """
        target = Path(out_base) / f"{scenario_name}-{seed}-{short_hash}"
        try:
            output_dir.require_replaceable(target, overwrite)
            output_dir.clean_up(target.parent)
            hidden = HiddenFolder(target)
        except OSError as error:
            raise UserError(f"cannot write results to {out_base}: {error.strerror}") from error
        except UnicodeEncodeError as error:
            raise UserError(
                f"cannot write results to {target}: this system encodes file names in {error.encoding}; set "
                "PYTHONUTF8=1, or change run.name"
            ) from error
        if shutil.disk_usage(hidden.path).free < _ROOM_BYTES:
            hidden.clear()
            raise UserError(f"no space for results in {out_base}: less than {_ROOM_BYTES:,} bytes are free")
        return cls(hidden.path, hidden)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Open the results folder of a finished run. Raises UserError for other paths."""
        path = Path(path)
        if not os.path.isfile(path / "summary.json"):  # unlike Path.is_file, no error for impossible names
            if not os.path.lexists(path):
                raise UserError(f"{path}: no such folder")
            raise UserError(f"{path} is not a results folder: it has no summary.json")
        require_known(path / "summary.json")
        has_checksums = os.path.lexists(path / output_dir.MANIFEST)
        return cls(path, manifest=(Manifest if has_checksums else HashesOfSummary).read(path))

    @classmethod
    def found(cls, path: Path) -> Self:
        """Open the folder of a run, finished or not; files of killed processes are not checked."""
        was_killed = output_dir.HIDDEN.fullmatch(path.name) and not (path / output_dir.MANIFEST).is_file()
        if output_dir.is_results(path) and not was_killed:
            return cls.load(path)
        require_known(path / "provenance.json")
        return cls(path)

    @property
    def is_whole(self) -> bool:
        """True for complete results, False for files of a killed process."""
        return self._manifest is not None

    def write_scenario(self, text: str) -> None:
        """Write the resolved scenario as TOML."""
        self._write_text("scenario.toml", text)

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Write the code version, command, machine and time of the run."""
        self._write_text("provenance.json", _json({KEY: FORMAT, **provenance}))

    def write_code(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Write a copy of the user's code by file name into `folder`, such as model-<hash>."""
        for name, content in files.items():
            path = self.path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (self.path / folder / MARK).write_text("\n".join(files), encoding="utf-8")

    def write_metrics(self, metrics: Metrics) -> None:
        """Write measurements, collaboration graph and coalitions."""
        self._write("metrics", metrics.to_table())
        self._write("graph", metrics.graph_table())
        coalitions = metrics.coalition_table()
        if coalitions is not None:
            self._write("coalitions", coalitions)

    def write_energy(self, rows: pa.Table) -> None:
        """Write the energy of each client and server."""
        self._write("energy", rows)

    def write_parent(self, rows: pa.Table) -> None:
        """Write the measurements of a fork's parent."""
        self.wrote_parent = True
        self._write("parent", rows)

    def keep_events(self, trace: Trace) -> None:
        """Make a trace write its rows to a file during the run, instead of keeping them in memory."""
        trace.kept = self._events = EventsFile(self.path / "events.parquet")

    def write_events(self, trace: Trace) -> None:
        """Complete events.parquet with the trace's kept rows, from memory or from the trace's file."""
        if trace.kept is None:
            self._write("events", trace.to_table())
            return
        trace.flush()
        trace.kept.close({} if self._trace_hash is None else {TRACE_HASH: self._trace_hash})
        if trace.kept is not self._events:
            self.copy(trace.kept.path)

    def copy(self, file: Path) -> None:
        """Copy a table of another folder, with the same name. Raises OSError."""
        with self.whole(file.name) as own:
            shutil.copyfile(file, own)

    def write_intervals(self, intervals: Iterable[tuple[str, float, float, str]]) -> None:
        """Write disjoint intervals of devices: (actor, start_s, end_s, "busy" or "down")."""
        self._write("intervals", arrow_table(list(intervals), INTERVALS_SCHEMA))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary; NaN and infinity become null. Tables written later contain its trace hash.

        Raises ValueError if a key of SUMMARY_KEYS is missing.
        """
        missing = [key for key in SUMMARY_KEYS if key not in summary]
        if missing:
            raise ValueError(f"keys are missing in the summary: {', '.join(missing)}")
        self._write_text("summary.json", _json({KEY: FORMAT, **summary}))
        self._trace_hash = summary["trace_hash"]

    def write_report(self, page: str) -> Path:
        """Write the report atomically, and return its path."""
        return self.write_page(REPORT, page)

    def write_page(self, name: str, page: str) -> Path:
        """Write an HTML file atomically, and return its path."""
        with self.whole(f".{name}.new") as file:
            file.write_text(page, encoding="utf-8")
            return file.replace(self.path / name)

    @property
    def target(self) -> Path:
        """Final path of the results."""
        return self.path if self._hidden is None else self._hidden.target

    @target.setter
    def target(self, path: Path) -> None:
        assert self._hidden is not None
        self._hidden.target = path

    @property
    def expected_path(self) -> Path:
        """Final path of the results if they replace no others."""
        return self.path if self._hidden is None else output_dir.next_free(self._hidden.target)

    def finalise(self, *, replace: bool = False) -> Path:
        """Rename the folder to its target, or to a free name if results exist there; return its path.

        With `replace`, existing results are replaced, except for the user's files. Raises OSError, and
        ValueError without summary.json.
        """
        if not (self.path / "summary.json").is_file():
            raise ValueError(f"{self.path} has no summary.json yet")
        if self._hidden is not None:
            (self.path / PROGRESS).unlink(missing_ok=True)
            Manifest.of(
                self.path, [*TEXTS, *[f"{table}.parquet" for table in TABLES | SPECIAL_TABLES], READS]
            ).write()
            self.path = self._hidden.move_to_target(replace)
            self._hidden = None
        return self.path

    def discard(self) -> None:
        """Remove the folder of a run without results to keep; no effect after `finalise`."""
        if self._events is not None:
            self._events.discard()
        if self._hidden is not None:
            self._hidden.clear()

    def scenario_text(self) -> str:
        """Read the resolved scenario. Raises UserError."""
        return self.file("scenario.toml").read_text(encoding="utf-8")

    def summary(self) -> dict[str, Any]:
        """Read the summary, with defaults for missing keys. Raises UserError if it is damaged."""
        return InputFile("", self.file("summary.json")).parsed(parse_summary, "the summary of a run")

    def provenance(self) -> dict[str, Any]:
        """Read the provenance. Raises UserError if the file is damaged."""
        return self._read_json("provenance.json")

    def progress(self) -> dict[str, Any]:
        """Read the progress of a running or killed run. Raises UserError if it is unknown."""
        return self._read_json(PROGRESS)

    def scan(self, table: str) -> pl.LazyFrame:
        """Scan one of the run's tables, such as "metrics" or "events", with the columns of this version.

        Missing columns are null. Raises UserError as `table_path` does.
        """
        file = self.table_path(table).absolute()
        try:
            os.fspath(file).encode()
        except UnicodeEncodeError:  # polars opens only names in UTF-8
            return with_columns_of_table(pl.scan_parquet(io.BytesIO(file.read_bytes())), table)
        # Without glob=False, polars interprets brackets and ~ in the path.
        return with_columns_of_table(pl.scan_parquet(file, glob=False), table)

    def has(self, table: str) -> bool:
        """Return whether the run has one of `SPECIAL_TABLES`."""
        name = f"{table}.parquet"
        return os.path.isfile(self.path / name) or (self._manifest is not None and name in self._manifest)

    def table_path(self, table: str) -> Path:
        """Return the file of a table. Raises UserError if it is missing, changed, or has other columns."""
        file = self.file(f"{table}.parquet")
        if table not in self._checked:
            try:
                with file.open("rb") as opened, pq.ParquetFile(opened) as parquet:
                    schema, metadata = parquet.schema_arrow, parquet.metadata
            except (OSError, pa.ArrowException) as error:
                raise UserError(f"{file} is not a table, or is damaged: {one_line(str(error))}") from error
            require_columns(file, table, schema)
            taken = 8 * metadata.num_rows * metadata.num_columns
            # Compression explains a ratio up to _PACKED; above it, many equal rows could fill the memory.
            if taken > _PACKED * file.stat().st_size and (problem := no_room_message(taken)):
                raise UserError(f"{file}: {problem}")
            self._checked.add(table)
        return file

    def require_sizes(self) -> None:
        """Raise UserError if files of a finished run are missing or have other sizes, if these are known."""
        if self._manifest is not None:
            self._manifest.require_sizes()

    def file(self, name: str) -> Path:
        """Return the path of a file. Raises UserError if it is missing or was changed."""
        file = self.path / name
        if not os.path.isfile(file):
            raise UserError(f"{file} is missing; these results are incomplete")
        if self._manifest is not None:
            self._manifest.require_intact(name)
        return file

    def _read_json(self, name: str) -> dict[str, Any]:
        file = InputFile("", self.file(name))
        content = file.json()
        if not isinstance(content, dict):
            raise file.refusal("must be a JSON object")
        return content

    def _write_text(self, name: str, text: str) -> None:
        with self.whole(name) as file:
            # Command-line arguments may not be UTF-8; JSON contains them as escapes.
            file.write_text(text, encoding="utf-8", errors="backslashreplace")

    def _write(self, table: str, content: pa.Table) -> None:
        if self._trace_hash is not None:
            content = content.replace_schema_metadata({TRACE_HASH: self._trace_hash})
        # Pass an open file: pyarrow would interpret a path that starts with "s3:".
        with self.whole(f"{table}.parquet") as file, file.open("wb") as opened:
            pq.write_table(content, opened, compression="zstd", write_page_checksum=True)

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        """Yield the path of a file to write, and remove the file after errors."""
        file = self.path / name
        try:
            yield file
        except BaseException:
            with suppress(OSError):
                file.unlink(missing_ok=True)
            raise


def load_checked(path: Path) -> RunDirectory:
    """Load results and check that all files exist, are intact, and belong to one run. Raises UserError."""
    directory = RunDirectory.load(path)
    for name in TEXTS:
        directory.file(name)
    for table in [*TABLES, *filter(directory.has, SPECIAL_TABLES)]:
        directory.table_path(table)
    return directory


def _json(content: Mapping[str, Any]) -> str:
    """Encode as JSON, with numpy's numbers as plain numbers, and NaN and infinity as null."""
    plain = json.loads(json.dumps(content, default=_json_default), parse_constant=lambda _: None)
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _json_default(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value.tolist()
