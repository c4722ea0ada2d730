"""Loading the user's code: what `my_file.py:Name` or `package.module:Name` in a scenario names."""

import ast
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from actors.nearest import did_you_mean
from sim.errors import UserError, one_line
from sim.files.named_files import find_file
from sim.plugins.process_settings import settings_kept
from sim.plugins.source_files import SourceFiles, beside, of_package, syntax_of


@dataclass(frozen=True)
class Plugin:
    """Something of the user's own that the key of a scenario names.

    key: such as "model.name" or "churn_process.0.kind". name: as the resolved scenario states it, a file's
    path absolute. found: the class or function. file: the file that the name names; None for a package.
    sources: the files that results keep, as they were when it was loaded; None for code of coterie.
    """

    key: str
    name: str
    found: Any
    file: Path | None
    sources: SourceFiles | None

    @property
    def label(self) -> str:
        """The part behind the colon."""
        return self.name.rpartition(":")[2]

    @property
    def stated(self) -> str:
        """What the resolved scenario says, such as `model.name = "my.py:Net"`."""
        return f'{self.key} = "{self.name}"'

    def within(self, folder: str) -> str:
        """The name if its file were in that folder; the name of a package is the same everywhere."""
        return self.name if self.file is None else f"{folder}{self.file.name}:{self.label}"

    def is_unchanged(self) -> bool:
        """Whether it is from a file that is still as it was loaded, with all that lies beside it."""
        try:
            return self.file is not None and beside(self.file) == self.sources
        except (OSError, ValueError):
            return False


def is_plugin(name: object) -> TypeGuard[str]:
    """Whether a name in a scenario is one of the user's code."""
    if not isinstance(name, str):
        return False
    place, _, label = name.rpartition(":")
    return bool(place) and label.isidentifier()


def load_plugin(
    key: str,
    name: str,
    *,
    code: bool,
    instead: str,
    is_one: Callable[[Any], bool] = callable,
    kind: str = "",
) -> Plugin:
    """The plug-in that `name` names, by executing that Python.

    A file's path is relative to the current folder, or else to the scenario's. code=False refuses it, and
    says what is allowed `instead`. is_one: whether something can be meant; kind: what such things are called.
    Raises UserError.
    """
    place, _, label = name.rpartition(":")
    stated = f'{key} = "{name}"'
    if not code:
        refused = "would execute Python that does not come with coterie, which --no-code refuses"
        raise UserError(one_line(f"{stated}: {refused}; allowed: {instead}"))
    path = find_file(place) if place.endswith(".py") else None
    try:
        if path is None:
            module = importlib.import_module(place)
            sources = None
        elif os.path.isfile(path):
            sources = beside(path)
            module = _module_of(path, sources)
        else:
            looked = dict.fromkeys([Path(place).absolute(), path])
            raise UserError(one_line(f"{stated}: there is no file {' or '.join(map(str, looked))}"))
        found = getattr(module, label, None)
        if path is None and is_one(found):
            sources = of_package(getattr(found, "__module__", module.__name__))
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(one_line(f"{stated}: {_failure(place, error)}")) from None
    if path is not None and len(lines := _lines_of_class(path, label)) > 1:
        other = ", ".join(map(str, lines))
        raise UserError(one_line(f"{stated}: {place} has several classes of this name, in lines {other}"))
    if found is None or not is_one(found):
        own = [each for each, value in vars(module).items() if is_one(value) and _is_of(value, module)]
        has = f"it has: {', '.join(own) or 'none'}{did_you_mean(label, own)}"
        if found is None or kind:
            raise UserError(f"{stated}: {place} has no {kind}{label!r}; {has}")
    return Plugin(key, name if path is None else f"{path}:{label}", found, path, sources)


def _lines_of_class(path: Path, name: str) -> list[int]:
    """Where a file defines a class of this name anew, so that nothing is left of the one before."""
    classes = [node for node in syntax_of(str(path)).body if isinstance(node, ast.ClassDef)]
    anew = [node for node in classes if name not in [ast.unparse(base) for base in node.bases]]
    return [node.lineno for node in anew if node.name == name]


def absolute_name(name: str) -> str:
    """`name` with a file's path made absolute, so that it means the same wherever it is read again.

    One that is not there stays as it is: whoever loads it says where it was looked for.
    """
    place, _, label = name.rpartition(":")
    file = find_file(place)
    return f"{file}:{label}" if place.endswith(".py") and os.path.exists(file) else name


def _is_of(value: object, module: ModuleType) -> bool:
    """Whether something was written in this module, or in this package, and not imported by it."""
    return f"{getattr(value, '__module__', None)}.".startswith(f"{module.__name__}.")


def _failure(place: str, error: BaseException) -> str:
    """Why code cannot be loaded, with the last line of its file that took part."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be read: {error.strerror}"
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename.endswith(place)]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{place} cannot be loaded{where}: {type(error).__name__}: {error}"


# --- modules of files ---------------------------------------------------------------------------------------


class _Folder:
    """A folder's modules, under the names by which files in it import each other.

    Python remembers a module by its name alone. So a folder with modules of the same names, or one that was
    edited, takes the other's place in Python's memory when something of it is loaded.
    """

    def __init__(self, sources: SourceFiles, tops: set[str]) -> None:
        self._paths = {str(sources.root / name) for name in sources.files}
        self.tops = tops
        self._others = set(sys.modules)  # which are not its own, whatever their files
        self.modules: dict[str, ModuleType] = {}

    def forget(self) -> None:
        """Have Python forget these modules; `modules` are those that it is to know again."""
        found = {
            name: module
            for name, module in sys.modules.items()
            if name not in self._others and getattr(module, "__file__", None) in self._paths
        }
        for name in found:
            del sys.modules[name]
        self.modules |= found


_folders: dict[tuple[Path, str], _Folder] = {}
_places: list[str] = []
"""The folders that were added to the end of Python's path."""


_loading: list[Path] = []
"""The files that are being executed."""


def require_not_loading() -> None:
    """UserError where a file that is loaded for a method or the like begins a run itself."""
    if _loading:
        raise UserError(
            f"{_loading[-1]} begins a run while it is loaded: put what is to be run, and not to be imported, "
            'under `if __name__ == "__main__":`'
        )


def _is_copy(sources: SourceFiles, path: Path, module: ModuleType) -> bool:
    """Whether a file, and all that lies beside it, is the copy that results keep of what a module is of."""
    file = getattr(module, "__file__", None)
    if file is None or Path(file).name != path.name:
        return False
    root = Path(file).parents[len(path.relative_to(sources.root).parts) - 1]
    try:
        return all((root / name).read_bytes() == content for name, content in sources.files.items())
    except OSError:
        return False


def _module_of(path: Path, sources: SourceFiles) -> ModuleType:
    """The module of a file, the same one as long as no file of its folder changes.

    Raises whatever executing it raises.
    """
    key = (sources.root, sources.digest)
    tops = {name.partition("/")[0].removesuffix(".py") for name in sources.files}
    for other, each in _folders.items():
        if other != key and each.tops & tops:
            each.forget()
    folder = _folders.setdefault(key, _Folder(sources, tops))
    sys.modules.update(folder.modules)
    name, place = path.stem, str(path.parent)
    known = sys.modules.get(name)
    if known is not None and (
        getattr(known, "__file__", None) == str(path) or _is_copy(sources, path, known)
    ):
        return known
    if known is not None or name in sys.stdlib_module_names:
        raise UserError(f"{path} has the name of another module of Python, {name}; rename it")
    # For what is imported later on; what is installed comes first, and of these folders the latest.
    others = [each for each in _places if each != place]
    sys.path[:] = [place, *[each for each in sys.path if each not in _places], place, *others]
    _places[:] = [place, *others]
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True  # results hold nothing but code, and what was edited is read anew
    try:
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        _loading.append(path)
        try:
            with settings_kept():
                spec.loader.exec_module(module)
        finally:
            _loading.remove(path)
        return module
    except BaseException:
        folder.forget()
        del _folders[key]
        raise
    finally:
        sys.path.remove(place)
