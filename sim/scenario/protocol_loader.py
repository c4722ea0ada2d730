"""Finding a protocol by name, so that adding one touches no dispatch code.

A name is one of ours (``gossip`` is the class Gossip of protocols/gossip.py, ``cobo`` the class CoBo of the
folder protocols/cobo), a class of an installed package (``package.module:Class``), or a class of a file
(``my_file.py:Class``).
"""

import ast
import importlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

import protocols
from sim.errors import UserError
from sim.scenario.protocol_checks import require_sound
from sim.scenario.refusals import nearest, one_line
from sim.scenario.user_code import installed_module, module_of_file, require_code

if TYPE_CHECKING:
    from protocols.framework.client import Client

_FOLDER = Path(protocols.__path__[0])


@cache  # a sweep reads hundreds of scenarios
def list_protocols() -> dict[str, str]:
    """Names of the protocols that come with coterie, each with the first line of its documentation.

    Reads the files without importing them, since importing torch takes seconds.
    """
    found = {}
    files = {path.stem: path for path in _FOLDER.glob("*.py")}
    files |= {path.parent.name: path for path in _FOLDER.glob("*/__init__.py")}
    for module, path in sorted(files.items()):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(_is_named_after(name, module) for name in _classes(tree)):
            found[module.replace("_", "-")] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def _classes(tree: ast.Module) -> list[str]:
    """What a module defines, or a package's `__init__` imports."""
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [*imported, *[node.name for node in tree.body if isinstance(node, ast.ClassDef)]]


def find_protocol(name: str, folder: Path | None = None, *, code: bool = True) -> "type[Client]":
    """The class of a protocol. A file's path is relative to the current folder, or else to `folder`.

    A class of a file or a package is found by executing that Python; code=False refuses it unread. Raises
    UserError that names what there is: the known protocols, or the protocol classes of the module.
    """
    place, _, class_name = name.rpartition(":")
    if not (place and class_name):
        return _known(name)
    require_code("protocol.name", name, code=code, instead=", ".join(list_protocols()))
    if place.endswith(".py"):
        module = module_of_file("protocol.name", name, place, folder)
    else:
        module = installed_module("protocol.name", name, place)
    found = getattr(module, class_name, None)
    if not _is_protocol(found):
        classes = [
            key for key, value in vars(module).items() if _is_protocol(value) and _is_own(value, module)
        ]
        raise UserError(
            f'protocol.name = "{name}": {place} has no protocol class {class_name!r} (subclass of Client); '
            f"it has: {', '.join(classes) or 'none'}{nearest(class_name, classes)}"
        )
    require_sound(found)
    return found


def _is_named_after(class_name: str, module: str) -> bool:
    return class_name.lower() == module.replace("_", "")


def _is_protocol(candidate: object) -> "TypeGuard[type[Client]]":
    from protocols.framework.client import Client

    return isinstance(candidate, type) and issubclass(candidate, Client) and candidate is not Client


def _is_own(candidate: type, module: ModuleType) -> bool:
    """Whether the class was written in this module, or in this package, and not imported by it."""
    return f"{candidate.__module__}.".startswith(f"{module.__name__}.")


def _known(name: str) -> "type[Client]":
    known = list_protocols()
    if name not in known:
        raise UserError(
            one_line(
                f'protocol.name = "{name}": must be one of {", ".join(known)}, package.module:Class, '
                f"or my_file.py:Class{nearest(name, known)}"
            )
        )
    stem = name.replace("-", "_")
    module = importlib.import_module(f"protocols.{stem}")
    return next(
        value for key, value in vars(module).items() if _is_named_after(key, stem) and _is_protocol(value)
    )
