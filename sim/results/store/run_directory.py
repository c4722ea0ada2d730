"""The result directory of a run: its files, written and read. docs/results.md describes each."""

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
from sim.files.input_file import InputFile, no_room
from sim.results.metrics import Metrics, table_of
from sim.results.store import output_dir
from sim.results.store.before_checksums import TRACE_HASH, HashesOfSummary
from sim.results.store.events_file import EventsFile
from sim.results.store.formats import FORMAT, KEY, require_known
from sim.results.store.manifest import Manifest
from sim.results.store.output_dir import MARK, PROGRESS, READS, REPORT, HiddenFolder
from sim.results.store.summary_file import SUMMARY_KEYS, checked
from sim.results.store.tables import INTERVALS_SCHEMA, SPECIAL_TABLES, TABLES, by_name, require_columns
from sim.results.trace import Trace

TEXTS = ("summary.json", "scenario.toml", "provenance.json")
_PACKED = 1000  # times the bytes of a file that no table of a run takes in memory
_ROOM_BYTES = 8 << 20  # the report alone has 5 MB


class RunDirectory:
    """The files of one run. `create` for writing, `load` for reading.

    A directory that is written has a hidden, temporary name until `finalise` renames it. Whatever stops a
    run, a reader finds the old results or the new ones, never a mixture. What is read of a finished run are
    the files that were written, or UserError says which one is another now.
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
        self._manifest = manifest  # None while it is written, and of what a killed process left
        self._events: EventsFile | None = None
        self._checked: set[str] = set()  # tables whose columns have been looked at
        self.wrote_parent = False
        """Whether this one has written measurements of a fork's parent, which may be lost by now."""

    @classmethod
    def create(
        cls, out_base: Path, scenario_name: str, seed: int, short_hash: str, *, overwrite: bool = False
    ) -> Self:
        """A new directory for `<out_base>/<scenario>-<seed>-<hash>`, with its folders made as needed.

        Hidden folders that dead processes left there are cleared away. With `overwrite` the results that are
        there will be replaced. Raises UserError where results can't be written, or can't be replaced.
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
                f"cannot write results to {target}: this system's file names are in {error.encoding}; set "
                "PYTHONUTF8=1, or run.name to another name"
            ) from error
        if shutil.disk_usage(hidden.path).free < _ROOM_BYTES:
            hidden.clear()
            raise UserError(f"no room for results in {out_base}: it has less than {_ROOM_BYTES:,} bytes")
        return cls(hidden.path, hidden)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The directory of a finished run; UserError if `path` is none."""
        path = Path(path)
        if not os.path.isfile(path / "summary.json"):  # unlike Path.is_file, no error for impossible names
            if not os.path.lexists(path):
                raise UserError(f"{path}: no such folder")
            raise UserError(f"{path} is not a result directory: it has no summary.json")
        require_known(path / "summary.json")
        has_checksums = os.path.lexists(path / output_dir.MANIFEST)
        return cls(path, manifest=(Manifest if has_checksums else HashesOfSummary).read(path))

    @classmethod
    def found(cls, path: Path) -> Self:
        """The directory of a run, finished or not; what a killed process left is not known to be whole."""
        was_killed = output_dir.HIDDEN.fullmatch(path.name) and not (path / output_dir.MANIFEST).is_file()
        if output_dir.is_results(path) and not was_killed:
            return cls.load(path)
        require_known(path / "provenance.json")
        return cls(path)

    @property
    def is_whole(self) -> bool:
        """Whether it has results that came to be written, and not what a killed process left."""
        return self._manifest is not None

    def write_scenario(self, text: str) -> None:
        """The resolved scenario, as TOML."""
        self._write_text("scenario.toml", text)

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        """By which code, command and machine, and when."""
        self._write_text("provenance.json", _json({KEY: FORMAT, **provenance}))

    def write_code(self, folder: str, files: Mapping[str, bytes]) -> None:
        """A copy of the user's code, by the files' names in `folder`: protocol-<hash>, or model-<hash>."""
        for name, content in files.items():
            path = self.path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (self.path / folder / MARK).write_text("\n".join(files), encoding="utf-8")

    def write_metrics(self, metrics: Metrics) -> None:
        """The measurements, the collaboration graph and the coalitions."""
        self._write("metrics", metrics.to_table())
        self._write("graph", metrics.graph_table())
        coalitions = metrics.coalition_table()
        if coalitions is not None:
            self._write("coalitions", coalitions)

    def write_parent(self, rows: pa.Table) -> None:
        """The measurements of a fork's parent."""
        self.wrote_parent = True
        self._write("parent", rows)

    def keep_events(self, trace: Trace) -> None:
        """Have the rows of a trace written as they come, and not kept in memory."""
        trace.kept = self._events = EventsFile(self.path / "events.parquet")

    def write_events(self, trace: Trace) -> None:
        """The trace, as far as it was kept: where that was in a file, the rest of it, or a copy."""
        if trace.kept is None:
            self._write("events", trace.to_table())
            return
        trace.flush()
        trace.kept.close({} if self._trace_hash is None else {TRACE_HASH: self._trace_hash})
        if trace.kept is not self._events:
            self.copy(trace.kept.path)

    def copy(self, file: Path) -> None:
        """Have a table of another directory, by the same name. Raises OSError."""
        with self.whole(file.name) as own:
            shutil.copyfile(file, own)

    def write_intervals(self, intervals: Iterable[tuple[str, float, float, str]]) -> None:
        """The devices' time: (actor, start_s, end_s, "busy" or "down"); an actor's intervals are disjoint."""
        self._write("intervals", table_of(list(intervals), INTERVALS_SCHEMA))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """The outcome; numbers that are not finite become null. Tables written after it bear its trace hash.

        Raises ValueError if a key of SUMMARY_KEYS is missing.
        """
        missing = [key for key in SUMMARY_KEYS if key not in summary]
        if missing:
            raise ValueError(f"the summary lacks {', '.join(missing)}")
        self._write_text("summary.json", _json({KEY: FORMAT, **summary}))
        self._trace_hash = summary["trace_hash"]

    def write_report(self, page: str) -> Path:
        """The report, in one step: a reader sees the old one or the new one. Returns its path."""
        with self.whole(f".{REPORT}.new") as file:
            file.write_text(page, encoding="utf-8")
            return file.replace(self.path / REPORT)

    @property
    def target(self) -> Path:
        """Where the results of this run belong."""
        return self.path if self._hidden is None else self._hidden.target

    @target.setter
    def target(self, path: Path) -> None:
        assert self._hidden is not None
        self._hidden.target = path

    @property
    def expected_path(self) -> Path:
        """Where the results of this run would go now, if they replaced nothing."""
        return self.path if self._hidden is None else output_dir.next_free(self._hidden.target)

    def finalise(self, *, replace: bool = False) -> Path:
        """Moves the directory to its target, and returns its path. Where results are already: beside them.

        With `replace` it replaces those results, but for files that the user put there. Raises OSError.
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
        """Removes what was written, for a run that ends with nothing to keep; no effect once finalised."""
        if self._events is not None:
            self._events.discard()
        if self._hidden is not None:
            self._hidden.clear()

    def scenario_text(self) -> str:
        """The resolved scenario; UserError if it cannot be read."""
        return self.file("scenario.toml").read_text(encoding="utf-8")

    def summary(self) -> dict[str, Any]:
        """The outcome, with what earlier versions left out; UserError if the file is damaged, or not ours."""
        return InputFile("", self.file("summary.json")).parsed(checked, "the summary of a run")

    def provenance(self) -> dict[str, Any]:
        """By which code, command and machine, and when; UserError if the file is damaged."""
        return self._read_json("provenance.json")

    def progress(self) -> dict[str, Any]:
        """How far it is, while it goes on, or was when it was killed; UserError if that is not known."""
        return self._read_json(PROGRESS)

    def scan(self, table: str) -> pl.LazyFrame:
        """One of the tables "metrics", "graph", "events", "intervals", with the columns of this version.

        A column that the file lacks is null. UserError if the file is not there.
        """
        file = self.table_path(table).absolute()
        try:
            os.fspath(file).encode()
        except UnicodeEncodeError:  # a name that is no UTF-8, which polars cannot open
            return by_name(pl.scan_parquet(io.BytesIO(file.read_bytes())), table)
        # Of a bare path polars would take brackets for a pattern, and ~ for somebody's home.
        return by_name(pl.scan_parquet(file, glob=False), table)

    def has(self, table: str) -> bool:
        """Whether there is one of `SPECIAL_TABLES`."""
        name = f"{table}.parquet"
        return os.path.isfile(self.path / name) or (self._manifest is not None and name in self._manifest)

    def table_path(self, table: str) -> Path:
        """The file of a table; UserError if it is not there, another one, or its columns do not fit."""
        file = self.file(f"{table}.parquet")
        if table not in self._checked:
            try:
                with file.open("rb") as opened, pq.ParquetFile(opened) as parquet:
                    schema, there = parquet.schema_arrow, parquet.metadata
            except (OSError, pa.ArrowException) as error:
                raise UserError(f"{file} is not a table, or damaged: {one_line(str(error))}") from error
            require_columns(file, table, schema)
            taken = 8 * there.num_rows * there.num_columns
            # Of a run, too, few bytes may be many rows, but not so few: these are equal ones.
            if taken > _PACKED * file.stat().st_size and (problem := no_room(taken)):
                raise UserError(f"{file}: {problem}")
            self._checked.add(table)
        return file

    def require_sizes(self) -> None:
        """UserError unless the files of a finished run are there, as large as they were, if that is known."""
        if self._manifest is not None:
            self._manifest.require_sizes()

    def file(self, name: str) -> Path:
        """A file of this directory; UserError if it is not there, or another one than was written."""
        file = self.path / name
        if not os.path.isfile(file):
            raise UserError(f"{file} is missing; these results are not complete")
        if self._manifest is not None:
            self._manifest.require_intact(name)
        return file

    def _read_json(self, name: str) -> dict[str, Any]:
        file = InputFile("", self.file(name))
        content = file.json()
        if not isinstance(content, dict):
            raise file.refusal("must be a table of keys and values")
        return content

    def _write_text(self, name: str, text: str) -> None:
        with self.whole(name) as file:
            # An argument of the command line need not be UTF-8; in JSON this writes it as an escape.
            file.write_text(text, encoding="utf-8", errors="backslashreplace")

    def _write(self, table: str, content: pa.Table) -> None:
        if self._trace_hash is not None:
            content = content.replace_schema_metadata({TRACE_HASH: self._trace_hash})
        # An open file: of a path pyarrow might take "s3:" at its beginning for a place elsewhere.
        with self.whole(f"{table}.parquet") as file, file.open("wb") as opened:
            pq.write_table(content, opened, compression="zstd", write_page_checksum=True)

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        """The path of a file of this directory that is written whole, or else removed."""
        file = self.path / name
        try:
            yield file
        except BaseException:
            with suppress(OSError):
                file.unlink(missing_ok=True)
            raise


def load_checked(path: Path) -> RunDirectory:
    """The results in a directory, every file of which is there, whole, and of the same run. UserError."""
    directory = RunDirectory.load(path)
    for name in TEXTS:
        directory.file(name)
    for table in [*TABLES, *filter(directory.has, SPECIAL_TABLES)]:
        directory.table_path(table)
    return directory


def _json(content: Mapping[str, Any]) -> str:
    """As JSON knows it: numpy's numbers as plain ones, infinite and undefined numbers as null."""
    plain = json.loads(json.dumps(content, default=_plain), parse_constant=lambda _: None)
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value.tolist()
