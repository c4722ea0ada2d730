"""A run that goes on: found by its results or what a killed process left, and replayed to its checkpoint."""

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
from sim.learning.engine.replay_log import RecordedReadLog, ReplayedReadLog, ReplayError, evaluations_after
from sim.learning.engine.snapshot import compute_from, require_same_owners, start_replay
from sim.results.measures import MEASURES
from sim.results.metrics import METRICS_SCHEMA
from sim.results.store.output_dir import HIDDEN, READS, is_results, left_hidden
from sim.results.store.run_directory import RunDirectory
from sim.results.store.tables import by_name
from sim.run.resume.checkpoint import Checkpoint, OtherVersion
from sim.run.resume.held_vectors import name_of_owner
from sim.run.save.provenance import computed_by
from sim.run.setup.builder import PreparedRun
from sim.scenario.overrides import add
from sim.scenario.reading import contents_of
from sim.scenario.scenario import Scenario, load_scenario
from sim.scenario.shared_prefix import changing_of, prefix_digest, require_same_prefix, timed_changes

_NEEDED = ("scenario.toml", READS)
_WITHOUT = "delete it to go on from an earlier checkpoint, or from the start"


@dataclass(frozen=True)
class ResumableRun:
    """A run that is to go on: the folder of its results, complete or not, and where it can go on from."""

    path: Path
    checkpoint: Checkpoint | None
    is_finished: bool
    fork_s: float | None = None
    """The virtual time from which on it is another run; None for the same one."""

    attempts: tuple[Path, ...] = ()
    """All that killed processes left hidden of it, several where one was killed that went on with it."""
    unusable: tuple[str, ...] = ()
    """Checkpoints, damaged or of another version, from which it cannot go on: a line for each."""
    cut_short: Path | None = None
    """The folder of an interrupted run's results, which are replaced."""

    @classmethod
    def find(cls, path: Path, fork_s: float | None = None) -> ResumableRun:
        """The run of a results directory, also of one that a killed process left hidden. UserError."""
        folders = folders_of(path)
        # Who was killed while it wrote its results has not finished, whatever its summary says.
        results = None if HIDDEN.fullmatch(folders[0].name) else folders[0]
        finished = results is not None and _has_finished(results)
        if results is not None and fork_s is None and not finished:
            folders += _can_go_on(left_hidden(results))  # who went on with them may have been killed
        hidden = tuple(folder for folder in folders if folder != results)
        until_s = math.inf if fork_s is None else fork_s
        # Who was killed last need not be who got furthest: it may have been on its way there.
        found = {each: Checkpoint.latest(each, until_s) for each in folders}
        folder, at = max(((each, at) for each, (at, _) in found.items()), key=_how_far)
        unusable = [error for _, errors in found.values() for error in errors]
        # Nobody would expect a run to start again. A fork may, where nothing but the version is in the way.
        only_others = fork_s is not None and all(isinstance(error, OtherVersion) for error in unusable)
        if at is None and unusable and not only_others:
            raise UserError("\n".join(f"{error}; {_WITHOUT}" for error in unusable))
        cut_short = None if finished or fork_s is not None else results
        return cls(folder, at, finished, fork_s, hidden, tuple(map(str, unusable)), cut_short)

    def is_cut_short_of(self, place: Path) -> bool:
        """Whether there are results of a part of the run whose results belong to `place`, or beside it."""
        if self.cut_short is None:
            return False
        name = self.cut_short.name
        return place.name in (name, re.sub(r"-\d+$", "", name))

    @property
    def time_s(self) -> float:
        """The virtual time from which it goes on."""
        return 0.0 if self.checkpoint is None else self.checkpoint.time_s

    def scenario(
        self,
        changes: Sequence[str] = (),
        unset: Sequence[str] = (),
        more: Path | None = None,
        *,
        code: bool = True,
        method: type[Client] | None = None,
    ) -> Scenario:
        """The scenario it ran, changed as by `--set` and `--unset`, with entries of another file. UserError.

        method: the class that takes the place of the copy in the results, which must be of the same text. In
        a fork, what can change in a running world is one `[[change]]` at its moment.
        """
        file = RunDirectory.found(self.path).file("scenario.toml")
        given = [*(f"--unset {key}" for key in unset), *changes]
        added: dict[str, Any] = {} if more is None else contents_of(more)
        if self.fork_s is not None:
            with of_another_version(self.path):
                parent = load_scenario(file, code=code, method=method)
            changes, timed = timed_changes(changes, self.fork_s, changing_of(parent))
            add(added, timed)
        with nullcontext() if self.fork_s is not None else of_another_version(self.path):
            scenario = load_scenario(file, changes, unset=unset, more=added, code=code, method=method)
        if method is not None:
            self._require_same_text(scenario)
        if self.fork_s is not None:
            self._require_within(scenario, parent, self.fork_s)
            require_same_prefix(scenario, parent, self.fork_s)
        said = self.provenance
        return replace(
            scenario,
            overrides=(*said.overrides, *given),
            notices=(*said.notices, *scenario.notices),
        )

    def _require_same_text(self, scenario: Scenario) -> None:
        """UserError for a method that was given as a class and is another one than the run's."""
        digests = [
            each.sources.digest for each in scenario.plugins if each.key == "protocol.name" and each.sources
        ]
        if not any((self.path / f"protocol-{digest}").is_dir() for digest in digests):
            name = scenario.protocol.method.__name__
            raise UserError(
                f"protocol = {name}: is not the method that {self.path} was run with, word for word"
            )

    def _require_within(self, scenario: Scenario, parent: Scenario, fork_s: float) -> None:
        """UserError for a fork at a moment that its parent has not, or that leaves it no time."""
        end_s = self.ended_s if self.is_finished else parent.run.duration
        if end_s is not None and fork_s > end_s:
            ends = "has ended" if self.is_finished else "ends"
            raise UserError(f"--at: {self.path} {ends} at {end_s:g} s, before {fork_s:g} s; fork it earlier")
        duration_s = scenario.run.duration
        if duration_s is not None and duration_s <= fork_s:
            raise UserError(
                f"run.duration: the fork would end at {duration_s:g} s, and is another run from {fork_s:g} s "
                "on; fork it earlier, or --set run.duration to more"
            )

    @property
    def ended_s(self) -> float:
        """The virtual time at which it ended; only of a run that has finished."""
        return float(RunDirectory.load(self.path).summary()["virtual_seconds"])

    def require_some_left(self, scenario: Scenario) -> None:
        """UserError if nothing of the scenario is left to run."""
        if self.fork_s is not None:
            return
        self.require_prolongable()
        duration_s = scenario.run.duration
        if self.is_finished and self.checkpoint is None:
            raise UserError(f"{self.path} has ended, and has no checkpoint from which it could be prolonged")
        if duration_s is not None:
            self.require_later(duration_s)

    def require_prolongable(self) -> None:
        """UserError for a run that has ended by something else than its duration."""
        if not self.is_finished:
            return
        planned_s = RunDirectory.load(self.path).summary()["planned_seconds"]
        if planned_s is None or self.ended_s < planned_s:
            raise UserError(
                f"{self.path} has ended at {self.ended_s:g} s by iterations, rounds, budget or "
                "run.converged; --until prolongs only what has ended by its duration; `coterie run` its "
                "scenario.toml with another --set of what ended it"
            )

    def require_later(self, end_s: float) -> None:
        """UserError if the run is beyond `end_s` already."""
        if self.checkpoint is not None and end_s <= self.time_s:
            if self.is_finished:
                raise UserError(
                    f"{self.path} has ended at {self.time_s:g} s: --until a later time prolongs it"
                )
            if end_s < self.time_s:
                raise UserError(f"{self.path} goes on from {self.time_s:g} s: --until must be later")

    def differences(self, run: PreparedRun) -> list[str]:
        """What has changed since it was run and would change its numbers, a line each."""
        before = self.provenance.made_by if self.checkpoint is None else self.checkpoint.made_by
        return changed(before, run.made_by)

    @property
    def name(self) -> str:
        """The name of the run's results directory, also if that is not there yet."""
        hidden = HIDDEN.fullmatch(self.path.name)
        return self.path.name if hidden is None else hidden["name"]

    @cached_property
    def fork(self) -> dict[str, Any] | None:
        """What a summary says of a fork, also of one that goes on: which run it is one of, and since when.

        Read before the run goes on, whose results may take the place of these.
        """
        if self.fork_s is None:
            fork = self.provenance.fork
            return None if fork is None else fork.model_dump()
        return {"of": self.name, "at": self.fork_s}

    @property
    def provenance(self) -> Provenance:
        return Provenance.of(self.path)

    def _evaluations(self, run: PreparedRun) -> dict[float, str]:
        """The trace hashes of evaluations that the run made after its checkpoint, by virtual time.

        A run that goes on exactly has the same ones. Empty for a run that need not: a fork, or other code.
        """
        assert self.checkpoint is not None
        if self.fork_s is not None or self.differences(run):
            return {}
        return evaluations_after(self.checkpoint.reads, frames(self.path / READS))

    def replay(self, run: PreparedRun, log: Path, *, exactly: bool = True) -> None:
        """Take a simulation at virtual time 0 to the checkpoint, and have it write `log` on from there.

        exactly: whether evaluations after the checkpoint must be those that the run has logged. UserError
        where that is not the run that the checkpoint is of.
        """
        at, simulation = self.checkpoint, run.simulation
        assert at is not None
        if prefix_digest(run.scenario, at.time_s) != at.scenario:
            raise UserError(f"{self.path} cannot go on from {at.time_s:g} s: its scenario is another one now")

        def arrive(replayed: ReplayedReadLog) -> None:
            try:
                if simulation.trace.hash() != at.trace_hash or not replayed.ended:
                    raise ReplayError("other things happened than in the run")
                require_same_owners(simulation.engine, at.rows, partial(name_of_owner, simulation))
            except ReplayError as error:  # noted, too: an actor that reads may catch it
                replayed.failure = error
                raise
            journal = Journal.continued(log, self.path / READS, at.log_bytes)
            expected = self._evaluations(run) if exactly else {}
            record = RecordedReadLog(journal, replayed.recent, replayed.count, expected)
            compute_from(simulation.engine, at.rows, record)

        before = frames(self.path / READS, at.log_bytes)
        read_log = ReplayedReadLog(before, flushes=at.flushes, arrive=arrive)
        start_replay(simulation.engine, read_log)
        simulation.begin()
        try:
            while not simulation.loop.run_until(at.time_s):
                if not simulation.loop.paused:  # for a checkpoint that is due: a replay writes none
                    raise ReplayError("it ended earlier than the run")
            if read_log.failure is not None:
                raise read_log.failure
            if simulation.engine.read_log is read_log:
                arrive(read_log)
        except Exception as error:  # of whatever came of numbers that are another run's
            why = error if isinstance(error, ReplayError) else "other things happened than in the run"
            raise UserError(f"{self.path} cannot go on from {at.time_s:g} s: {why}") from error


def _how_far(found: tuple[Path, Checkpoint | None]) -> tuple[float, int, str]:
    """By the checkpoint, then by the log; the name only decides which of two equal ones it is."""
    folder, at = found
    return (-1.0 if at is None else at.time_s, (folder / READS).stat().st_size, folder.name)


def folders_of(path: Path) -> tuple[Path, ...]:
    """The folder of a run's results, or those that killed processes left of it hidden. UserError."""
    if path.name in ("", ".."):
        path = path.resolve()  # it has a name, and a folder in which it lies
    found = [path] if path.exists() else left_hidden(path)
    can = _can_go_on(found)
    if not can:
        raise UserError(f"{path} is no run that can go on: it has no {' and '.join(_NEEDED)}")
    return can


def _can_go_on(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple([each for each in folders if all(os.path.isfile(each / name) for name in _NEEDED)])


def _has_finished(results: Path) -> bool:
    return is_results(results) and bool(RunDirectory.load(results).summary()["finished"])


class _Fork(BaseModel):
    of: str
    at: float


class _Machine(BaseModel):
    device: str = "cpu"


class Provenance(BaseModel):
    """What was known of a run from its start, as far as one that goes on needs it."""

    coterie: str | None = None
    commit: str | None = None
    made_by: dict[str, str] | None = None
    fork: _Fork | None = None
    machine: _Machine = _Machine()
    overrides: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The provenance of a run; an empty one if it is damaged in a run that was killed. UserError."""
        directory = RunDirectory.found(folder)
        try:
            return cls.model_validate(directory.provenance())
        except (UserError, ValidationError):
            if directory.is_whole:
                raise
            return cls()


@contextmanager
def of_another_version(folder: Path) -> Iterator[None]:
    """Add to a UserError about the scenario of results which version wrote it, if that is another one."""
    try:
        yield
    except UserError as error:
        said, code = Provenance.of(folder), "the code of coterie"
        if (said.made_by or {}).get(code) == computed_by()[code]:
            raise
        version = f"coterie {said.coterie or 'of an unknown version'}"
        version += f", commit {said.commit[:12]}" if said.commit else ""
        raise UserError(
            f"{error}\n{folder} is a run of {version}, and this version cannot read its scenario: install "
            "that version to resume, fork or explain it, or `coterie run` its scenario.toml anew, with "
            "--unset for keys that this version does not know"
        ) from error


def changed(before: Mapping[str, str] | None, now: Mapping[str, str]) -> list[str]:
    """What the numbers of a run depend on and is different now from before, a line each."""
    if before is None:
        return ["which code and libraries it was run with is not known"]
    return [
        f"{name} was {before[name]} and is {value}"
        if name in before
        else f"{name} was not recorded and is {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def other_future(earlier: ResumableRun | None) -> pa.Table | None:
    """What the clients of a fork's parent are judged by, later than the fork; None where it is not known."""
    if earlier is None:
        return None
    directory = RunDirectory.found(earlier.path)
    if earlier.fork_s is None:
        if not directory.has("parent"):
            return None
        kept = InputFile("", directory.table_path("parent")).parsed(_table, "a Parquet table")
        return by_name(kept.lazy(), "parent").collect().to_arrow().cast(METRICS_SCHEMA)
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
