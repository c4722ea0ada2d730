"""The source code that a protocol consists of, so that results can say by which code they were made."""

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import protocols

PRODUCT = Path(__file__).parents[2]
"""The folder that this coterie is imported from."""
_OURS = ("actors", "protocols", "sim")
_TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
INSTALLED = ("site-packages", "dist-packages")
"""Names of the folders that packages are installed in."""


@dataclass(frozen=True)
class Source:
    """One file of a protocol."""

    name: str
    """Relative to the folder that its imports start from, with slashes."""
    content: bytes
    is_ours: bool
    """Whether it came with coterie."""


def sources_of(learner: type, file: Path | None = None) -> tuple[Source, ...]:
    """The file of a protocol's class, and what that imports, directly or not, from beside it or from coterie.

    `file` is given where the scenario names one. Beside it is its folder; beside a class of a package is that
    package. Installed packages and the standard library are left out, and so is what is imported by other
    means than `import`. Those of coterie come last.
    """
    if file is not None:
        return sources_of_file(file)
    root, package = _package(learner)
    return _closure(_files(root, learner.__module__), root, package)


def sources_of_file(file: Path) -> tuple[Source, ...]:
    """The same of a file that need not have been executed. Raises OSError."""
    package = file.stem if file.parent.name in INSTALLED else ""  # what lies there beside it is others'
    return _closure([file], file.parent, package)


def _closure(start: Iterable[Path], root: Path, package: str) -> tuple[Source, ...]:
    """Files, and what they import from coterie and, below `root`, from this package, or any if empty."""
    found: dict[Path, Source] = {}
    seen: set[tuple[Path, str]] = set()
    todo = [(path, root) for path in start]
    while todo:
        path, base = todo.pop()
        if path in found:
            continue
        name = path.relative_to(base)
        is_ours = base == PRODUCT and name.parts[0] in _OURS
        found[path] = Source(name.as_posix(), path.read_bytes(), is_ours)
        for imported in _imports(found[path].content, name.parent.parts):
            top = imported.partition(".")[0]
            module = (PRODUCT, _behind_the_face(imported)) if top in _OURS else (root, imported)
            if module not in seen and (top in _OURS or (not is_ours and package in ("", top))):
                seen.add(module)
                todo += [(each, module[0]) for each in _files(*module)]
    return tuple(sorted(found.values(), key=lambda source: (source.is_ours, source.name)))


def _behind_the_face(module: str) -> str:
    """The module in which a name is written that may be one of the face of `protocols`."""
    package, _, name = module.rpartition(".")
    return protocols.MODULES.get(name, module) if package == "protocols" else module


def _package(learner: type) -> tuple[Path, str]:
    """Where the imports of a class's module start from, and the name of the package that is its own."""
    module = sys.modules[learner.__module__]
    file, package = Path(module.__file__ or ""), module.__package__ or ""
    root = file.parents[len(package.split(".")) if package else 0]
    if not package and root.name not in INSTALLED:
        return root, ""  # a module beside others, all of which are its own
    return root, (package or file.stem).partition(".")[0]


def digest_of(sources: tuple[Source, ...]) -> str:
    """Eight hexadecimal digits that change with any name and any content."""
    hashed = hashlib.blake2b(digest_size=4)
    for source in sources:
        hashed.update(f"{source.name}\0{len(source.content)}\0".encode() + source.content)
    return hashed.hexdigest()


@cache
def _imports(content: bytes, package: tuple[str, ...]) -> tuple[str, ...]:
    """Every module that a file of `package` may import; of ``from a import b`` both ``a`` and ``a.b``."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return ()  # nobody could import it either
    found: dict[str, None] = {}
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= dict.fromkeys([base, *(f"{base}.{alias.name}" for alias in node.names)])
    return tuple(found)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in _TYPE_CHECKING:
            waiting += node.orelse
        else:
            yield node
            waiting += ast.iter_child_nodes(node)


def _files(root: Path, module: str) -> Iterator[Path]:
    """The files under `root` that importing a module runs: its own, and those of the packages around it."""
    parts = [part for part in module.split(".") if part.isidentifier()]
    for depth in range(1, len(parts) + 1):
        stem = os.path.join(root, *parts[:depth])
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if os.path.isfile(path):  # most are none: what a module imports by name is seldom a module
                yield Path(path)
