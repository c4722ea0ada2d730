"""Lookup of protocols by name, so that a new protocol needs no dispatch code.

A name is one of coterie's (``gossip`` is the class Gossip of protocols/decentralized/gossip.py, ``cobo`` the
class CoBo of the folder protocols/cobo), a class of an installed package (``package.module:Class``), or a
class of a file (``my_file.py:Class``).
"""

import ast
import importlib
import inspect
import linecache
import os
import sys
from functools import cache
from pathlib import Path
from typing import TypeGuard

import protocols
from actors.nearest import did_you_mean
from actors.settings.base import Settings
from protocols.framework.client import Client
from sim.errors import UserError, one_line
from sim.plugins.loader import Plugin, is_plugin, load_plugin
from sim.plugins.source_files import SourceFiles, files_in_same_folder, parse_source
from sim.scenario.protocol_errors import require_valid_protocol
from sim.scenario.refusals import show

_FOLDER = Path(protocols.__path__[0])
WITHOUT_METHODS = ("framework", "membership", "shared")
"""Folders of `protocols/` without methods."""
_KEY = "protocol.name"
_CELL = "notebook_cell.py"  # the file in results with the source of a class defined outside any file


@cache  # a sweep reads hundreds of scenarios
def list_protocols() -> dict[str, str]:
    """Return the names of coterie's protocols, each with the first line of its documentation.

    Reads the files without importing them: many import torch, which takes a second.
    """
    described = {stem: _first_doc_line(stem, file) for stem, file in sorted(method_files().items())}
    return {stem.replace("_", "-"): line for stem, line in described.items() if line is not None}


def _first_doc_line(stem: str, file: Path) -> str | None:
    """Return the first line of a method's documentation, or None for a module without a method."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if not any(_is_named_after(name, stem) for name in _class_names(tree)):
        return None
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def method_files() -> dict[str, Path]:
    """Return modules that may contain a method, by their last name.

    These are the files in `protocols/` and in its folders of methods, and the folders that are one method:
    their `__init__.py` imports its class.
    """
    found = {path.stem: path for path in _FOLDER.glob("*.py") if path.stem != "__init__"}
    for init in sorted(_FOLDER.glob("*/__init__.py")):
        folder = init.parent
        if _first_doc_line(folder.name, init) is not None:
            found[folder.name] = init
        elif folder.name not in WITHOUT_METHODS:
            found |= {path.stem: path for path in folder.glob("*.py") if path != init}
    return found


def _class_names(tree: ast.Module) -> list[str]:
    """Return the names of the classes that a module defines, or that a package's `__init__` imports."""
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [*imported, *[node.name for node in tree.body if isinstance(node, ast.ClassDef)]]


def list_settings() -> dict[str, type[Settings]]:
    """Return the settings of coterie's protocols by name, each with a docstring for the reference.

    The docstring of a class from which other protocols derive their settings describes no single protocol.
    For such a class, and for a class without a docstring, the first line of the protocol's documentation is
    used.
    """
    lines = list_protocols()
    found: dict[str, type[Settings]] = {name: _known_protocol_file(name).Settings for name in lines}

    def is_of_others(name: str) -> bool:
        return any(issubclass(other, found[name]) for each, other in found.items() if each != name)

    return {
        name: type(settings.__name__, (settings,), {"__doc__": lines[name], "__module__": __name__})
        if settings.__doc__ is None or is_of_others(name)
        else settings
        for name, settings in found.items()
    }


def load_protocol(name: str, *, code: bool = True) -> Plugin:
    """Return a protocol's class, with its source files if it is the user's.

    A file's path is relative to the current folder, or else to the scenario's. Loading a class of a file or a
    package executes its code; code=False rejects the class without reading it. Raises UserError that lists
    the known protocols, or the protocol classes of the module.
    """
    if not is_plugin(name):
        return Plugin(_KEY, name, _known_protocol_file(name), None, None)
    kind, instead = "protocol class (subclass of Client) called ", ", ".join(list_protocols())
    plugin = load_plugin(_KEY, name, code=code, instead=instead, is_one=_is_protocol, kind=kind)
    require_valid_protocol(plugin.found)
    return plugin


def given_protocol(method: type[Client]) -> Plugin:
    """Return the plugin of a protocol that is passed as a class, with its source files.

    For a class in a notebook, the source is the text of its cell, if the cell is known. Raises UserError.
    """
    if not _is_protocol(method):
        raise UserError(f"{_KEY} = {method!r}: must be a class derived from Client")
    require_valid_protocol(method)
    if method.__module__.partition(".")[0] == _FOLDER.name:
        name = next((each for each in list_protocols() if _known_protocol_file(each) is method), None)
        if name is not None:
            return Plugin(_KEY, name, method, None, None)
    location = _location_of(method)
    file = Path(location).absolute()
    if os.path.isfile(file):
        sources = files_in_same_folder(file)
    else:
        file = file.with_name(_CELL)
        source = "".join(linecache.getlines(location)) or f"# The source of {method.__name__} is unknown.\n"
        sources = SourceFiles(file.parent, {_CELL: source.encode()})
    return Plugin(_KEY, f"{file}:{method.__name__}", method, file, sources)


def _location_of(method: type) -> str:
    """Return the file that defines a class; for a notebook the name of the cell, or "?" if it is unknown."""
    for name, value in vars(method).items():
        found = inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(found) and found.__qualname__ == f"{method.__qualname__}.{name}":
            return found.__code__.co_filename
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    if file is not None and (method.__module__ != "__main__" or _defines_class(file, method.__name__)):
        return str(file)
    cells = [each for each in list(linecache.cache) if not os.path.isfile(each)]
    known = [each for each in cells if _defines_class(each, method.__name__)]
    return known[0] if len(known) == 1 else "?"  # among several, the last executed cell is unknown


def _defines_class(file: str, name: str) -> bool:
    """Return True if a file defines a class of this name; in an interactive session, a script may not."""
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(parse_source(file)))


def _known_protocol_file(name: str) -> type[Client]:
    stem = name.replace("-", "_")
    file = None if "_" in name else method_files().get(stem)
    if file is None or _first_doc_line(stem, file) is None:
        known = list_protocols()
        raise UserError(
            one_line(
                f"{_KEY} = {show(name)}: must be one of {', '.join(known)}, package.module:Class, "
                f"or my_file.py:Class{did_you_mean(name, known)}"
            )
        )
    parts = file.relative_to(_FOLDER.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    return next(
        value for key, value in vars(module).items() if _is_named_after(key, stem) and _is_protocol(value)
    )


def _is_named_after(class_name: str, module: str) -> bool:
    return class_name.lower() == module.replace("_", "")


def _is_protocol(candidate: object) -> TypeGuard[type[Client]]:
    return isinstance(candidate, type) and issubclass(candidate, Client) and candidate is not Client
