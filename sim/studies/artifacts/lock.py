"""Exact versions of the packages that a study used, in the format of pip's requirements."""

import ast
import platform
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from typing import Any

from sim.plugins.source_files import imported_names


def locked_packages(code: Iterable[bytes], ran_with: Mapping[str, Any]) -> str:
    """Return the packages that coterie and the user's code need, with the versions of this environment.

    ran_with: provenance of a run; its versions replace the versions of this environment.
    """
    found: dict[str, str] = {}
    _add("coterie", found)
    known = packages_distributions()
    for content in code:
        for _, name in imported_names(_tree(content)):
            for package in known.get(name.partition(".")[0], ()):
                _add(package, found)
    installed = found.pop("coterie", None)
    own = ran_with.get("coterie") or installed
    ran = {name: str(each) for name in found if isinstance(each := ran_with.get(name), str)}
    lines = [f"{name}=={_without_build(each)}" for name, each in sorted((found | ran).items())]
    commit = ran_with.get("commit")
    first = [f"# Python {ran_with.get('python') or platform.python_version()}"]
    first += [f"# commit of coterie: {commit}"] if isinstance(commit, str) else []
    return "\n".join([*first, *([f"coterie=={own}"] if own else []), *lines]) + "\n"


def _without_build(version: str) -> str:
    """Return a version without the name of its build, such as "+cpu" of torch, which indexes lack."""
    plain, plus, _ = version.partition("+")
    return f"{plain}  # the runs used {version}" if plus else plain


def _tree(content: bytes) -> ast.AST:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _add(package: str, found: dict[str, str]) -> None:
    """Add an installed package and its installed requirements, without those of extras."""
    name = re.sub(r"[-_.]+", "-", package).lower()
    if name in found:
        return
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        return  # for another system, or coterie that runs from its sources
    for line in requires(name) or ():
        requirement, _, marker = line.partition(";")
        if not re.search(r"\bextra\s*==", marker):
            _add(re.split(r"[\s\[(<>=!~]", requirement.strip(), maxsplit=1)[0], found)
