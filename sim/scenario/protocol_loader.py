"""Finding a protocol by name, so that adding one touches no dispatch code.

A name is one of ours (``gossip`` is the class Gossip of protocols/gossip.py, ``cobo`` the class CoBo of the
folder protocols/cobo), a class of an installed package (``package.module:Class``), or a class of a file
(``my_file.py:Class``).
"""

import ast
import importlib
import os
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeGuard

import protocols
from sim.errors import UserError
from sim.scenario.protocol_checks import require_sound
from sim.scenario.protocol_modules import load_file
from sim.scenario.refusals import nearest, one_line
from sim.scenario.sources import sources_of_file

if TYPE_CHECKING:
    from protocols.framework.learner import Learner

_FOLDER = Path(protocols.__path__[0])


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


def find_protocol(name: str, folder: Path | None = None, *, code: bool = True) -> "type[Learner]":
    """The class of a protocol. A file's path is relative to the current folder, or else to `folder`.

    A class of a file or a package is found by executing that Python; code=False refuses it unread. Raises
    UserError that names what there is: the known protocols, or the protocol classes of the module.
    """
    place, _, class_name = name.rpartition(":")
    if not (place and class_name):
        return _known(name)
    if not code:
        raise UserError(
            one_line(
                f'protocol.name = "{name}": would execute Python that does not come with coterie, which '
                f"--no-code refuses; allowed: {', '.join(list_protocols())}"
            )
        )
    module = _module_of_file(name, place, folder) if place.endswith(".py") else _installed(name, place)
    found = getattr(module, class_name, None)
    if not _is_protocol(found):
        classes = [
            key for key, value in vars(module).items() if _is_protocol(value) and _is_own(value, module)
        ]
        raise UserError(
            f'protocol.name = "{name}": {place} has no protocol class {class_name!r} (subclass of Learner); '
            f"it has: {', '.join(classes) or 'none'}{nearest(class_name, classes)}"
        )
    require_sound(found)
    return found


def absolute_name(name: str, folder: Path | None) -> str:
    """`name` with a file's path made absolute, so that it means the same wherever it is read again."""
    place, _, class_name = name.rpartition(":")
    return f"{find_file(place, folder)}:{class_name}" if place.endswith(".py") else name


def find_file(path: str, folder: Path | None) -> Path:
    """Absolute path of a file that a scenario names: relative to the current folder, or else to `folder`."""
    here = Path(path).absolute()
    # Not Path.exists, which raises for a path that is too long.
    return here if folder is None or os.path.exists(here) else (folder / path).absolute()


def _is_named_after(class_name: str, module: str) -> bool:
    return class_name.lower() == module.replace("_", "")


def _is_protocol(candidate: object) -> "TypeGuard[type[Learner]]":
    from protocols.framework.learner import Learner

    return isinstance(candidate, type) and issubclass(candidate, Learner) and candidate is not Learner


def _is_own(candidate: type, module: ModuleType) -> bool:
    """Whether the class was written in this module, or in this package, and not imported by it."""
    return f"{candidate.__module__}.".startswith(f"{module.__name__}.")


def _known(name: str) -> "type[Learner]":
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


def _installed(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise _refusal(name, place, error) from None


def _module_of_file(name: str, place: str, folder: Path | None) -> ModuleType:
    path = find_file(place, folder)
    if not os.path.isfile(path):
        looked = dict.fromkeys([Path(place).absolute(), *([(folder / place).absolute()] if folder else [])])
        raise UserError(
            one_line(f'protocol.name = "{name}": there is no file {" or ".join(map(str, looked))}')
        )
    try:
        sources = sources_of_file(path)
    except OSError as error:
        where = error.filename or path
        raise UserError(f'protocol.name = "{name}": {where} cannot be read: {error.strerror}') from None
    try:
        return load_file(path, sources)
    except (Exception, SystemExit) as error:
        raise _refusal(name, place, error) from None


def _refusal(name: str, place: str, error: BaseException) -> UserError:
    """The module's own failure, with the last line of its code that took part."""
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno})"
    else:
        lines = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(place)
        ]
        where = f" (line {lines[-1].lineno})" if lines else ""
    return UserError(
        one_line(
            f'protocol.name = "{name}": {place} cannot be loaded{where}: {type(error).__name__}: {error}'
        )
    )
