"""A protocol's file and the modules beside it, executed from the very content that results keep of them.

Python remembers a module by its name: a second protocol's `helper.py`, or an edited one, would not be read
again in the same process. So the files of a protocol are the modules of a package of their own, named by
their content, and what they import is looked for among those files first, now and later on.
"""

import builtins
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from sim.scenario.sources import Source

_PREFIX = "coterie_protocol_"


def load_file(path: Path, sources: Iterable[Source]) -> ModuleType:
    """The module of a protocol's file: the same one as long as the file, and those it imports, are the same.

    Raises whatever executing it raises.
    """
    sources = [source for source in sources if not source.is_ours]
    identity = hashlib.blake2b(str(path).encode(), digest_size=8)
    for source in sources:
        identity.update(f"\0{source.name}\0{len(source.content)}\0".encode() + source.content)
    stem = path.stem.replace(".", "_")
    package = f"{_PREFIX}{stem}_{identity.hexdigest()}"
    name = f"{package}.{stem}"
    if name in sys.modules:
        return sys.modules[name]
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)  # before the one that looks into folders
    sys.modules[package] = _package(package, _Files(package, path, sources))
    try:
        with _importing_from(path.parent):
            return importlib.import_module(name)
    except BaseException:
        for each in [each for each in sys.modules if each.partition(".")[0] == package]:
            del sys.modules[each]
        raise


class _Files(Loader):
    """The files of one protocol as the modules of a package."""

    def __init__(self, package: str, path: Path, sources: Sequence[Source]) -> None:
        self._package = package
        self._folder = path.parent
        self._contents = {_module_name(source.name): source for source in sources}
        self._contents[path.stem.replace(".", "_")] = next(each for each in sources if each.name == path.name)
        tops = {name.partition(".")[0] for name in self._contents} - set(sys.builtin_module_names)
        self._own = {name for name in tops if name in self._contents or not _is_installed(name)}

    def spec(self, name: str) -> ModuleSpec | None:
        """How to load a module of the package, None if there is none; `name` is that within the package."""
        full = f"{self._package}.{name}"
        if (source := self._contents.get(name)) is not None:
            file = self._folder / source.name
            folders = [str(file.parent)] if source.name.endswith("/__init__.py") else None
            return importlib.util.spec_from_file_location(
                full, file, loader=self, submodule_search_locations=folders
            )
        if any(each.startswith(f"{name}.") for each in self._contents):  # a folder without __init__.py
            spec = ModuleSpec(full, None, is_package=True)
            spec.submodule_search_locations = [str(self._folder.joinpath(*name.split(".")))]
            return spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Execute the content that was read when the protocol was."""
        source = self._contents[module.__name__.partition(".")[2]]
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": self._import}
        exec(compile(source.content, self._folder / source.name, "exec"), vars(module))

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What an import statement in these files calls; the parameters are those of `__import__`."""
        top = name.partition(".")[0]
        if level or top not in self._own:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = builtins.__import__(f"{self._package}.{name}", globals, locals, fromlist or ())
        return found if fromlist else sys.modules[f"{self._package}.{top}"]


class _Finder:
    """Asks the package that a module is said to lie in."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        if not (rest and package.startswith(_PREFIX)):
            return None
        files = getattr(sys.modules.get(package), "__loader__", None)
        return files.spec(rest) if isinstance(files, _Files) else None


def _package(name: str, files: _Files) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = []
    module.__loader__ = files
    return module


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_installed(name: str) -> bool:
    """Whether there is a module or package of this name elsewhere, which a mere folder does not hide."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Find beside a file, as Python does for a program, what is imported by other means than `import`."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):  # the file may have done that
            sys.path.remove(str(folder))
