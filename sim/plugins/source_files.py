"""The Python files that the user's code consists of, so that results can keep them and tell them apart."""

import ast
import hashlib
import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PRODUCT = Path(__file__).parents[2]
"""The folder that this coterie is imported from."""
OURS = ("actors", "protocols", "sim", "coterie")
"""The packages of coterie."""
INSTALLED = ("site-packages", "dist-packages")
"""Names of the folders that packages are installed in."""
FILES_MAX, BYTES_MAX = 1_000, 10_000_000
"""The most files and bytes that results copy; a folder with more is not one of a method."""


@dataclass(frozen=True)
class SourceFiles:
    """The contents of Python files by their paths, relative to `root`, with slashes."""

    root: Path
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with any name and any content, but not with the root."""
        hashed = hashlib.blake2b(digest_size=4)
        for name, content in sorted(self.files.items()):
            hashed.update(f"{name}\0{len(content)}\0".encode() + content)
        return hashed.hexdigest()

    def hidden(self) -> list[str]:
        """Its files that its own imports do not find, as packages of coterie have their names."""
        found = []
        for name in OURS:
            own = [each for each in (f"{name}.py", f"{name}/__init__.py") if each in self.files]
            imports = re.compile(rf"^[ \t]*(?:from|import)[ \t]+{name}\b".encode(), re.MULTILINE)
            if own and any(imports.search(content) for content in self.files.values()):
                found.append(own[0])
        return found


def syntax_of(file: str) -> ast.Module:
    """The syntax tree of a file, or of a cell of a notebook; an empty one where that is no Python."""
    linecache.checkcache(file)
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # a cell with commands of its own
        return ast.Module([], [])


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that are imported, and what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                top = each.name.partition(".")[0]
                yield (top, top) if each.asname is None else (each.asname, each.name)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """What a function is called where it comes from, such as "numpy.random.rand"; "?.rand" of an object."""
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, names)}.{node.attr}"
    return names.get(node.id, "?") if isinstance(node, ast.Name) else "?"


def beside(file: Path) -> SourceFiles:
    """The Python files of a file's folder, and of folders in it that can be imported from.

    Of coterie's own folder, and of one in which packages are installed, these are the files beside it and the
    file alone. Raises OSError, and ValueError for a folder with too much in it.
    """
    if file.parent.name in INSTALLED:
        return SourceFiles(file.parent, {file.name: file.read_bytes()})
    return _below(file.parent, file.parent, with_folders=file.parent != PRODUCT)


def of_package(module: str) -> SourceFiles | None:
    """The files of the package that an imported module is in; None for a module of coterie.

    Of a package that was installed it is the module's own file. Raises as `beside`.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] in OURS:
        return None
    depth = module.count(".") + (Path(file).name == "__init__.py")
    root = Path(file).parents[depth]
    if depth == 0 and root.name not in INSTALLED:
        return beside(Path(file))
    if root.name in INSTALLED:
        return SourceFiles(root, {Path(file).relative_to(root).as_posix(): Path(file).read_bytes()})
    return _below(root, root / module.partition(".")[0])


def _below(root: Path, folder: Path, *, with_folders: bool = True) -> SourceFiles:
    def fail(error: OSError) -> None:
        raise error

    files: dict[str, bytes] = {}
    for here, folders, names in os.walk(folder, onerror=fail):
        modules = [path for name in names if name.endswith(".py") and (path := Path(here, name)).is_file()]
        files |= {path.relative_to(root).as_posix(): path.read_bytes() for path in modules}
        if len(files) > FILES_MAX or sum(map(len, files.values())) > BYTES_MAX:
            raise ValueError(
                f"{folder} has more than {FILES_MAX:,} Python files, or {BYTES_MAX:,} bytes of them, which "
                "results would copy: give the code a folder of its own"
            )
        has_code = with_folders and (modules or here == str(folder))  # others hold data, or results
        folders[:] = [name for name in folders if has_code and name.isidentifier()]
    return SourceFiles(root, files)


@cache  # the code that runs is the one that was there when it was loaded
def digest_of_coterie(*packages: str) -> str:
    """The digest of these packages of coterie."""
    files = [path for package in packages for path in (PRODUCT / package).rglob("*.py")]
    contents = {path.relative_to(PRODUCT).as_posix(): path.read_bytes() for path in files}
    return SourceFiles(PRODUCT, contents).digest
