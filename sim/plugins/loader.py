"""Loader of the user's code, named by `my_file.py:Name` or `package.module:Name` in a scenario."""

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
from sim.plugins.process_settings import restoring_torch_settings
from sim.plugins.source_files import SourceFiles, files_in_same_folder, package_files, parse_source


@dataclass(frozen=True)
class Plugin:
    """A class or function of the user's code, named by a key of a scenario.

    key: such as "model.name" or "churn_process.0.kind". name: the value in the resolved scenario, with an
    absolute path. found: the class or function. file: the file in the name; None for a package. sources: the
    files that results keep, as loaded; None for code of coterie.
    """

    key: str
    name: str
    found: Any
    file: Path | None
    sources: SourceFiles | None

    @property
    def label(self) -> str:
        """Part of the name after the colon."""
        return self.name.rpartition(":")[2]

    @property
    def key_and_value(self) -> str:
        """Key and value in the resolved scenario, such as `model.name = "my.py:Net"`."""
        return f'{self.key} = "{self.name}"'

    @property
    def folder(self) -> str:
        """Name of the folder with copies of its files: the key's last table, such as "model", and a hash.

        Folders with the same name contain the same files.
        """
        assert self.sources is not None
        table = next(part for part in reversed(self.key.split(".")[:-1]) if not part.isdecimal())
        return f"{table}-{self.sources.digest}"

    def within(self, folder: str) -> str:
        """Return the name with the file in another folder; names of packages do not change."""
        return self.name if self.file is None else f"{folder}{self.file.name}:{self.label}"

    def is_unchanged(self) -> bool:
        """Return whether the file and its folder are unchanged since loading; False for a package."""
        try:
            return self.file is not None and files_in_same_folder(self.file) == self.sources
        except (OSError, ValueError):
            return False


def is_plugin(name: object) -> TypeGuard[str]:
    """Return whether a name in a scenario names user code."""
    if not isinstance(name, str):
        return False
    source, _, label = name.rpartition(":")
    return bool(source) and label.isidentifier()


def load_plugin(
    key: str,
    name: str,
    *,
    code: bool,
    instead: str,
    is_one: Callable[[Any], bool] = callable,
    kind: str = "",
) -> Plugin:
    """Load the class or function that `name` names, by executing its Python file or module.

    A file's path is relative to the current folder, or to the scenario's folder. code=False rejects any such
    name, with the allowed names `instead` in the message. is_one: test for suitable objects; kind: noun for
    them; without it, unsuitable objects are also returned. Raises UserError.
    """
    source, _, label = name.rpartition(":")
    stated = f'{key} = "{name}"'
    if not code:
        refused = "needs Python code that does not come with coterie, which --no-code forbids"
        raise UserError(one_line(f"{stated}: {refused}; allowed: {instead}"))
    path = find_file(source) if source.endswith(".py") else None
    try:
        if path is None:
            module = importlib.import_module(source)
            sources = None
        elif os.path.isfile(path):
            sources = files_in_same_folder(path)
            module = _module_of(path, sources)
        else:
            tried = dict.fromkeys([Path(source).absolute(), path])
            raise UserError(one_line(f"{stated}: no file {' or '.join(map(str, tried))}"))
        found = getattr(module, label, None)
        if path is None and is_one(found):
            sources = package_files(getattr(found, "__module__", module.__name__))
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(one_line(f"{stated}: {_failure(source, error)}")) from None
    if path is not None and len(lines := _lines_of_class(path, label)) > 1:
        other = ", ".join(map(str, lines))
        raise UserError(
            one_line(f"{stated}: {source} has several classes of this name, in lines {other}; rename them")
        )
    if found is None or not is_one(found):
        own = [
            each for each, value in vars(module).items() if is_one(value) and _is_defined_in(value, module)
        ]
        known = (
            f"must be one of {', '.join(own)}{did_you_mean(label, own)}"
            if own
            else "it contains nothing suitable"
        )
        if found is None or kind:
            raise UserError(f"{stated}: {source} has no {kind}{label!r}; {known}")
    return Plugin(key, name if path is None else f"{path}:{label}", found, path, sources)


def _lines_of_class(path: Path, name: str) -> list[int]:
    """Return the lines with classes of this name that do not extend a previous class of the name."""
    classes = [node for node in parse_source(str(path)).body if isinstance(node, ast.ClassDef)]
    independent = [node for node in classes if name not in [ast.unparse(base) for base in node.bases]]
    return [node.lineno for node in independent if node.name == name]


def absolute_name(name: str) -> str:
    """Return `name` with the absolute path of its file, so that it means the same in every folder.

    A name of a missing file is unchanged; loading it reports the error.
    """
    source, _, label = name.rpartition(":")
    file = find_file(source)
    return f"{file}:{label}" if source.endswith(".py") and os.path.exists(file) else name


def _is_defined_in(value: object, module: ModuleType) -> bool:
    """Return whether an object was defined in this module or package, and not imported by it."""
    return f"{getattr(value, '__module__', None)}.".startswith(f"{module.__name__}.")


def _failure(source: str, error: BaseException) -> str:
    """Describe why code cannot be loaded, with the last line of its file in the traceback."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be read: {error.strerror}"
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename.endswith(source)]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{source} cannot be loaded{where}: {type(error).__name__}: {error}"


# --- modules of files ---------------------------------------------------------------------------------------


class _FolderModules:
    """Modules of a folder, under the names by which its files import each other.

    Python caches modules only by name. When code is loaded from a folder with modules of the same names, or
    from an edited folder, its modules replace the others in Python's cache.
    """

    def __init__(self, sources: SourceFiles, tops: set[str]) -> None:
        self._paths = {str(sources.root / name) for name in sources.files}
        self.tops = tops
        self._others = set(sys.modules)  # modules loaded before, from any file
        self.modules: dict[str, ModuleType] = {}

    def forget(self) -> None:
        """Remove these modules from Python's cache, and keep them in `modules` for a later use."""
        found = {
            name: module
            for name, module in sys.modules.items()
            if name not in self._others and getattr(module, "__file__", None) in self._paths
        }
        for name in found:
            del sys.modules[name]
        self.modules |= found


_folders: dict[tuple[Path, str], _FolderModules] = {}
_added_folders: list[str] = []
"""Folders that were added to the end of Python's path."""


_loading: list[Path] = []
"""Files that are being executed."""


def require_not_loading() -> None:
    """Raise UserError if a file starts a run while it is being loaded."""
    if _loading:
        raise UserError(
            f"{_loading[-1]} starts a run while coterie loads it; move the code that starts runs under "
            '`if __name__ == "__main__":`'
        )


def _is_copy(sources: SourceFiles, path: Path, module: ModuleType) -> bool:
    """Return whether a file and its folder are the copy of a loaded module's files in results."""
    file = getattr(module, "__file__", None)
    if file is None or Path(file).name != path.name:
        return False
    root = Path(file).parents[len(path.relative_to(sources.root).parts) - 1]
    try:
        return all((root / name).read_bytes() == content for name, content in sources.files.items())
    except OSError:
        return False


def _module_of(path: Path, sources: SourceFiles) -> ModuleType:
    """Return the module of a file, the same one as long as no file of its folder changes.

    Raises any error of its execution.
    """
    key = (sources.root, sources.digest)
    tops = {name.partition("/")[0].removesuffix(".py") for name in sources.files}
    for other, each in _folders.items():
        if other != key and each.tops & tops:
            each.forget()
    folder = _folders.setdefault(key, _FolderModules(sources, tops))
    sys.modules.update(folder.modules)
    name, parent = path.stem, str(path.parent)
    known = sys.modules.get(name)
    if known is not None and (
        getattr(known, "__file__", None) == str(path) or _is_copy(sources, path, known)
    ):
        return known
    if known is not None or name in sys.stdlib_module_names:
        raise UserError(f"{path} has the name of another Python module, {name}; rename the file")
    # The end of the path is for later imports: installed packages come first, then the latest folder.
    others = [each for each in _added_folders if each != parent]
    sys.path[:] = [parent, *[each for each in sys.path if each not in _added_folders], parent, *others]
    _added_folders[:] = [parent, *others]
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True  # keep results free of caches, and read edited files
    try:
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        _loading.append(path)
        try:
            with restoring_torch_settings():
                spec.loader.exec_module(module)
        finally:
            _loading.remove(path)
        return module
    except BaseException:
        folder.forget()
        del _folders[key]
        raise
    finally:
        sys.path.remove(parent)
