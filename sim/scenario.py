"""Scenario files: read, overridden, validated, and written again with everything resolved.

A scenario is TOML. Refused input raises UserError, whose lines name file, key, value and what is allowed.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from pydantic import ValidationError

from protocols.settings import SettingError, Settings
from sim.errors import UserError
from sim.explain import as_written, keys_of, problems, show
from sim.protocol_loader import absolute_name, find_file, find_protocol
from sim.scenario_checks import misfits
from sim.settings.churn import Churn, ChurnProcess
from sim.settings.data import Data, Model
from sim.settings.devices import Devices
from sim.settings.network import Network
from sim.settings.sections import Clients, Engine, ProtocolChoice, Run, Sections, Supervision, Training
from sim.sources import Source, digest_of, sources_of

if TYPE_CHECKING:
    from protocols.learner import Learner


@dataclass(frozen=True)
class Protocol:
    """The protocol of a scenario: its name in the file, its class, and its validated settings."""

    name: str
    learner: "type[Learner]"
    settings: Settings

    @property
    def label(self) -> str:
        """The name to show: that of the class, for one from a file or a package."""
        return self.name.rpartition(":")[2]

    @property
    def file(self) -> Path | None:
        """The file that the name names; None for a protocol of ours or of a package."""
        place = self.name.rpartition(":")[0]
        return Path(place) if place.endswith(".py") else None

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The files that it consists of, as they are when this is first asked for."""
        return sources_of(self.learner, self.file)


@dataclass(frozen=True)
class Scenario:
    """A validated scenario. Two are equal if every setting is: where they came from makes no difference."""

    question: str
    """The file's first comment: which question it answers, and what to expect."""
    path: Path | None = field(compare=False)
    run: Run
    clients: Clients
    data: Data
    model: Model
    training: Training
    protocol: Protocol
    network: Network
    devices: Devices
    churn: tuple[Churn, ...]
    churn_process: tuple[ChurnProcess, ...]
    engine: Engine
    supervision: Supervision
    overrides: tuple[str, ...] = field(default=(), compare=False)
    """What was stated beside the file, as given: ``"section.key=value"`` of each ``--set``, then the seed."""

    @property
    def name(self) -> str:
        """Name in results."""
        assert self.run.name is not None  # filled in when the file is read
        return self.run.name


def load_scenario(path: Path | str, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """Read and validate a file. `overrides` are ``"section.key=value"``; `seed` replaces run.seed.

    An override's value is TOML where it can be read as such, else text: ``network.latency=20 ms`` needs no
    quotes. Overriding protocol.name drops those settings of the file's protocol that the new one lacks.
    Raises UserError.
    """
    path = Path(path)
    text = _read(path)
    if seed is not None:
        overrides = [*overrides, f"run.seed={seed}"]
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    named = _table(raw, "protocol").get("name")
    stated = [_override(raw, override) for override in overrides]
    renamed = "protocol.name" in stated and _table(raw, "protocol").get("name") != named
    _fill_in(raw, path)
    try:
        sections = Sections.model_validate(raw)
    except ValidationError as error:
        raise _refusal(path, problems(Sections, error, raw), stated) from None
    try:
        protocol = _protocol(sections.protocol, path.parent, stated if renamed else None)
    except ValidationError as error:
        learner = find_protocol(sections.protocol.name, path.parent)
        found = problems(learner.Settings, error, raw["protocol"], ("protocol",))
        raise _refusal(path, found, stated) from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    # One without a value is about what is missing, or about all of a section.
    if unfit := [misfit if misfit.value is None else as_written(raw, misfit) for misfit in misfits(sections)]:
        raise _refusal(path, unfit, stated)
    settings = {**dict(sections), "protocol": protocol}
    return Scenario(question=_question(text), path=path, overrides=tuple(overrides), **settings)


def to_toml(scenario: Scenario) -> str:
    """The scenario with every setting stated, defaults included; loads to an equal scenario."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in scenario.question.splitlines())
    return f"{comment}{tomli_w.dumps(_resolved(scenario))}"


def digest(scenario: Scenario) -> str:
    """Eight hexadecimal digits that change with any setting, and with the protocol's source.

    They don't change with the comment, nor with the folder that the protocol's file lies in.
    """
    contents, protocol = _resolved(scenario), scenario.protocol
    if protocol.file is not None:
        contents["protocol"]["name"] = f"{protocol.file.name}:{protocol.label}"
    text = f"{tomli_w.dumps(contents)}\0{digest_of(protocol.sources)}"
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = sorted(path.parent.glob("*.toml"))
        there = f"; there is {', '.join(map(str, beside))}" if beside else ""
        raise UserError(f"{path}: no such scenario file{there}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def first_comment(path: Path) -> str:
    """The question that a scenario file answers, as its first comment says, without the comment signs."""
    return _question(_read(path))


def _question(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def _table(raw: dict[str, Any], key: str) -> dict[str, Any]:
    """A table of the file as far as it is one; what is wrong with it is said later, by the validation."""
    table = raw.get(key)
    return table if isinstance(table, dict) else {}


def _fill_in(raw: dict[str, Any], path: Path) -> None:
    """State what a file leaves to its place: its name, and the files that it means."""
    _table(raw, "run").setdefault("name", path.stem)
    protocol, topology = _table(raw, "protocol"), _table(_table(raw, "clients"), "topology")
    if isinstance(protocol.get("name"), str):
        protocol["name"] = absolute_name(protocol["name"], path.parent)
    network = _table(raw, "network")
    classes = network.get("class")
    connections = [network, *(classes if isinstance(classes, list) else ())]
    measured = _table(_table(raw, "devices"), "measured")
    latencies = [_table(each, "latency") for each in connections if isinstance(each, dict)]
    for table in (topology, measured, *latencies):
        if isinstance(table.get("file"), str):
            table["file"] = str(find_file(table["file"], path.parent))


def _protocol(choice: ProtocolChoice, folder: Path, stated: Iterable[str] | None) -> Protocol:
    """The class and its settings; if `stated` is given, only those overridden keys must be known to it."""
    learner = find_protocol(choice.name, folder)
    options = dict(choice.model_extra or {})
    if stated is not None:
        kept = {key.split(".")[1] for key in stated if key.startswith("protocol.")} | set(
            keys_of([learner.Settings])
        )
        options = {key: value for key, value in options.items() if key in kept}
    return Protocol(choice.name, learner, learner.Settings.model_validate(options))


def _override(raw: dict[str, Any], override: str) -> str:
    """Apply ``a.b=c`` to the file's contents; returns the key."""
    key, equals, text = override.partition("=")
    key = key.strip()
    *parents, last = key.split(".")
    if not equals or not all((*parents, last)):
        raise UserError(f'--set {override}: must be section.key=value, such as --set run.duration="5 min"')
    table: Any = raw
    for depth, part in enumerate(parents):
        table = _step(table, part, override, ".".join(parents[:depth]))
    if isinstance(table, list):
        table[_index(table, last, override, ".".join(parents))] = _value(text)
    elif isinstance(table, dict):
        table[last] = _value(text)
    else:
        raise UserError(f"--set {override}: {'.'.join(parents)} is {show(table)}, which has no keys")
    return key


def _step(table: Any, part: str, override: str, above: str) -> Any:
    if isinstance(table, list):
        return table[_index(table, part, override, above)]
    if isinstance(table, dict):
        return table.setdefault(part, {})
    raise UserError(f"--set {override}: {above} is {show(table)}, which has no keys")


def _index(items: list[Any], part: str, override: str, above: str) -> int:
    if not (part.isdecimal() and int(part) < len(items)):
        raise UserError(
            f"--set {override}: {above} is a list; after it comes a number from 0 to {len(items) - 1}"
        )
    return int(part)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _refusal(path: Path, found: Iterable[SettingError], stated: Sequence[str]) -> UserError:
    """One line for each problem: file, key, value, what is allowed."""
    lines = []
    for problem in found:
        value = "" if problem.value is None else f" = {show(problem.value)}"
        origin = " (from --set)" if any(_overlap(key, problem.key) for key in stated) else ""
        lines.append(f"{path}: {problem.key}{value}{origin}: {problem.problem}")
    return UserError("\n".join(lines))


def _overlap(first: str, second: str) -> bool:
    """Whether one key is the other or lies in its table."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def _resolved(scenario: Scenario) -> dict[str, Any]:
    """The contents of a file that states everything; quantities with units, None left out."""
    contents: dict[str, Any] = {}
    for section in Sections.model_fields:
        part = getattr(scenario, section)
        if isinstance(part, Protocol):
            contents[section] = {"name": part.name} | _dump(part.settings)
        else:
            contents[section] = [_dump(item) for item in part] if isinstance(part, tuple) else _dump(part)
    return {section: part for section, part in contents.items() if part != []}


def _dump(settings: Settings) -> dict[str, Any]:
    return _without_none(settings.model_dump(mode="json", by_alias=True))


def _without_none(value: Any) -> Any:
    # TOML has no null. Pydantic's exclude_none would also leave out the None that is written "unlimited".
    if isinstance(value, dict):
        kind_first = sorted(value.items(), key=lambda item: item[0] not in ("kind", "name"))
        return {key: _without_none(item) for key, item in kind_first if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
