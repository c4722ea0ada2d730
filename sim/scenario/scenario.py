"""Loading of scenario files: reading, overriding, and validating.

A scenario is a TOML file. Invalid input raises UserError, with file, key, value and allowed values.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import tomli_w
from pydantic import ValidationError

from actors.settings.base import SettingError, Settings
from protocols.framework.requirements import ProtocolSettings
from sim.errors import UserError, naming_file_in_errors
from sim.files.named_files import resolving_file_names
from sim.learning.data.kinds import Data
from sim.learning.models.kinds import Model
from sim.learning.models.model import ModelSection
from sim.plugins.loader import Plugin, absolute_name
from sim.scenario.cross_checks import section_contradictions, unmet_requirements
from sim.scenario.key_path import set_value_at, value_at
from sim.scenario.overrides import apply, merge_contents, overlap, remove_unused_keys
from sim.scenario.plugin_tables import merge_user_tables
from sim.scenario.protocol_errors import naming_users_line, protocol_objective, require_statable
from sim.scenario.protocol_lookup import given_protocol, load_protocol
from sim.scenario.reading import (
    default_name,
    find_scenario,
    first_comment,
    parse_toml,
    read_text,
    similar_scenario_hint,
    toml_tables,
)
from sim.scenario.refusals import error_line, errors_in_file, show, unique_errors, with_key_as_in_file
from sim.scenario.sections import Sections
from sim.scenario.sections.change import Change, changed_settings
from sim.scenario.sections.churn import Churn
from sim.scenario.sections.clients import Clients
from sim.scenario.sections.devices import Devices
from sim.scenario.sections.energy import EnergySection
from sim.scenario.sections.engine import EngineSection
from sim.scenario.sections.model_group import ModelGroup
from sim.scenario.sections.network import Network
from sim.scenario.sections.run import Run
from sim.scenario.sections.server import ServerSection
from sim.scenario.sections.supervision import Supervision
from sim.scenario.sections.sweep import Sweep
from sim.scenario.sections.training import Training, overridden_settings
from sim.scenario.sections.tuned import Tuned
from sim.scenario.shorter import fit_to_duration
from sim.world.churn.processes import ChurnProcess

if TYPE_CHECKING:
    from protocols.framework.client import Client
    from protocols.framework.objectives import Objective

_PROBLEMS_SHOWN = 20  # a file may have very many
_SEED = "run.seed"
_Model = TypeVar("_Model", bound=Settings)


@dataclass(frozen=True)
class Protocol:
    """The protocol of a scenario: name in the file, class, and validated settings.

    objective: the objective that its clients minimize, if that is not the loss of the data.
    """

    name: str
    method: "type[Client]"
    settings: ProtocolSettings
    objective: "Objective | None" = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """Name for display: for a protocol from a file or a package, the name of the class."""
        return self.name.rpartition(":")[2]

    @property
    def alone(self) -> bool:
        """True if each client runs without peers, as a local baseline."""
        return self.settings.alone


@dataclass(frozen=True)
class Scenario:
    """A validated scenario. Two scenarios are equal if their settings and questions are."""

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
    energy: EnergySection | None = None
    model_group: tuple[ModelGroup, ...] = ()
    tuned: Tuned | None = None
    question: str = ""
    """First comment of the file: the question that it answers, and the expected result."""
    path: Path | None = field(default=None, compare=False)
    plugins: tuple[Plugin, ...] = field(default=(), compare=False)
    """The user's code that the scenario names: its protocol, if that is the user's, and code in tables."""
    overrides: tuple[str, ...] = field(default=(), compare=False)
    """Changes by options, as stated: ``"--unset section.key"`` for each removed key, ``"section.key=value"``
    for each ``--set``, then the seed."""
    sweep: Sweep | None = field(default=None, compare=False)
    """Runs of this file for `coterie sweep`; not part of a single run."""
    notices: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about implicit changes to the file."""

    @property
    def models(self) -> tuple[ModelSection, ...]:
        """Models of the groups of clients: the model of `[model]`, then the models of `[[model_group]]`."""
        return (self.model, *[group.model for group in self.model_group])

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
    """Read and validate a scenario, given by its path or by a name that `find_scenario` knows.

    overrides: ``"section.key=value"``, with a value in TOML if it parses, else text:
    ``network.latency=20 ms`` needs no quotes. seed: replaces run.seed. more: contents to add to the file's
    contents first. unset: keys to remove after that, before any override. Overriding protocol.name removes
    the keys that only the file's protocol uses, and `Scenario.notices` lists them. code: execute the user's
    code that the scenario names; False rejects a scenario with user code. method: a class that replaces the
    file's protocol. Raises UserError.
    """
    path = find_scenario(path)
    with naming_file_in_errors(path), resolving_file_names(path):
        text = read_text(path)
        raw = parse_toml(text)
        merge_contents(raw, more)
        read = _scenario(raw, overrides, seed, unset, code, method)
        return replace(_named_after_file(read, path), path=path, question=first_comment(text))


def load_contents(
    contents: Mapping[str, Any],
    overrides: Sequence[str] = (),
    seed: int | None = None,
    *,
    unset: Sequence[str] = (),
    code: bool = True,
    method: "type[Client] | None" = None,
) -> Scenario:
    """Validate the contents of a scenario file, with options as in `load_scenario`. Raises UserError."""
    try:
        raw = parse_toml(tomli_w.dumps(contents))
    except (TypeError, ValueError) as error:
        raise UserError(f"the scenario contains a value that TOML cannot store: {error}") from None
    path = Path.cwd() / "scenario.toml"
    with resolving_file_names(path):
        return replace(
            _named_after_file(_scenario(raw, overrides, seed, unset, code, method), path), path=path
        )


def _named_after_file(scenario: Scenario, path: Path) -> Scenario:
    """Return the scenario, named after its file if it states no name."""
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
    """Return the scenario of the contents of a file."""
    if seed is not None:
        overrides = [*overrides, f"{_SEED}={seed}"]
    if (other := value_at(raw, "sweep.scenario")) is not None:
        raise UserError(f"is a sweep of {show(other)}: run it with coterie sweep")
    named, users = value_at(raw, "protocol.name"), None
    if method is not None:
        users = given_protocol(method)
        set_value_at(raw, "protocol.name", users.name)
    parts = _scenario_fields(_File(raw, overrides, unset), named, seed, code, users)
    if users is not None and users.file is not None and not users.file.is_file():
        notice = f"{users.label} is not defined in a file: its source in the results may not run on its own"
        parts["notices"] = (*parts["notices"], notice)
    given = (*(f"--unset {key}" for key in unset), *overrides)
    return Scenario(overrides=given, **parts)


def sweep_alone(
    path: Path, overrides: Sequence[str] = (), unset: Sequence[str] = ()
) -> tuple[Path, Sweep] | None:
    """Return the scenario file and the sweep of a file that contains only a sweep; None for a scenario.

    overrides, unset: changes to the sweep, as for `load_scenario`. Raises UserError.
    """
    raw = toml_tables(path)
    with naming_file_in_errors(path):
        file = _File(raw, overrides, unset)
        if value_at(raw, "sweep.scenario") is None:
            if raw.keys() == {"sweep"}:
                problem = "is missing: a file with only a [sweep] names the scenario file of its runs"
                raise UserError(f"sweep.scenario: {problem}")
            return None
        sweep = file.sweep()
        assert sweep is not None and sweep.scenario is not None
        if raw:
            problem = (
                f"is the scenario of the runs, but this file also has {show(', '.join(raw))}; put "
                "changes to the scenario into sweep.set"
            )
            raise file.refusal([SettingError("sweep.scenario", sweep.scenario, problem)])
        of_runs = path.parent / sweep.scenario
        if not os.path.lexists(of_runs):
            problem = f"no such scenario file; {similar_scenario_hint(of_runs)}"
            raise file.refusal([SettingError("sweep.scenario", sweep.scenario, problem)])
        return of_runs, sweep


class _File:
    """Contents of a file, and the option that stated a key, for keys from options."""

    def __init__(self, raw: dict[str, Any], overrides: Iterable[str], unset: Iterable[str]) -> None:
        """Apply the options to `raw`. Raises UserError."""
        self.raw = raw
        self.keys = apply(raw, overrides, unset)
        self.stated = dict.fromkeys(self.keys, "--set")
        self.notices = fit_to_duration(raw, self.stated)
        """Lines about parts of the file that a shorter run leaves out."""

    def sweep(self) -> Sweep | None:
        """Remove the table of a study from the file, and return it. Raises UserError."""
        table = self.raw.pop("sweep", None)
        if table is None:
            return None
        if not isinstance(table, dict):
            problem = f"must be a table with the keys {', '.join(Sweep.model_fields)}"
            raise self.refusal([SettingError("sweep", table, problem)])
        return self.validated(Sweep, table, "sweep")

    def require_fitting(self, sections: Sections, method: "type[Client]", settings: ProtocolSettings) -> None:
        """Reject sections that do not fit each other, or the protocol. Raises UserError."""
        wrong = [*section_contradictions(sections), *unmet_requirements(method, settings, sections)]
        try:
            changed_settings(settings, sections.change)
            overridden_settings(settings, dict(enumerate(sections.training.override)))
        except SettingError as error:
            wrong.append(error)
        except ValidationError as error:
            raise self._invalid(method.Settings, error, {}, "change", "protocol") from None
        # An error without a value is about a missing key, or about a whole section.
        if wrong := [
            misfit if misfit.value is None else with_key_as_in_file(self.raw, misfit) for misfit in wrong
        ]:
            raise self.refusal(wrong)

    def validated(self, model: type[_Model], contents: dict[str, Any], *prefix: str) -> _Model:
        """Validate a section, or all sections, of the file. Raises UserError."""
        try:
            return model.model_validate(contents)
        except ValidationError as error:
            raise self._invalid(model, error, contents, *prefix) from None

    def _invalid(
        self, model: type[Settings], error: ValidationError, contents: Mapping[str, Any], *prefix: str
    ) -> UserError:
        """Return the error for invalid contents of a section, with a limited number of problems."""
        found = unique_errors(error)
        explained = list(errors_in_file(model, found[: 2 * _PROBLEMS_SHOWN], contents, prefix))
        return self.refusal(explained, max(0, len(found) - 2 * _PROBLEMS_SHOWN))

    def refusal(self, found: Sequence[SettingError], omitted: int = 0) -> UserError:
        """Return an error with a line for each problem. omitted: the number of further problems."""
        lines = []
        for problem in found[:_PROBLEMS_SHOWN]:
            options = [option for key, option in self.stated.items() if overlap(key, problem.key)]
            lines.append(error_line(problem, f" (from {options[-1]})" if options else ""))
        more = len(found) - len(lines) + omitted
        return UserError(
            "\n".join(lines + ([f"and {more:,} more problem{'s' * (more > 1)}"] if more else []))
        )


def _scenario_fields(
    file: _File, named: Any, seed: int | None, code: bool, given: Plugin | None
) -> dict[str, Any]:
    """Return the fields of a `Scenario`, from the contents of its file.

    named: the protocol's name before any option. given: the protocol that was passed as a class.
    """
    raw, notices = file.raw, list(file.notices)
    if seed is not None:
        file.stated[_SEED] = "--seed"
        if file.keys.count(_SEED) > 1:
            notices.append(f"--seed {seed} overrides {_SEED} from --set")
    sweep = file.sweep()
    typed = value_at(raw, "protocol.name")
    if isinstance(typed, str):
        set_value_at(raw, "protocol.name", absolute_name(typed))
    plugins, contents = merge_user_tables(raw, file.validated, code=code)
    sections = file.validated(Sections, contents)
    name = sections.protocol.name
    chosen = given if given and given.name == name else load_protocol(name, code=code)
    method: type[Client] = chosen.found
    if typed != named and (removed := remove_unused_keys(method, raw, sections.network, file.stated)):
        plugins, contents = merge_user_tables(raw, file.validated, code=code)
        sections = file.validated(Sections, contents)
        notices.append(f"removed, as {_removal_reasons(removed, str(typed))}")
    stated_of = {key: value for key, value in raw["protocol"].items() if key != "name"}
    with naming_users_line(method, "Settings"):
        settings = file.validated(method.Settings, stated_of, "protocol")
    require_statable(method, settings)
    file.require_fitting(sections, method, settings)
    protocol = Protocol(sections.protocol.name, method, settings, protocol_objective(method, settings))
    plugins = (chosen, *plugins) if chosen.sources is not None else plugins
    for hidden in dict.fromkeys([name for each in plugins if each.sources for name in each.sources.hidden()]):
        package = hidden.partition("/")[0].removesuffix(".py")
        notices.append(f"`import {package}` finds the package of coterie, not {hidden} next to your code")
    more = {"protocol": protocol, "plugins": plugins, "sweep": sweep, "notices": tuple(notices)}
    return dict(sections) | more


def _removal_reasons(keys: Iterable[str], protocol: str) -> str:
    """Return the reasons for removed keys: the protocol has no such settings, or no servers."""
    settings = [key for key in keys if key.startswith("protocol.")]
    about_servers = [key for key in keys if key not in settings]
    reasons = [("no such keys", settings), ("no servers", about_servers)]
    why = [f"has {reason}: {', '.join(keys)}" for reason, keys in reasons if keys]
    return f'protocol.name = "{protocol}" {"; and ".join(why)}'
