"""Archive of a study for a reviewer: scenarios, code, results, versions, and how to reproduce them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import tomli_w

from sim.errors import UserError, one_line, require_packages
from sim.files.input_file import InputFile
from sim.plugins.source_files import PRODUCT
from sim.results.report.html import SCRIPT
from sim.results.store.output_dir import CELL, EXPLORE, MANIFEST, MARK, READS, REPORT
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.store.tables import SPECIAL_TABLES, TABLES
from sim.scenario.reading import first_comment
from sim.scenario.resolved import digest_of_file
from sim.studies.artifacts.anonymous import Anonymizer, removable_names
from sim.studies.artifacts.archive import (
    COMPARISON,
    DATA,
    RUNS,
    FileList,
    Member,
    PackedRun,
    is_archive,
    name_problem,
    size_and_hash,
    write_archive,
)
from sim.studies.artifacts.crate import CRATE, RunAction, crate_metadata
from sim.studies.artifacts.lock import locked_packages
from sim.studies.artifacts.readme import readme
from sim.studies.artifacts.remaining import author_names, identity_warnings
from sim.studies.artifacts.sample import unrepeatable_reason
from sim.studies.artifacts.source_address import project_source, require_source_url
from sim.studies.index import DONE, INDEX, SweepIndex

LOCK, README = "requirements.txt", "README.md"
DATA_BYTES = 100_000_000
"""Largest total size of data files in an archive."""
_FILES_MAX = 10_000
_EVENTS = ("events.parquet", READS)
_REWRITTEN = (".json", ".html", ".svg", ".csv", ".tex", ".toml", ".txt", ".md")
UNLICENSED = "No license is stated; ask the authors of the study."


@dataclass(frozen=True)
class PackOptions:
    """Contents of an archive in addition to summaries, tables, scenarios and code.

    reports: pages of the runs. events: tables of all messages, and logs. data: files that the scenarios name.
    license: SPDX identifier, URL or text. source: address of coterie's source; by default the one in the
    metadata of its package, if any. overwrite: replace an earlier archive.
    """

    reports: bool = False
    events: bool = True
    data: bool = True
    license: str = UNLICENSED
    source: str | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class Packed:
    """A written archive. left_out: missing contents. warnings: changes that its authors should make.

    source: address of coterie's source, None if unknown. unrepeatable: why a run cannot be repeated, by its
    name.
    """

    path: Path
    files: FileList
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    source: str | None
    unrepeatable: Mapping[str, str]


@dataclass
class _Contents:
    """Contents of an archive while they are collected."""

    options: PackOptions
    source: str | None
    members: dict[str, Member] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    data_bytes: int = 0
    runs: list[PackedRun] = field(default_factory=list)
    actions: list[RunAction] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    question: str = ""

    @property
    def code(self) -> list[str]:
        """Files of the user's code."""
        return [name for name in self.members if name.endswith(".py")]

    def read(self, name: str) -> bytes:
        content = self.members[name]
        return content if isinstance(content, bytes) else content.read_bytes()


def pack(study: Path, out: Path | None = None, options: PackOptions | None = None) -> Packed:
    """Write an archive of a sweep's folder, a folder of runs, or one run. Raises UserError.

    Values contain no absolute path, and texts other than code contain no name of the machine or the user.
    `warnings` names the lines of the user's files that still contain paths, names or e-mail addresses.
    """
    require_packages("pack", "coterie pack", "rocrate")
    options = options or PackOptions()
    source = project_source() if options.source is None else require_source_url(options.source)
    study = Path(os.path.abspath(study))  # without ".."
    sweeps, runs, lacking = _find_runs(study)
    out = Path(f"{study.name}.zip") if out is None else out
    _require_free(out, options.overwrite)
    contents = _Contents(options, source, left_out=dict.fromkeys(lacking))
    loaded = [(path, load_checked(path)) for path in runs]
    for _, run in loaded:
        _add_data(contents, run)
    for path, run in loaded:
        _note_machine_folders(contents, path, run.provenance())
    anonymous = Anonymizer(contents.places, removable_names())
    questions = _questions(sweeps)
    for path, run in loaded:
        question = questions.get(path, first_comment(run.scenario_text()))
        _add_run(contents, path, run, question, anonymous)
    for folder in sweeps:
        _add_sweep(contents, folder, anonymous)
    for name in contents.members:
        if problem := name_problem(name):
            raise UserError(f"{one_line(name, 100)}: {problem}; rename the file")
    files = _add_descriptions(contents, study.name, out.name, sweeps, len(lacking))
    of_sweeps = [f"{RUNS}/{folder.name}" for folder in sweeps]
    warnings = identity_warnings(contents.members, author_names(), of_sweeps)
    try:
        write_archive(out, contents.members, files)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None
    reasons = {path.name: reason for path in runs if (reason := unrepeatable_reason(path)) is not None}
    return Packed(out, files, tuple(contents.left_out), tuple(warnings), source, reasons)


def _require_free(out: Path, overwrite: bool) -> None:
    """Raise UserError if a file exists, unless it is an archive that may be replaced."""
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not is_archive(out):
        kind = "a link" if out.is_symlink() else "a folder" if out.is_dir() else "not an archive of coterie"
        raise UserError(f"--out {out}: already exists, and is {kind}; name another file")
    if not overwrite:
        raise UserError(f"--out {out}: already exists; pass --overwrite to replace it, or name another file")


def _find_runs(study: Path) -> tuple[list[Path], list[Path], list[str]]:
    """Return the folders of sweeps and of runs in a study, and its missing runs. Raises UserError."""
    if (study / INDEX).is_file():
        sweeps = [study]
    elif (study / "summary.json").is_file():
        return [], [study], []
    elif study.is_dir():
        sweeps = [each for each in sorted(study.iterdir()) if (each / INDEX).is_file()]
    else:
        raise UserError(f"{study} is not a folder; name the folder of a sweep, of runs, or of one run")
    cells = [(folder, cell) for folder in sweeps for cell in SweepIndex.read(folder).cells]
    runs = [folder.parent / cell.directory for folder, cell in cells if cell.state == DONE and cell.directory]
    lacking = [f"{cell}: {cell.error or 'not run yet'}" for _, cell in cells if cell.state != DONE]
    if study not in sweeps:
        runs += [
            each
            for each in sorted(study.iterdir())
            if not each.name.startswith(".") and (each / "summary.json").is_file()
        ]
    if not runs:
        raise UserError(f"{study} has no finished run")
    return sweeps, list(dict.fromkeys(runs)), lacking


# --- data files ---------------------------------------------------------------------------------------------


def _add_data(contents: _Contents, run: RunDirectory) -> None:
    """Add the data files that a resolved scenario names by absolute paths.

    Only a file with the content that the run has read is added. Otherwise, results from a stranger could put
    any file of this machine into the archive.
    """
    made_by = run.provenance().get("made_by")
    read = set(made_by.values()) if isinstance(made_by, Mapping) else set()
    digests: dict[str, str] = {}
    for text in _texts(tomllib.loads(run.scenario_text())):
        if not os.path.isabs(text) or "\n" in text or text in contents.places:
            continue
        path, room = Path(text), DATA_BYTES - contents.data_bytes
        contents.places[text] = path.name
        if not os.path.exists(path):
            contents.left_out[f"data {path.name}: no such file"] = None
            continue
        files = _files_in(path, room if contents.options.data else -1)
        if files is not None:
            digests[path.name] = digest_of_file(path, digests.get(path.name, ""))
            if digests[path.name] not in read:
                contents.left_out[f"data {path.name}: its content has changed since the run"] = None
                continue
        if files is None:
            contents.left_out[f"data {path.name}: put it into the folder of --data-dir"] = None
            continue
        digest = sha256(b"".join(sha256(each.read_bytes()).digest() for each in files)).hexdigest()
        place = f"{DATA}/{digest[:16]}/{path.name}"
        contents.data[path.name], contents.places[text] = digest, f"../../{place}"
        contents.data_bytes += sum(each.stat().st_size for each in files)
        inside = [place if each == path else f"{place}/{each.relative_to(path).as_posix()}" for each in files]
        contents.members |= dict(zip(inside, files, strict=True))


def _files_in(path: Path, room: int) -> list[Path] | None:
    """Return a file, or the files of a folder; None if they are too many or take more than `room` bytes."""
    found: list[Path] = []
    for each in [path] if path.is_file() else path.rglob("*"):
        if each.is_file():
            found.append(each)
            room -= each.stat().st_size
        if room < 0 or len(found) > _FILES_MAX:
            return None
    return sorted(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _note_machine_folders(contents: _Contents, path: Path, provenance: Mapping[str, Any]) -> None:
    """Note folders of this machine, which texts may contain."""
    for place in (path.parent, Path.cwd(), Path.home(), PRODUCT, provenance.get("folder")):
        if place is not None and len(Path(place).parts) > 1:
            contents.places.setdefault(f"{place}/", "")


# --- runs and sweeps ----------------------------------------------------------------------------------------


def _questions(sweeps: list[Path]) -> dict[Path, str]:
    """Return the question of each run of a sweep: the first comment of the study when the sweep last ran.

    An author who has corrected this comment repeats the sweep, which keeps earlier runs with the old comment.
    """
    found: dict[Path, str] = {}
    for folder in sweeps:
        index = SweepIndex.read(folder)
        found |= {folder.parent / cell.directory: index.question for cell in index.cells if cell.directory}
    return found


def _add_run(
    contents: _Contents, path: Path, run: RunDirectory, question: str, anonymous: Anonymizer
) -> None:
    """Add a run's results, with this question as the comment of its scenario. Raises UserError."""
    folder, members = f"{RUNS}/{path.name}", contents.members
    scenario, provenance, summary = run.scenario_text(), run.provenance(), run.summary()
    settings = anonymous.value(tomllib.loads(scenario))
    comment = "".join(f"# {line}".rstrip() + "\n" for line in anonymous.text(question).splitlines())
    own: dict[str, Member] = {"scenario.toml": f"{comment}{tomli_w.dumps(settings)}".encode()}
    for name in ("provenance.json", "summary.json"):
        own[name] = _json(anonymous.value(_without_machine(InputFile("", path / name).json())))
    for name in [CELL, READS, *[f"{table}.parquet" for table in TABLES | SPECIAL_TABLES]]:
        if (path / name).is_file() and (contents.options.events or name not in _EVENTS):
            own[name] = run.file(name) if name == READS else path / name  # tables are checked already
    sums = {name: size_and_hash(own[name]) for name in sorted(own) if name != CELL}
    own[MANIFEST] = (json.dumps(sums, indent=1) + "\n").encode()
    for name in (REPORT, EXPLORE) if contents.options.reports else ():
        if (path / name).is_file():
            own[name] = anonymous.text((path / name).read_text(encoding="utf-8")).encode()
            if (script := path.parent / SCRIPT).is_file():  # which the reports of a sweep share
                members[f"{RUNS}/{SCRIPT}"] = script
    code = [each for mark in sorted(path.glob(f"*/{MARK}")) for each in _copied_code_files(mark)]
    own |= {each.relative_to(path).as_posix(): each for each in code}
    members |= {f"{folder}/{name}": content for name, content in own.items()}
    for key in ("seed", "name"):
        settings["run"].pop(key, None)
    alike = sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]
    contents.runs.append(PackedRun(directory=path.name, seed=summary["seed"], alike=alike))
    used = [f"{folder}/scenario.toml", *[f"{folder}/{each.relative_to(path).as_posix()}" for each in code]]
    start = str(provenance.get("started") or "")
    contents.actions.append(RunAction(folder, path.name, used, start, _end(start, summary["wall_seconds"])))
    contents.provenance = contents.provenance or provenance
    contents.seconds += summary["wall_seconds"] or 0.0
    contents.question = contents.question or anonymous.text(question)


def _copied_code_files(mark: Path) -> list[Path]:
    """Return the Python files in the folder that contains the file `mark`."""
    return [file for file in sorted(mark.parent.rglob("*.py")) if file.is_file() and not file.is_symlink()]


def _without_machine(value: Any) -> Any:
    """Remove the working folder of the command from a provenance, and the path of its program."""
    if isinstance(value, dict) and isinstance(command := value.get("command"), list) and command:
        value = {key: item for key, item in value.items() if key != "folder"}
        value["command"] = [Path(str(command[0])).name, *command[1:]]
    return value


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def _end(start: str, seconds: float | None) -> str:
    try:
        return (datetime.fromisoformat(start) + timedelta(seconds=round(seconds or 0))).isoformat()
    except ValueError:
        return start


def _add_sweep(contents: _Contents, folder: Path, anonymous: Anonymizer) -> None:
    """Add the index of a sweep, its study, and its comparison, but no earlier archive in its folder."""
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if not file.is_file() or file.is_symlink() or any(part.startswith(".") for part in inside.parts):
            continue
        if problem := name_problem(f"{RUNS}/{folder.name}/{inside.as_posix()}"):
            contents.left_out[f"{one_line(inside, 100)}: {problem}"] = None
            continue
        if is_archive(file):
            continue
        content: Member = file
        if file.name == INDEX and len(inside.parts) == 1:
            content = _json(anonymous.value(InputFile("", file).json()))
        elif file.suffix in _REWRITTEN:
            up = "../" * (len(inside.parts) - 1)
            text = anonymous.text(file.read_text(encoding="utf-8", errors="replace"))
            content = text.replace(f"../../{DATA}/", f"../../{up}{DATA}/").encode()
        contents.members[f"{RUNS}/{folder.name}/{inside.as_posix()}"] = content


def _add_descriptions(
    contents: _Contents, name: str, archive: str, sweeps: Sequence[Path], missing: int
) -> FileList:
    """Add the descriptions of the archive, and return the list of its files.

    missing: the number of planned runs without results.
    """
    facts: dict[str, Any] = dict(
        coterie=contents.provenance.get("coterie"),
        name=name,
        study=f"{RUNS}/{sweeps[0].name}" if len(sweeps) == 1 else None,
        runs=tuple(contents.runs),
        missing=missing,
        data=contents.data,
    )
    contents.members[LOCK] = locked_packages(map(contents.read, contents.code), contents.provenance).encode()
    listed = FileList.of({}, **facts)
    lacking, commit = tuple(contents.left_out), contents.provenance.get("commit")
    told = (contents.question, contents.code, contents.seconds, lacking, commit, contents.source)
    compared = any(Path(each).parts[2:3] == (COMPARISON,) for each in contents.members)
    contents.members[README] = readme(listed, archive, *told, compared=compared).encode()
    described = FileList.of(contents.members, **facts)
    contents.members[CRATE] = crate_metadata(
        described, contents.question or name, contents.options.license, contents.source, contents.actions
    )
    return FileList.of(contents.members, **facts)
