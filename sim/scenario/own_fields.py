"""Fields of the user's own protocols that have the names of the framework's: `self.inbox = []`."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache

from actors.source_location import written

_METHODS = ast.FunctionDef | ast.AsyncFunctionDef
_MEANT = frozenset(("params", "round"))  # a method assigns them


def taken_fields(kind: type) -> Iterator[str]:
    """A complaint for each assignment to a name that a class of the framework has for itself.

    Such a field would take the place of the framework's, and what goes wrong then points elsewhere. Looked at
    are the classes of `kind` that do not come with coterie; one without a source is taken as it is.
    """
    taken = frozenset[str]().union(*[_names(cls) for cls in kind.__mro__ if _is_machinery(cls)]) - _MEANT
    for cls in kind.__mro__:
        if _is_machinery(cls) or cls.__module__.partition(".")[0] in ("actors", "protocols", "builtins"):
            continue
        for name, line in _assigned(cls):
            if name in taken:
                where = written(inspect.getfile(cls), line)
                yield f"{where}: {cls.__name__}: self.{name} is the framework's own; choose another name"


def _is_machinery(cls: type) -> bool:
    return bool(vars(cls).get("machinery", False))


@cache
def _names(cls: type) -> frozenset[str]:
    """What a class of the framework has: its fields, methods and properties."""
    return frozenset([*vars(cls), *[name for name, _ in _assigned(cls)]])


def _assigned(cls: type) -> list[tuple[str, int]]:
    """Each `self.name = ...` in the methods that a class itself defines, with its line."""
    try:
        lines, first = inspect.getsourcelines(cls)
        [tree] = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    found = []
    for method in getattr(tree, "body", ()):
        if not isinstance(method, _METHODS) or not method.args.args or _is_static(method):
            continue
        itself = method.args.args[0].arg
        for node in ast.walk(method):
            match node:
                case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if name == itself:
                    found.append((node.attr, first + node.lineno - 1))
    return found


def _is_static(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [getattr(decorator, "id", "") for decorator in method.decorator_list]
    return "staticmethod" in names or "classmethod" in names
