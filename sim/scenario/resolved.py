"""Scenarios with explicit values of all settings, and digests that distinguish scenarios."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomli_w

from actors.settings.base import Settings
from sim.files.named_files import FileNameKey
from sim.files.picture_folder import picture_files
from sim.files.saved_folder import saved_files
from sim.learning.language.checkpoints import checkpoint_files
from sim.plugins.point import annotated
from sim.plugins.source_files import digest_of_coterie
from sim.scenario.key_path import set_value_at
from sim.scenario.scenario import Scenario
from sim.scenario.sections import Sections


def to_toml(scenario: Scenario, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """Write the scenario with all settings, including defaults; the file loads to an equal scenario.

    instead: other values of some keys, such as the copy of the user's code that a table names.
    """
    comment = "".join(f"# {line}".rstrip() + "\n" for line in scenario.question.splitlines())
    contents = resolve_contents(scenario)
    for key, value in instead.items():
        set_value_at(contents, key, value)
    return f"{comment}{tomli_w.dumps(contents)}"


def digest(scenario: Scenario) -> str:
    """Return eight hexadecimal digits that change with the settings, the method's code, and data files.

    They do not change with the comment or with the folders of these files.
    """
    contents = resolve_contents(scenario)
    for plugin in scenario.plugins:
        set_value_at(contents, plugin.key, plugin.within(""))
    for table, key, file in _files(scenario, contents):
        table[key] = _name_and_hash(file)
    code = [digest_of_coterie("actors", "protocols")]
    code += [plugin.sources.digest for plugin in scenario.plugins if plugin.sources is not None]
    text = "\0".join([tomli_w.dumps(contents), *code])
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def digests_of_files(scenario: Scenario) -> dict[str, str]:
    """Return sixteen hexadecimal digits for the content of each file that a scenario names, by file name."""
    found: dict[str, str] = {}
    for _, _, file in _files(scenario, resolve_contents(scenario)):
        found[file.name] = digest_of_file(file, found.get(file.name, ""))
    return found


def digest_of_file(file: Path, before: str = "") -> str:
    """Return sixteen hexadecimal digits for the name and the content of a file or folder.

    before: digest of an earlier file with the same name, in another folder.
    """
    return hashlib.blake2b(f"{before}{_name_and_hash(file)}".encode(), digest_size=8).hexdigest()


def input_files(scenario: Scenario) -> list[Path]:
    """Return the files and folders that a scenario names, and that its runs read."""
    return [file for _, _, file in _files(scenario, resolve_contents(scenario))]


def _files(scenario: Scenario, contents: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, Path]]:
    """Return the files and folders that a scenario names, each with its table and its key there.

    Keys are found by name in all tables of `contents`, the resolved scenario.
    """
    kinds = {kind for _, part in _sections_of(scenario) for kind in _table_classes(part)}
    naming = {key for kind in kinds for key in _file_keys(kind)}
    for table in _tables(contents):
        for key in sorted(naming & table.keys()):
            if isinstance(file := table[key], str) and os.path.isabs(file):
                yield table, key, Path(file)


@lru_cache(maxsize=1024)
def _file_keys(kind: type[Settings]) -> tuple[str, ...]:
    """Return the keys of a table that name files."""
    return tuple([path.rpartition(".")[2] for path in annotated(kind, FileNameKey)])


def _sections_of(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Return the sections, with the settings of the protocol as the section `protocol`."""
    for section in Sections.model_fields:
        part = getattr(scenario, section)
        yield section, part.settings if section == "protocol" else part


def _table_classes(value: Any) -> Iterator[type[Settings]]:
    """Return the classes of all tables in a section."""
    if isinstance(value, Settings):
        yield type(value)
        for name in type(value).model_fields:
            yield from _table_classes(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _table_classes(item)


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """Return all tables of a scenario, at any depth."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _tables(inner)


def _name_and_hash(path: Path) -> str:
    """Return the name and content hash of a file or folder, or its path if it cannot be read."""
    if path.is_dir() and (files := saved_files(path) or checkpoint_files(path) or picture_files(path)):
        inside = [f"{file.parent.relative_to(path)} {_name_and_hash(file)}" for file in files]
        return f"{path.name} {hashlib.blake2b(str(inside).encode()).hexdigest()}"
    if not path.is_file():  # opening a pipe waits for its writer
        return str(path)
    try:
        with path.open("rb") as file:
            return f"{path.name} {hashlib.file_digest(file, 'blake2b').hexdigest()}"
    except OSError:
        return str(path)


def resolve_contents(scenario: Scenario) -> dict[str, Any]:
    """Return the contents of a scenario file with all settings, with units, except those that are None."""
    contents: dict[str, Any] = {}
    for section, part in _sections_of(scenario):
        if part is not None:
            contents[section] = [_dump(item) for item in part] if isinstance(part, tuple) else _dump(part)
    contents["protocol"] = {"name": scenario.protocol.name} | contents["protocol"]
    return {section: part for section, part in contents.items() if part != []}


def _dump(settings: Settings) -> dict[str, Any]:
    return _without_none(settings.model_dump(mode="json", by_alias=True))


def _without_none(value: Any) -> Any:
    # TOML has no null. Pydantic's exclude_none would also omit the None that is written "unlimited".
    if isinstance(value, dict):
        kind_first = sorted(value.items(), key=lambda item: item[0] not in ("kind", "name"))
        return {key: _without_none(item) for key, item in kind_first if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
