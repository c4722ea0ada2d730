"""Python files of the user's code, which results keep and hash."""

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
"""Folder from which coterie is imported."""
OURS = ("actors", "protocols", "sim", "coterie")
"""Packages of coterie."""
INSTALLED = ("site-packages", "dist-packages")
"""Names of folders of installed packages."""
FILES_MAX, BYTES_MAX = 1_000, 10_000_000
"""Largest numbers of files and bytes that results copy; larger folders are rejected."""


@dataclass(frozen=True)
class SourceFiles:
    """Contents of Python files by path, relative to `root`, with slashes."""

    root: Path
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """Hash of names and contents, without the root, as eight hexadecimal digits."""
        hashed = hashlib.blake2b(digest_size=4)
        for name, content in sorted(self.files.items()):
            hashed.update(f"{name}\0{len(content)}\0".encode() + content)
        return hashed.hexdigest()

    def hidden(self) -> list[str]:
        """Return imported files that Python cannot find, because a package of coterie has the same name."""
        found = []
        for name in OURS:
            own = [each for each in (f"{name}.py", f"{name}/__init__.py") if each in self.files]
            imports = re.compile(rf"^[ \t]*(?:from|import)[ \t]+{name}\b".encode(), re.MULTILINE)
            if own and any(imports.search(content) for content in self.files.values()):
                found.append(own[0])
        return found


def parse_source(file: str) -> ast.Module:
    """Return the syntax tree of a file or a notebook cell; an empty tree if it is not Python."""
    linecache.checkcache(file)
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # a cell with notebook commands
        return ast.Module([], [])


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield imported names with their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                top = each.name.partition(".")[0]
                yield (top, top) if each.asname is None else (each.asname, each.name)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return a function's full name, such as "numpy.random.rand", or "?.rand" for a method of an object."""
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, names)}.{node.attr}"
    return names.get(node.id, "?") if isinstance(node, ast.Name) else "?"


def files_in_same_folder(file: Path) -> SourceFiles:
    """Return the Python files of a file's folder, and of importable subfolders.

    In coterie's folder, subfolders are left out; in a folder of installed packages, only the file is
    returned. Raises OSError, and ValueError for too large folders.
    """
    if file.parent.name in INSTALLED:
        return SourceFiles(file.parent, {file.name: file.read_bytes()})
    return _files_below(file.parent, file.parent, with_folders=file.parent != PRODUCT)


def package_files(module: str) -> SourceFiles | None:
    """Return the files of an imported module's package; None for a module of coterie, or without a file.

    For an installed package, this is only the module's file. Raises the errors of `files_in_same_folder`.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] in OURS:
        return None
    depth = module.count(".") + (Path(file).name == "__init__.py")
    root = Path(file).parents[depth]
    if depth == 0 and root.name not in INSTALLED:
        return files_in_same_folder(Path(file))
    if root.name in INSTALLED:
        return SourceFiles(root, {Path(file).relative_to(root).as_posix(): Path(file).read_bytes()})
    return _files_below(root, root / module.partition(".")[0])


def _files_below(root: Path, folder: Path, *, with_folders: bool = True) -> SourceFiles:
    def fail(error: OSError) -> None:
        raise error

    files: dict[str, bytes] = {}
    for current, folders, names in os.walk(folder, onerror=fail):
        modules = [path for name in names if name.endswith(".py") and (path := Path(current, name)).is_file()]
        files |= {path.relative_to(root).as_posix(): path.read_bytes() for path in modules}
        if len(files) > FILES_MAX or sum(map(len, files.values())) > BYTES_MAX:
            raise ValueError(
                f"{folder} has more than {FILES_MAX:,} Python files, or {BYTES_MAX:,} bytes of Python, which "
                "results would copy; move the code to a separate folder"
            )
        has_code = with_folders and (
            modules or current == str(folder)
        )  # other folders contain data or results
        folders[:] = [name for name in folders if has_code and name.isidentifier()]
    return SourceFiles(root, files)


@cache  # the running code does not change
def digest_of_coterie(*packages: str) -> str:
    """Return the hash of these packages of coterie."""
    files = [path for package in packages for path in (PRODUCT / package).rglob("*.py")]
    contents = {path.relative_to(PRODUCT).as_posix(): path.read_bytes() for path in files}
    return SourceFiles(PRODUCT, contents).digest
