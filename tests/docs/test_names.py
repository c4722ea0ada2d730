"""Files and names of the code that the pages for contributors mention are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_blocks import ROOT

PAGES = ("docs/architecture.md", "docs/CONTRIBUTING.md")
SOURCES = ("actors", "benchmarks", "coterie", "docs/build", "protocols", "sim", "tests")
MADE = {"site/index.html", "runs/fuzz/", "reads.log", "events.parquet"}
"""Files that commands and runs make."""
IMAGINED = {"MyMethod", "mymethod.py", "my_method.py"}
"""A reader's own."""
_PATH = re.compile(r"[\w./*-]*/|[\w./-]+\.(?:py|md|toml|txt|csv)|[\w-]+/[\w./-]+")
_NAME = re.compile(r"(?:self\.)?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?", re.DOTALL)


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The names that a file defines: classes, functions, variables, and "Class.name" of what a class has."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found |= set(names_of(node))
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for each in ast.walk(node) for name in names_of(each)}
    return frozenset(found)


def names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def is_defined(name: str, files: list[Path]) -> bool:
    """Whether one of these files defines a name; any, if there are none, or for "Class.name"."""
    inside = [path for each in files for path in (each.rglob("*.py") if each.is_dir() else [each])]
    code = [path for path in inside if path.suffix == ".py" and "." not in name] or sources()
    return any(name in defined_in(path) for path in code) or name in makefile()[1]


@cache
def makefile() -> tuple[set[str], set[str]]:
    """Its targets and its variables."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    heads = [line.partition(":")[0] for line in lines if re.match(r"[a-z].*:", line)]
    variables = re.findall(r"\b[A-Z][A-Z_]+\b", "\n".join(lines))
    return set(" ".join(heads).split()), set(variables)


@cache
def sources() -> tuple[Path, ...]:
    return tuple([path for room in SOURCES for path in sorted((ROOT / room).rglob("*.py"))])


def places(text: str, near: list[Path]) -> list[Path]:
    """What a path on a page may mean: beside or above the files named before it, or any that ends so."""
    above = [folder for path in near for folder in (*reversed(path.parents), path)]
    roots = [
        ROOT / "docs",
        ROOT / "sim",
        *[each for each in above if each.is_relative_to(ROOT) and each.is_dir()],
    ]
    if (ROOT / text).exists():
        return [ROOT / text]
    if found := [each for root in reversed(roots) if (each := root / text).exists()]:
        return found[:1]
    return [path for path in sources() if path.as_posix().endswith(f"/{text}")]


def parts(page: str) -> list[str]:
    """The page's paragraphs, items of lists and rows of tables. Names are of the files named with them."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return [part for part in re.split(r"\n(?=\||\d\. |- )|\n\n", text) if "`" in part]


def problems(part: str) -> Iterator[str]:
    """What a part of a page names and what is not there."""
    of_part: list[Path] = []
    for cell in part.split(" | "):
        names: list[str] = []
        files: list[Path] = []
        for text in re.findall(r"`([^`]+)`", cell):
            if text in MADE | IMAGINED:
                continue
            if (make := re.match(r"make ([\w-]+)", text)) is not None:
                if make[1] not in makefile()[0]:
                    yield f"there is no target `{text}`"
            elif _PATH.fullmatch(text):
                if not (found := places(text, of_part)):
                    yield f"there is no `{text}`"
                files += found
                of_part += found
            elif (match := _NAME.fullmatch(text)) is not None:
                names.append(match[1])
        for name in names:
            if not is_defined(name, files or of_part):
                where = dict.fromkeys(str(each.relative_to(ROOT)) for each in files or of_part)
                yield f"`{name}` is not in {', '.join(where) or 'the sources'}"


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_what_is_named_is_there(page: str) -> None:
    found = [f"{problem}, in: {part[:100]}" for part in parts(page) for problem in problems(part)]
    assert not found, "\n".join([f"{page} is out of date:", *found])


def test_the_glossary_is_short_and_names_code() -> None:
    """`test_what_is_named_is_there` compares the second column with the code."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("\n## Glossary\n")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)[2:]
    assert 20 <= len(rows) <= 40
    assert len({term for term, _, _ in rows}) == len(rows)
    for term, code, definition in rows:
        assert "`" in code and re.fullmatch(r"[A-Z][^.]*\.", definition), term
