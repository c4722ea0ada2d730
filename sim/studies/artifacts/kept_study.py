"""The copy of a study in a sweep's folder, from which the sweep runs again.

The copy consists of the study's file, of the scenario file if the study names one, and of the user's code.
The index of the sweep holds the options in addition to the file, and the hashes of the data files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import UserError
from sim.files.named_files import find_file, resolving_file_names
from sim.plugins.loader import Plugin, absolute_name
from sim.scenario.reading import default_name, read_text, toml_tables
from sim.scenario.resolved import digests_of_files, input_files
from sim.scenario.scenario import Scenario
from sim.studies.index import INDEX, StudyFile, SweepIndex
from sim.studies.option_values import parsed, split_at_commas

_STATED = ("overrides", "only")
"""Options whose values may name the user's code or a data file."""
_SCENARIO = "scenario"
"""Subfolder for the scenario that a study names, whose file may have the same name as the study's."""


class StudyCopy(NamedTuple):
    """The copy of a study: its entry in the index, and the contents of its files by path."""

    study: StudyFile
    files: dict[str, bytes]


def find_study(path: Path) -> tuple[Path, StudyFile | None]:
    """Return the study's file, and its entry in the index if `path` is a sweep's folder or index.

    Raises UserError if the folder of a sweep contains no copy of the study's file.
    """
    folder = path.parent if path.name == INDEX else path
    if not (folder / INDEX).is_file():
        return path, None
    study = SweepIndex.read(folder).study
    if study is None:
        problem = "the folder contains no copy of the sweep's study file; pass the study file itself"
        raise UserError(problem, folder)
    return folder / study.file, study


def changed_data(study: StudyFile, scenarios: Iterable[Scenario]) -> list[str]:
    """Return a sentence for each data file whose content has changed since the study was saved."""
    now = _data_file_hashes(scenarios)
    names = [name for name, content in study.data.items() if name in now and now[name] != content]
    return [f"the content of {name} has changed since the study ran" for name in names]


def copy_study(
    path: Path, file: Path, scenarios: Sequence[Scenario], options: Mapping[str, Any]
) -> StudyCopy:
    """Return the copy of a study.

    path: the study's file. file: the scenario file of the runs, which differs from `path` if the study names
    a scenario. options: the fields of `StudyFile` that the command's options set.
    """
    is_alone = file != path
    plugins = {each.name: each for scenario in scenarios for each in scenario.plugins if each.sources}
    contents = [toml_tables(path), *([toml_tables(file)] if is_alone else [])]
    data = {each for scenario in scenarios for each in input_files(scenario)}
    texts = set(_texts([*contents, *options.values()]))
    names = _new_names(file, texts, plugins, "../" if is_alone else "", data)
    own, inner = f"{default_name(path)}.toml", f"{_SCENARIO}/{default_name(file)}.toml"  # of the same default
    files = {own: _renamed(read_text(path), names).encode()}
    if is_alone:
        files[own] = _renamed(read_text(path), names | {contents[0]["sweep"]["scenario"]: inner}).encode()
        files[inner] = _renamed(read_text(file), names).encode()
    for plugin in plugins.values():
        assert plugin.sources is not None
        files |= {f"{plugin.folder}/{name}": content for name, content in plugin.sources.files.items()}
    renamed = {key: [_renamed(f'"{each}"', names)[1:-1] for each in options[key]] for key in _STATED}
    stated = {**options, **{key: tuple(value) for key, value in renamed.items()}}
    return StudyCopy(StudyFile(file=own, data=_data_file_hashes(scenarios), **stated), files)


def _data_file_hashes(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Return the hash of each data file by its name; files are read once."""
    of_files = {tuple(input_files(scenario)): scenario for scenario in scenarios}
    found: dict[str, str] = {}
    for files, scenario in of_files.items():
        found |= digests_of_files(scenario) if files else {}
    return dict(sorted(found.items()))


def _new_names(
    file: Path, texts: set[str], plugins: Mapping[str, Plugin], up: str, data: set[Path]
) -> dict[str, str]:
    """Return the new name of each text that names the user's code or a data file."""
    found: dict[str, str] = {}
    with resolving_file_names(file):
        for text in texts:
            plugin = plugins.get(absolute_name(text))
            if plugin is not None and plugin.file is not None:
                found[text] = plugin.within(f"{up}{plugin.folder}/")
            elif find_file(text) in data:
                found[text] = find_file(text).as_posix()
    return found


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a file's contents, and the values in texts such as ``"key=value"``."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and value and "\n" not in value:
        yield value
        _, equals, stated = value.partition("=")
        if equals:
            yield from _texts([parsed(part) for part in split_at_commas(stated) if part])


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace names in the text of a file: whole strings, and values in strings such as ``"key=value"``."""
    if not names:
        return text
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(
        rf"([\"'=,]\s*)({longest_first})(?=\s*[\"',\]}}])", lambda match: match[1] + names[match[2]], text
    )
