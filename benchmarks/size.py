"""Size of each package in lines of code, of docstrings and comments, and blank lines: `make size`.

`python -m benchmarks.size [REVISION]` also prints the difference from a git revision, by default
`origin/main`, if the revision is known locally.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("actors", "protocols", "sim", "coterie", "tests", "benchmarks")
_KINDS = ("code", "words", "blank")


def counted(text: str) -> Counter[str]:
    """Count the lines of a module by kind; words are docstrings and lines with only a comment."""
    of_docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    found: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        words = number in of_docstrings or plain.startswith("#")
        found["words" if words else "code" if plain else "blank"] += 1
    return found


def here() -> Iterator[tuple[str, str]]:
    """Yield path and text of all modules."""
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            yield str(path.relative_to(_ROOT)), path.read_text(encoding="utf-8")


def at(revision: str) -> Iterator[tuple[str, str]]:
    """Yield the modules at a revision; none if git does not know it."""
    listed = _git("ls-tree", "-r", "--name-only", revision, *_PACKAGES)
    for path in listed.splitlines():
        if path.endswith(".py"):
            yield path, _git("show", f"{revision}:{path}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def by_package(modules: Iterator[tuple[str, str]]) -> dict[str, Counter[str]]:
    """Count the lines of each package by kind."""
    found: dict[str, Counter[str]] = {}
    for path, text in modules:
        found.setdefault(path.partition("/")[0], Counter()).update(counted(text))
    return found


def table(now: Mapping[str, Counter[str]], before: Mapping[str, Counter[str]]) -> str:
    """Return a row for each package, without differences if there are no earlier counts."""
    lines = [
        f"{'':12}{'lines':>8}" + "".join([f"{kind:>8}" for kind in _KINDS]) + f"{'more':>8}" * bool(before)
    ]
    for package, kinds in now.items():
        more = kinds.total() - before.get(package, Counter()).total()
        counts = [kinds.total(), *[kinds[kind] for kind in _KINDS]]
        lines.append(
            f"{package:12}" + "".join([f"{count:8,}" for count in counts]) + f"{more:+8,}" * bool(before)
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(by_package(here()), by_package(at(sys.argv[1] if sys.argv[1:] else "origin/main"))))
