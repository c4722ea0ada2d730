"""Resumable runs: lookup by results or by the files of a killed process, and replay to the checkpoint."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

from protocols.framework.client import Client
from sim.errors import UserError
from sim.files.input_file import InputFile
from sim.files.journal import Journal, frames
from sim.learning.engine.replay_log import (
    RecordedReadLog,
    ReplayedReadLog,
    ReplayError,
    evaluation_hashes_after,
)
from sim.learning.engine.snapshot import end_replay, require_same_owners, start_replay
from sim.results.measures import MEASURES
from sim.results.metrics import METRICS_SCHEMA
from sim.results.store.output_dir import HIDDEN, READS, abandoned_folders, is_results
from sim.results.store.run_directory import RunDirectory
from sim.results.store.tables import with_columns_of_table
from sim.run.resume.checkpoint import Checkpoint, OtherVersion
from sim.run.resume.held_vectors import name_of_owner
from sim.run.save.provenance import conditions_of_process
from sim.run.setup.builder import PreparedRun
from sim.scenario.overrides import merge_contents
from sim.scenario.reading import toml_tables
from sim.scenario.scenario import Scenario, load_scenario
from sim.scenario.shared_prefix import changeable_keys, prefix_digest, require_same_prefix, timed_changes
from sim.world.participants import client_name, client_number

_NEEDED = ("scenario.toml", READS)
_SOON_S = 1e-6  # from a fork to its first change: a fork has all events of its moment


@dataclass(frozen=True)
class ResumableRun:
    """A run that can continue: the folder of its results, complete or not, and its checkpoint."""

    path: Path
    checkpoint: Checkpoint | None
    is_finished: bool
    fork_s: float | None = None
    """Virtual time of the fork; None if the run itself continues."""

    attempts: tuple[Path, ...] = ()
    """Hidden folders of killed processes; several if a resumed run was also killed."""
    unusable: tuple[str, ...] = ()
    """Lines about checkpoints that are damaged or from another version."""
    cut_short: Path | None = None
    """Folder of an interrupted run's results, which are replaced."""

    @classmethod
    def find(cls, path: Path, fork_s: float | None = None) -> ResumableRun:
        """Find the run of a results directory, or of the hidden folder of a killed process.

        Raises UserError.
        """
        folders = result_folders(path)
        # A run that was killed while it wrote its results has not finished, even if its summary states it.
        results = None if HIDDEN.fullmatch(folders[0].name) else folders[0]
        finished = results is not None and _has_finished(results)
        if results is not None and fork_s is None and not finished:
            folders += _resumable(abandoned_folders(results))  # a resumed run may have been killed
        hidden = tuple(folder for folder in folders if folder != results)
        until_s = math.inf if fork_s is None else fork_s
        # The last killed process need not be the furthest: it may have been replaying.
        found = {each: Checkpoint.latest(each, until_s) for each in folders}
        folder, at = max(((each, at) for each, (at, _) in found.items()), key=_progress_sort_key)
        unusable = [error for _, errors in found.values() for error in errors]
        # Do not silently restart a run. A fork may restart if all errors are about other versions.
        only_others = fork_s is not None and all(isinstance(error, OtherVersion) for error in unusable)
        if at is None and unusable and not only_others:
            what = "it" if len(unusable) == 1 else "all of them"
            found_wrong = "\n".join(map(str, unusable))
            raise UserError(f"{found_wrong}; delete {what} to compute the run from its start")
        cut_short = None if finished or fork_s is not None else results
        return cls(folder, at, finished, fork_s, hidden, tuple(map(str, unusable)), cut_short)

    def is_cut_short_of(self, target: Path) -> bool:
        """Return True if results of an interrupted part of the run are in `target`.

        Results in a folder with this name and a number, such as "-2", also count.
        """
        if self.cut_short is None:
            return False
        name = self.cut_short.name
        return target.name in (name, re.sub(r"-\d+$", "", name))

    @property
    def time_s(self) -> float:
        """Virtual time from which the run continues."""
        return 0.0 if self.checkpoint is None else self.checkpoint.time_s

    def scenario(
        self,
        changes: Sequence[str] = (),
        unset: Sequence[str] = (),
        more: Path | None = None,
        *,
        without: Sequence[int | str] = (),
        code: bool = True,
        method: type[Client] | None = None,
    ) -> Scenario:
        """Return the run's scenario with changed keys. Raises UserError.

        changes, unset: as for `--set` and `--unset`; in a fork, changes of keys that can change during a run
        become a `[[change]]` at the time of the fork. more: a file with entries to add. method: a class that
        replaces the copy in the results, with the same source text. without: clients that crash right after
        the fork and do not return.
        """
        file = RunDirectory.found(self.path).file("scenario.toml")
        given = [*(f"--unset {key}" for key in unset), *changes]
        added: dict[str, Any] = {} if more is None else toml_tables(more)
        if self.fork_s is not None:
            with version_added_to_errors(self.path):
                parent = load_scenario(file, code=code, method=method)
            changes, timed = timed_changes(changes, self.fork_s, changeable_keys(parent))
            merge_contents(added, timed)
            if without:
                gone = [client_number(each, self._client_names(parent), "--without") for each in without]
                _require_no_return(parent, gone, self.fork_s)
                merge_contents(added, {"churn": [_crash_entry(gone, self.fork_s)]})
        with (
            nullcontext() if self.fork_s is not None else version_added_to_errors(self.path),
            _added_file_noted(more),
        ):
            scenario = load_scenario(file, changes, unset=unset, more=added, code=code, method=method)
        if method is not None:
            self._require_same_text(scenario)
        if self.fork_s is not None:
            self._require_within(scenario, parent, self.fork_s)
            require_same_prefix(scenario, parent, self.fork_s)
        recorded = self.provenance
        return replace(
            scenario,
            overrides=(*recorded.overrides, *given),
            notices=(*recorded.notices, *scenario.notices),
        )

    def _client_names(self, scenario: Scenario) -> Sequence[str]:
        directory = RunDirectory.found(self.path)
        if directory.is_whole:
            return tuple(directory.summary()["client_names"])
        return [client_name(number) for number in range(scenario.clients.count)]

    def _require_same_text(self, scenario: Scenario) -> None:
        """Raise UserError for a method that was passed as a class and differs from the run's."""
        digests = [
            each.sources.digest for each in scenario.plugins if each.key == "protocol.name" and each.sources
        ]
        if not any((self.path / f"protocol-{digest}").is_dir() for digest in digests):
            name = scenario.protocol.method.__name__
            raise UserError(
                f"the source text of protocol = {name} differs from that of the method in {self.path}; "
                "pass the class that the run used"
            )

    def _require_within(self, scenario: Scenario, parent: Scenario, fork_s: float) -> None:
        """Raise UserError if a fork would start after the end of its parent, or after its own end."""
        end_s = self.ended_s if self.is_finished else parent.run.duration
        if end_s is not None and fork_s > end_s:
            ends = "ended" if self.is_finished else "ends"
            raise UserError(
                f"--at: {self.path} {ends} at {end_s:g} s, before {fork_s:g} s; use an earlier time"
            )
        duration_s = scenario.run.duration
        if duration_s is not None and duration_s <= fork_s:
            raise UserError(
                f"run.duration: the fork would end at {duration_s:g} s, but starts at {fork_s:g} s; fork "
                "the run earlier, or use --set for a longer run.duration"
            )

    @property
    def ended_s(self) -> float:
        """Virtual time at which a finished run ended."""
        return float(RunDirectory.load(self.path).summary()["virtual_seconds"])

    def require_unfinished(self, scenario: Scenario) -> None:
        """Raise UserError if no part of the scenario is left to run."""
        if self.fork_s is not None:
            return
        self.require_extensible()
        duration_s = scenario.run.duration
        if self.is_finished and self.checkpoint is None:
            raise UserError(f"{self.path} has ended, and has no checkpoint from which it can be extended")
        if duration_s is not None:
            self.require_later(duration_s)

    def require_extensible(self) -> None:
        """Raise UserError for a finished run that did not end at run.duration."""
        if not self.is_finished:
            return
        planned_s = RunDirectory.load(self.path).summary()["planned_seconds"]
        if planned_s is None or self.ended_s < planned_s:
            raise UserError(
                f"{self.path} ended at {self.ended_s:g} s because of iterations, rounds, budget or "
                "run.converged; --until extends only a run that ended at run.duration; use `coterie run` "
                "with its scenario.toml, and --set the key that ended it"
            )

    def require_later(self, end_s: float) -> None:
        """Raise UserError if the run is already beyond `end_s`, or ended at it."""
        if self.checkpoint is not None and end_s <= self.time_s:
            if self.is_finished:
                raise UserError(f"{self.path} ended at {self.time_s:g} s; pass a later --until to extend it")
            if end_s < self.time_s:
                raise UserError(f"{self.path} continues from {self.time_s:g} s; --until must not be earlier")

    def differences(self, run: PreparedRun) -> list[str]:
        """Return a line for each change since the run that could change its values."""
        before = self.provenance.made_by if self.checkpoint is None else self.checkpoint.made_by
        return changed_conditions(before, run.made_by)

    @property
    def name(self) -> str:
        """Name of the run's results directory, even if that does not exist yet."""
        hidden = HIDDEN.fullmatch(self.path.name)
        return self.path.name if hidden is None else hidden["name"]

    @cached_property
    def fork(self) -> dict[str, Any] | None:
        """Entry of a fork in the summary: its parent and its time; None for other runs.

        The entry is read before the run continues, because the new results may replace the earlier ones.
        """
        if self.fork_s is None:
            fork = self.provenance.fork
            return None if fork is None else fork.model_dump()
        return {"of": self.name, "at": self.fork_s}

    @property
    def provenance(self) -> Provenance:
        return Provenance.of(self.path)

    def _evaluations(self, run: PreparedRun) -> dict[float, str]:
        """Return the trace hashes of the run's evaluations after its checkpoint, by virtual time.

        A run that continues without changes repeats these hashes. Empty for a fork, or for changed code.
        """
        assert self.checkpoint is not None
        if self.fork_s is not None or self.differences(run):
            return {}
        return evaluation_hashes_after(self.checkpoint.reads, frames(self.path / READS))

    def replay(self, run: PreparedRun, log: Path, *, exactly: bool = True) -> None:
        """Replay a simulation from virtual time 0 to the checkpoint, and let it continue with `log`.

        exactly: True if evaluations after the checkpoint must equal the evaluations in the run's log. Raises
        UserError if the simulation does not match the checkpoint.
        """
        at, simulation = self.checkpoint, run.simulation
        assert at is not None
        if prefix_digest(run.scenario, at.time_s) != at.scenario:
            raise UserError(
                f"{self.path} cannot continue from {at.time_s:g} s: its scenario.toml has changed"
            )

        def arrive(replayed: ReplayedReadLog) -> None:
            try:
                if simulation.trace.hash() != at.trace_hash or not replayed.ended:
                    raise ReplayError("its events differ from those of the run")
                require_same_owners(simulation.engine, at.rows, partial(name_of_owner, simulation))
            except ReplayError as error:  # also stored: an actor that reads may catch it
                replayed.failure = error
                raise
            journal = Journal.continued(log, self.path / READS, at.log_bytes)
            expected = self._evaluations(run) if exactly else {}
            record = RecordedReadLog(journal, replayed.recent, replayed.count, expected)
            end_replay(simulation.engine, at.rows, record)

        before = frames(self.path / READS, at.log_bytes)
        read_log = ReplayedReadLog(before, flushes=at.flushes, arrive=arrive)
        start_replay(simulation.engine, read_log)
        simulation.begin()
        try:
            while not simulation.loop.run_until(at.time_s):
                if not simulation.loop.paused:  # paused for a due checkpoint, which a replay does not write
                    raise ReplayError("it ended earlier than the run")
            if read_log.failure is not None:
                raise read_log.failure
            if simulation.engine.read_log is read_log:
                arrive(read_log)
        except Exception as error:  # any error that follows from the values of another run
            reason = error if isinstance(error, ReplayError) else "its events differ from those of the run"
            raise UserError(f"{self.path} cannot continue from {at.time_s:g} s: {reason}") from error


def _crash_entry(clients: Sequence[int], fork_s: float) -> dict[str, Any]:
    """Return the churn entry by which clients crash right after a fork."""
    return {"at": f"{fork_s + _SOON_S:.6f} s", "event": "crash", "clients": sorted(set(clients))}


def _require_no_return(parent: Scenario, clients: Sequence[int], fork_s: float) -> None:
    """Raise UserError if the parent lets one of the clients join or return after the fork."""
    for entry in parent.churn:
        named = set(clients) & set(entry.clients or clients)  # a share or a cluster may include any client
        if entry.event in ("join", "rejoin") and entry.at > fork_s and named:
            raise UserError(
                f"--without {min(named)}: a churn entry of the run can let this client {entry.event} at "
                f"{entry.at:g} s, after the fork; remove the entry from a copy of the scenario, and run that"
            )


def _progress_sort_key(found: tuple[Path, Checkpoint | None]) -> tuple[float, int, str]:
    """Return a sort key of progress: the checkpoint, then the log, then the name."""
    folder, at = found
    return (-1.0 if at is None else at.time_s, (folder / READS).stat().st_size, folder.name)


def result_folders(path: Path) -> tuple[Path, ...]:
    """Return the folder of a run's results, or the hidden folders of killed processes. Raises UserError."""
    if path.name in ("", ".."):
        path = path.resolve()  # to get a name and a parent folder
    found = [path] if path.exists() else abandoned_folders(path)
    if not found:
        raise UserError(f"{path}: no such folder, and no killed run of this name")
    resumable = _resumable(found)
    if not resumable:
        missing = " and no ".join(name for name in _NEEDED if not os.path.isfile(found[0] / name))
        raise UserError(f"{path} is not the folder of a run: it has no {missing}{_run_inside(path)}")
    return resumable


def _run_inside(path: Path) -> str:
    """Return a hint on the first run in a folder of runs; empty without runs."""
    inside = sorted(_resumable(path.iterdir())) if path.is_dir() else []
    return f"; name a run in it, such as {inside[0]}" if inside else ""


def _resumable(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple([each for each in folders if all(os.path.isfile(each / name) for name in _NEEDED)])


def _has_finished(results: Path) -> bool:
    return is_results(results) and bool(RunDirectory.load(results).summary()["finished"])


class _Fork(BaseModel):
    of: str
    at: float


class _Machine(BaseModel):
    device: str = "cpu"


class Provenance(BaseModel):
    """Provenance of a run, as far as a resumed run needs it."""

    coterie: str | None = None
    commit: str | None = None
    made_by: dict[str, str] | None = None
    fork: _Fork | None = None
    machine: _Machine = _Machine()
    overrides: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read a run's provenance; empty if the run was killed and the file is damaged. Raises UserError."""
        directory = RunDirectory.found(folder)
        try:
            return cls.model_validate(directory.provenance())
        except (UserError, ValidationError):
            if directory.is_whole:
                raise
            return cls()


@contextmanager
def version_added_to_errors(folder: Path) -> Iterator[None]:
    """Add to a UserError about a scenario in results the version that wrote the results, if it differs."""
    try:
        yield
    except UserError as error:
        recorded, code = Provenance.of(folder), "the code of coterie"
        if (recorded.made_by or {}).get(code) == conditions_of_process()[code]:
            raise
        version = f"coterie {recorded.coterie or 'of an unknown version'}"
        version += f", commit {recorded.commit[:12]}" if recorded.commit else ""
        raise UserError(
            f"{error}\n{folder} is a run of {version}, and this version cannot read its scenario: install "
            "that version to resume, fork or explain it, or use `coterie run` with its scenario.toml and "
            "--unset for keys that this version does not know"
        ) from error


@contextmanager
def _added_file_noted(more: Path | None) -> Iterator[None]:
    """Add to a UserError of this block that the scenario also has the entries of a file."""
    try:
        yield
    except UserError as error:
        if more is not None:
            error.add_note(
                f"the entries of {more} are added after those of the run, so their numbers continue"
            )
        raise


def changed_conditions(before: Mapping[str, str] | None, now: Mapping[str, str]) -> list[str]:
    """Return a line for each changed condition of a run's values: code, files, data, device or library."""
    if before is None:
        return ["the code and libraries of the run are unknown"]
    return [
        f"{name} was {before[name]} and is now {value}"
        if name in before
        else f"{name} was not recorded and is now {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def parent_quality_after_fork(earlier: ResumableRun | None) -> pa.Table | None:
    """Return the quality of a fork's parent after the fork, by client and time; None if it is unknown."""
    if earlier is None:
        return None
    directory = RunDirectory.found(earlier.path)
    if earlier.fork_s is None:
        if not directory.has("parent"):
            return None
        kept = InputFile("", directory.table_path("parent")).parsed(_table, "a Parquet table")
        return with_columns_of_table(kept.lazy(), "parent").collect().to_arrow().cast(METRICS_SCHEMA)
    if not earlier.is_finished:
        return None
    names = [measure.name for measure in MEASURES]
    rows = directory.scan("metrics")
    later = rows.filter((pl.col("time") > earlier.fork_s) & pl.col("name").is_in(names)).collect()
    return later.to_arrow().cast(METRICS_SCHEMA)


def _table(content: bytes) -> pl.DataFrame:
    return pl.DataFrame(
        pl.from_arrow(pq.read_table(pa.BufferReader(content), page_checksum_verification=True))
    )
