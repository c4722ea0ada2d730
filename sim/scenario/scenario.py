"""Scenario files: read, overridden, validated, and written again with everything resolved.

A scenario is TOML. Refused input raises UserError, whose lines name file, key, value and what is allowed.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import tomli_w
from pydantic import ValidationError

from actors.settings.base import SettingError, Settings
from protocols.framework.member import ProtocolSettings
from sim.errors import UserError, errors_about
from sim.learning.data import Data
from sim.learning.models import Model
from sim.scenario.checks import misfits, unmet
from sim.scenario.limits import limits
from sim.scenario.overrides import add, apply, fit_to, overlap
from sim.scenario.own_sections import section_of, users_of
from sim.scenario.places import put, replaced, value_at
from sim.scenario.protocol_loader import find_protocol
from sim.scenario.reading import default_name, find_scenario, first_comment, parse_toml, read_text
from sim.scenario.refusals import as_written, one_line, problems, refused, show
from sim.scenario.sections import Sections
from sim.scenario.sections.change import Change, changed_settings
from sim.scenario.sections.churn import Churn
from sim.scenario.sections.clients import Clients
from sim.scenario.sections.devices import Devices
from sim.scenario.sections.engine import EngineSection
from sim.scenario.sections.network import Network
from sim.scenario.sections.run import Run
from sim.scenario.sections.server import ServerSection
from sim.scenario.sections.supervision import Supervision
from sim.scenario.sections.sweep import Sweep
from sim.scenario.sections.training import Training
from sim.scenario.sources import Source, digest_of, sources_of
from sim.scenario.user_code import UserCode, absolute_name, find_file
from sim.world.churn_processes import ChurnProcess

if TYPE_CHECKING:
    from protocols.framework.learner import Learner

_PROBLEMS_SHOWN = 20
_SEED = "run.seed"
_SAMPLES = ("data.file", "data.test_file", "data.partition.path")
"""Files of samples, and of whose they are."""
_FILES = {"file", "test_file", "path"}
"""Keys that name files which a run reads."""
_Model = TypeVar("_Model", bound=Settings)


@dataclass(frozen=True)
class Protocol:
    """The protocol of a scenario: its name in the file, its class, and its validated settings."""

    name: str
    learner: "type[Learner]"
    settings: ProtocolSettings

    @property
    def label(self) -> str:
        """The name to show: that of the class, for one from a file or a package."""
        return self.name.rpartition(":")[2]

    @property
    def alone(self) -> bool:
        """Whether it is run as its own control, by clients that know of nobody."""
        return self.settings.alone

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
    engine: EngineSection
    supervision: Supervision
    change: tuple[Change, ...] = ()
    server: ServerSection | None = None
    users_code: tuple[UserCode, ...] = field(default=(), compare=False)
    """What other tables than the protocol's name of the user's own code."""
    overrides: tuple[str, ...] = field(default=(), compare=False)
    """What was stated beside the file, as given: ``"--unset section.key"`` of each key that was taken away,
    ``"section.key=value"`` of each ``--set``, then the seed."""
    sweep: Sweep | None = field(default=None, compare=False)
    """What `coterie sweep` runs of this file; no part of a single run."""
    notices: tuple[str, ...] = field(default=(), compare=False)
    """What was done to the file that nobody asked for in so many words; a sentence each."""

    @property
    def name(self) -> str:
        """Name in results."""
        assert self.run.name is not None  # filled in when the file is read
        return self.run.name


def load_scenario(
    path: Path | str,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    *,
    unset: Sequence[str] = (),
    more: Mapping[str, Any] = MappingProxyType({}),
    code: bool = True,
) -> Scenario:
    """Read and validate a scenario, by its path or by the name of a known one.

    overrides: ``"section.key=value"``, the value TOML where it can be read as such, else text:
    ``network.latency=20 ms`` needs no quotes. seed: instead of run.seed. unset: keys of the file that go
    before anything is overridden. more: contents that are added before that. Overriding protocol.name
    takes out what the file says for its own protocol alone; `Scenario.notices` says what that was. code:
    execute the Python of a protocol that is not one of ours; else it is refused. Raises UserError.
    """
    path = find_scenario(path)
    text = read_text(path)
    if seed is not None:
        overrides = [*overrides, f"{_SEED}={seed}"]
    raw = contents_of(path, text)
    add(raw, more)
    named = _table(raw, "protocol").get("name")
    _require_run(raw, path)
    with errors_about(path):
        keys = apply(raw, overrides, unset)
    notices, stated = [], dict.fromkeys(keys, "--set")
    if seed is not None:
        stated[_SEED] = "--seed"
        if keys.count(_SEED) > 1:
            notices.append(f"--seed {seed} is taken instead of what --set says of {_SEED}")
    sweep = _sweep(raw, path, stated)
    typed = _table(raw, "protocol").get("name")
    renamed = typed != named
    _fill_in(raw, path)
    users, sections = _sections(raw, path, stated, code)
    with errors_about(path):
        learner = find_protocol(sections.protocol.name, path.parent, code=code)
    if renamed and (gone := fit_to(learner, raw, stated)):
        users, sections = _sections(raw, path, stated, code)
        notices.append(f"left out, as {_left_out(gone, str(typed))}")
    options = {key: value for key, value in raw["protocol"].items() if key != "name"}
    settings = _validated(learner.Settings, options, path, stated, "protocol")
    with errors_about(path):
        needs = [*unmet(learner, settings, sections)]
    try:
        changed_settings(settings, sections.change)
    except SettingError as error:
        needs.append(error)
    except ValidationError as error:
        found = refused(error)
        raise _refusal(path, problems(learner.Settings, found, {}, ("change", "protocol")), stated) from None
    wrong = [*misfits(sections), *needs, *limits(sections, settings)]
    # One without a value is about what is missing, or about all of a section.
    if unfit := [misfit if misfit.value is None else as_written(raw, misfit) for misfit in wrong]:
        raise _refusal(path, unfit, stated)
    protocol = Protocol(sections.protocol.name, learner, settings)
    _ = protocol.sources  # read now: whoever edits them later changes neither what is run nor what is kept
    parts = dict(sections) | {"protocol": protocol, "users_code": users, "sweep": sweep}
    given = (*(f"--unset {key}" for key in unset), *overrides)
    return Scenario(question=first_comment(text), path=path, overrides=given, notices=tuple(notices), **parts)


def sweep_alone(
    path: Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()
) -> tuple[Path, Sweep] | None:
    """The scenario file and the sweep of a file that holds nothing but a sweep; None for a scenario.

    overrides, unset: as for `load_scenario`, of keys of the sweep. Raises UserError.
    """
    raw = contents_of(path)
    with errors_about(path):
        keys = apply(raw, overrides, unset)
    if "scenario" not in _table(raw, "sweep"):
        return None
    stated = dict.fromkeys(keys, "--set")
    sweep = _sweep(raw, path, stated)
    assert sweep is not None and sweep.scenario is not None
    if raw:
        problem = (
            f"its runs are of that scenario, but this file has {show(', '.join(raw))} beside the sweep; "
        )
        problem += "state what differs in sweep.set"
        raise _refusal(path, [SettingError("sweep.scenario", sweep.scenario, problem)], stated)
    return path.parent / sweep.scenario, sweep


def to_toml(scenario: Scenario, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """The scenario with every setting stated, defaults included; loads to an equal scenario.

    instead: what some keys are to say, such as the copy of the user's code that a table names.
    """
    comment = "".join(f"# {line}".rstrip() + "\n" for line in scenario.question.splitlines())
    contents = resolved(scenario)
    for key, value in instead.items():
        put(contents, key, value)
    return f"{comment}{tomli_w.dumps(contents)}"


def digest(scenario: Scenario) -> str:
    """Eight hexadecimal digits that change with any setting, the user's code, and their data files' content.

    They don't change with the comment, nor with the folders that these files lie in.
    """
    contents, protocol = resolved(scenario), scenario.protocol
    if protocol.file is not None:
        contents["protocol"]["name"] = f"{protocol.file.name}:{protocol.label}"
    for user in scenario.users_code:
        put(contents, user.key, user.within(""))
    for table in _tables(contents):
        for key in _FILES & table.keys():
            if isinstance(file := table[key], str) and os.path.isabs(file):
                table[key] = _content(Path(file))
    code = [protocol.sources, *[user.sources for user in scenario.users_code]]
    text = "\0".join([tomli_w.dumps(contents), *map(digest_of, code)])
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """All tables of a scenario, however deep."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _tables(inner)


def _content(path: Path) -> str:
    """A file's name and what is in it, of which results are; its path where it cannot be read."""
    if not os.path.isfile(path):
        return str(path)
    try:
        with path.open("rb") as file:
            return f"{path.name} {hashlib.file_digest(file, 'blake2b').hexdigest()}"
    except OSError:
        return str(path)


def contents_of(path: Path, text: str | None = None) -> dict[str, Any]:
    """The tables of a TOML file, unchecked, or of its text where that is known. UserError."""
    try:
        with errors_about(path):
            return parse_toml(read_text(path) if text is None else text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(one_line(f"not valid TOML: {error}"), path) from None


def _table(raw: dict[str, Any], key: str) -> dict[str, Any]:
    """A table of the file as far as it is one; what is wrong with it is said later, by the validation."""
    table = raw.get(key)
    return table if isinstance(table, dict) else {}


def _require_run(raw: dict[str, Any], path: Path) -> None:
    """Refuse a file that holds a sweep of another file's scenario."""
    if "scenario" in _table(raw, "sweep"):
        other = show(_table(raw, "sweep")["scenario"])
        raise UserError(f"has no run of its own, but a sweep of {other}: coterie sweep runs it", path)


def _sweep(raw: dict[str, Any], path: Path, stated: Mapping[str, str]) -> Sweep | None:
    """Take the table of a study out of the file."""
    table = raw.pop("sweep", None)
    if table is None:
        return None
    if not isinstance(table, dict):
        problem = f"must be a table with the keys {', '.join(Sweep.model_fields)}"
        raise _refusal(path, [SettingError("sweep", table, problem)], stated)
    return _validated(Sweep, table, path, stated, "sweep")


def _fill_in(raw: dict[str, Any], path: Path) -> None:
    """State what a file leaves to its place: its name, and the files that it means."""
    _table(raw, "run").setdefault("name", default_name(path))
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
    for place in _SAMPLES:
        if isinstance(file := value_at(raw, place), str):
            found = find_file(file, path.parent)
            if os.path.exists(found):  # else it is looked for in the data folder
                put(raw, place, str(found))


def _sections(
    raw: dict[str, Any], path: Path, stated: Mapping[str, str], code: bool
) -> tuple[tuple[UserCode, ...], Sections]:
    """What tables name of the user's own code, and all sections, those tables' among them."""
    with errors_about(path):
        users = [*users_of(raw, path.parent, code=code)]
        contents = raw
        # What lies inside of another such table goes first.
        for door, user in sorted(users, key=lambda item: -item[1].key.count(".")):
            place = user.key.removesuffix(f".{door.key}")
            table = value_at(contents, place)
            made = _validated(section_of(door, user), table, path, stated, *place.split("."))
            contents = replaced(contents, place, made)
    return tuple([user for _, user in users]), _validated(Sections, contents, path, stated)


def _left_out(gone: Iterable[str], protocol: str) -> str:
    """Why these keys mean nothing to a protocol: those of its own table, and those of servers."""
    settings = [key for key in gone if key.startswith("protocol.")]
    about_servers = [key for key in gone if key not in settings]
    reasons = [("no such keys", settings), ("no servers", about_servers)]
    why = [f"has {reason}: {', '.join(keys)}" for reason, keys in reasons if keys]
    return f'protocol.name = "{protocol}" {"; and ".join(why)}'


def _validated(
    model: type[_Model], contents: dict[str, Any], path: Path, stated: Mapping[str, str], *prefix: str
) -> _Model:
    try:
        return model.model_validate(contents)
    except ValidationError as error:
        found = refused(error)
        shown = problems(model, found[:_PROBLEMS_SHOWN], contents, prefix)
        raise _refusal(path, shown, stated, len(found) - _PROBLEMS_SHOWN) from None


def _refusal(
    path: Path, found: Iterable[SettingError], stated: Mapping[str, str], more: int = 0
) -> UserError:
    """One line for each problem: file, key, value, what is allowed."""
    lines = []
    for problem in found:
        value = "" if problem.value is None else f" = {show(problem.value)}"
        options = [option for key, option in stated.items() if overlap(key, problem.key)]
        origin = f" (from {options[-1]})" if options else ""
        lines.append(one_line(f"{problem.key}{value}{origin}: {problem.problem}"))
    if more > 0:
        lines.append(f"and {more:,} more problems")
    return UserError("\n".join(lines), path)


def resolved(scenario: Scenario) -> dict[str, Any]:
    """The contents of a file that states everything; quantities with units, None left out."""
    contents: dict[str, Any] = {}
    for section in Sections.model_fields:
        part = getattr(scenario, section)
        if isinstance(part, Protocol):
            contents[section] = {"name": part.name} | _dump(part.settings)
        elif part is not None:
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
