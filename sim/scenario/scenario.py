"""Scenario files: read, overridden, and validated.

A scenario is TOML. Refused input raises UserError, whose lines name file, key, value and what is allowed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import tomli_w
from pydantic import ValidationError

from actors.settings.base import SettingError, Settings
from protocols.framework.requirements import ProtocolSettings
from sim.errors import UserError, errors_about
from sim.files.named_files import files_beside
from sim.learning.data.kinds import Data
from sim.learning.models.kinds import Model
from sim.plugins.loader import Plugin, absolute_name
from sim.scenario.cross_checks import misfits, unmet
from sim.scenario.key_path import put, value_at
from sim.scenario.overrides import add, apply, fit_to, overlap
from sim.scenario.plugin_tables import with_plugins
from sim.scenario.protocol_errors import blaming, objective_of, require_statable
from sim.scenario.protocol_lookup import given_protocol, load_protocol
from sim.scenario.reading import (
    contents_of,
    default_name,
    find_scenario,
    first_comment,
    parse_toml,
    read_text,
)
from sim.scenario.refusals import as_written, line_of, problems, refused, show
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
from sim.world.churn.processes import ChurnProcess

if TYPE_CHECKING:
    from protocols.framework.client import Client
    from protocols.framework.objectives import Objective

_PROBLEMS_SHOWN = 20  # of a file that may be wrong altogether
_SEED = "run.seed"
_Model = TypeVar("_Model", bound=Settings)


@dataclass(frozen=True)
class Protocol:
    """The protocol of a scenario: its name in the file, its class, and its validated settings.

    objective: what its clients minimise, if that is not the loss of the data.
    """

    name: str
    method: "type[Client]"
    settings: ProtocolSettings
    objective: "Objective | None" = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """The name to show: that of the class, for one from a file or a package."""
        return self.name.rpartition(":")[2]

    @property
    def alone(self) -> bool:
        """Whether each client runs without peers, as a local baseline."""
        return self.settings.alone


@dataclass(frozen=True)
class Scenario:
    """A validated scenario. Two are equal if every setting is: where they came from makes no difference."""

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
    question: str = ""
    """The file's first comment: which question it answers, and what to expect."""
    path: Path | None = field(default=None, compare=False)
    plugins: tuple[Plugin, ...] = field(default=(), compare=False)
    """The user's code that it names: the protocol, if it is one's own, and what other tables name."""
    overrides: tuple[str, ...] = field(default=(), compare=False)
    """Changes stated beside the file, as given: ``"--unset section.key"`` of each key that was taken away,
    ``"section.key=value"`` of each ``--set``, then the seed."""
    sweep: Sweep | None = field(default=None, compare=False)
    """What `coterie sweep` runs of this file; no part of a single run."""
    notices: tuple[str, ...] = field(default=(), compare=False)
    """Changes to the file that were not asked for explicitly; a sentence each."""

    @property
    def name(self) -> str:
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
    method: "type[Client] | None" = None,
) -> Scenario:
    """Read and validate a scenario, by its path or by the name of a known one.

    overrides: ``"section.key=value"``, the value TOML where it can be read as such, else text:
    ``network.latency=20 ms`` needs no quotes. seed: instead of run.seed. unset: keys of the file that go
    before anything is overridden. more: contents that are added before that. Overriding protocol.name
    takes out what the file says for its own protocol alone; `Scenario.notices` says what that was. code:
    execute the user's Python that it names; else it is refused. method: a class in place of the protocol
    that the file names. Raises UserError.
    """
    path = find_scenario(path)
    with errors_about(path), files_beside(path):
        text = read_text(path)
        raw = parse_toml(text)
        add(raw, more)
        read = _scenario(raw, overrides, seed, unset, code, method)
        return replace(_named(read, path), path=path, question=first_comment(text))


def load_contents(
    contents: Mapping[str, Any],
    overrides: Sequence[str] = (),
    seed: int | None = None,
    *,
    unset: Sequence[str] = (),
    method: "type[Client] | None" = None,
) -> Scenario:
    """As `load_scenario`, of what would stand in a file. UserError."""
    try:
        raw = parse_toml(tomli_w.dumps(contents))
    except (TypeError, ValueError) as error:
        raise UserError(f"the scenario holds what no file could: {error}") from None
    path = Path.cwd() / "scenario.toml"
    with files_beside(path):
        return replace(_named(_scenario(raw, overrides, seed, unset, True, method), path), path=path)


def _named(scenario: Scenario, path: Path) -> Scenario:
    """The scenario with the name that its file gives it where it states none."""
    name = scenario.run.name or default_name(path)
    return replace(scenario, run=scenario.run.model_copy(update={"name": name}))


def _scenario(
    raw: dict[str, Any],
    overrides: Sequence[str],
    seed: int | None,
    unset: Sequence[str],
    code: bool,
    method: "type[Client] | None",
) -> Scenario:
    """The scenario of the contents of a file."""
    if seed is not None:
        overrides = [*overrides, f"{_SEED}={seed}"]
    if (other := value_at(raw, "sweep.scenario")) is not None:
        raise UserError(f"has no run of its own, but a sweep of {show(other)}: coterie sweep runs it")
    named, own = value_at(raw, "protocol.name"), None
    if method is not None:
        own = given_protocol(method)
        put(raw, "protocol.name", own.name)
    parts = _parts(_File(raw, overrides, unset), named, seed, code, own)
    if own is not None and own.file is not None and not own.file.is_file():
        said = f"{own.label} is written in a notebook: results keep its cell, and may not be run again by it"
        parts["notices"] = (*parts["notices"], said)
    given = (*(f"--unset {key}" for key in unset), *overrides)
    return Scenario(overrides=given, **parts)


def sweep_alone(
    path: Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()
) -> tuple[Path, Sweep] | None:
    """The scenario file and the sweep of a file that holds nothing but a sweep; None for a scenario.

    overrides, unset: as for `load_scenario`, of keys of the sweep. Raises UserError.
    """
    raw = contents_of(path)
    with errors_about(path):
        file = _File(raw, overrides, unset)
        if value_at(raw, "sweep.scenario") is None:
            return None
        sweep = file.sweep()
        assert sweep is not None and sweep.scenario is not None
        if raw:
            problem = (
                f"its runs are of that scenario, but this file has {show(', '.join(raw))} beside the sweep; "
                "state what differs in sweep.set"
            )
            raise file.refusal([SettingError("sweep.scenario", sweep.scenario, problem)])
        return path.parent / sweep.scenario, sweep


class _File:
    """The contents of a file, and which option stated those of its keys that an option did."""

    def __init__(self, raw: dict[str, Any], overrides: Iterable[str], unset: Iterable[str]) -> None:
        """Changes `raw` as the options say. UserError."""
        self.raw = raw
        self.keys = apply(raw, overrides, unset)
        self.stated = dict.fromkeys(self.keys, "--set")

    def sweep(self) -> Sweep | None:
        """Take the table of a study out of the file. UserError."""
        table = self.raw.pop("sweep", None)
        if table is None:
            return None
        if not isinstance(table, dict):
            problem = f"must be a table with the keys {', '.join(Sweep.model_fields)}"
            raise self.refusal([SettingError("sweep", table, problem)])
        return self.validated(Sweep, table, "sweep")

    def require_fitting(self, sections: Sections, method: "type[Client]", settings: ProtocolSettings) -> None:
        """Refuse sections that do not fit each other, or the protocol. UserError."""
        wrong = [*misfits(sections), *unmet(method, settings, sections)]
        try:
            changed_settings(settings, sections.change)
        except SettingError as error:
            wrong.append(error)
        except ValidationError as error:
            raise self._invalid(method.Settings, error, {}, "change", "protocol") from None
        # One without a value is about what is missing, or about all of a section.
        if wrong := [misfit if misfit.value is None else as_written(self.raw, misfit) for misfit in wrong]:
            raise self.refusal(wrong)

    def validated(self, model: type[_Model], contents: dict[str, Any], *prefix: str) -> _Model:
        """A section, or all, of the file. UserError."""
        try:
            return model.model_validate(contents)
        except ValidationError as error:
            raise self._invalid(model, error, contents, *prefix) from None

    def _invalid(
        self, model: type[Settings], error: ValidationError, contents: Mapping[str, Any], *prefix: str
    ) -> UserError:
        """The error for what was refused in a section's contents; of very many problems the first ones."""
        found = refused(error)
        explained = list(problems(model, found[: 2 * _PROBLEMS_SHOWN], contents, prefix))
        return self.refusal(explained, max(0, len(found) - 2 * _PROBLEMS_SHOWN))

    def refusal(self, found: Sequence[SettingError], untold: int = 0) -> UserError:
        """A line for each problem: key, value, what is allowed. untold: how many there are beside `found`."""
        lines = []
        for problem in found[:_PROBLEMS_SHOWN]:
            options = [option for key, option in self.stated.items() if overlap(key, problem.key)]
            lines.append(line_of(problem, f" (from {options[-1]})" if options else ""))
        more = len(found) - len(lines) + untold
        return UserError("\n".join(lines + ([f"and {more:,} more problems"] if more else [])))


def _parts(file: _File, named: Any, seed: int | None, code: bool, given: Plugin | None) -> dict[str, Any]:
    """The fields of a `Scenario`, made of the contents of its file.

    named: the protocol, without options. given: the one that was given as a class.
    """
    raw, notices = file.raw, []
    if seed is not None:
        file.stated[_SEED] = "--seed"
        if file.keys.count(_SEED) > 1:
            notices.append(f"--seed {seed} is taken instead of what --set says of {_SEED}")
    sweep = file.sweep()
    typed = value_at(raw, "protocol.name")
    if isinstance(typed, str):
        put(raw, "protocol.name", absolute_name(typed))
    plugins, contents = with_plugins(raw, file.validated, code=code)
    sections = file.validated(Sections, contents)
    name = sections.protocol.name
    own = given if given and given.name == name else load_protocol(name, code=code)
    method: type[Client] = own.found
    if typed != named and (gone := fit_to(method, raw, sections.network, file.stated)):
        plugins, contents = with_plugins(raw, file.validated, code=code)
        sections = file.validated(Sections, contents)
        notices.append(f"left out, as {_left_out(gone, str(typed))}")
    stated_of = {key: value for key, value in raw["protocol"].items() if key != "name"}
    with blaming(method, "Settings"):
        settings = file.validated(method.Settings, stated_of, "protocol")
    require_statable(method, settings)
    file.require_fitting(sections, method, settings)
    protocol = Protocol(sections.protocol.name, method, settings, objective_of(method, settings))
    plugins = (own, *plugins) if own.sources is not None else plugins
    for hidden in dict.fromkeys([name for each in plugins if each.sources for name in each.sources.hidden()]):
        package = hidden.partition("/")[0].removesuffix(".py")
        notices.append(f"{hidden} beside the method is not what `import {package}` finds, which is coterie's")
    more = {"protocol": protocol, "plugins": plugins, "sweep": sweep, "notices": tuple(notices)}
    return dict(sections) | more


def _left_out(gone: Iterable[str], protocol: str) -> str:
    """Why keys were left out for a protocol: it has no such settings, or no servers."""
    settings = [key for key in gone if key.startswith("protocol.")]
    about_servers = [key for key in gone if key not in settings]
    reasons = [("no such keys", settings), ("no servers", about_servers)]
    why = [f"has {reason}: {', '.join(keys)}" for reason, keys in reasons if keys]
    return f'protocol.name = "{protocol}" {"; and ".join(why)}'
