"""The mistake of reading `self.params` before an `await` in the statement that assigns them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

from actors.source_location import written
from sim.plugins.source_files import OURS


def lost_merges(kind: type) -> Iterator[str]:
    """Lines of a client's or a server's class that would lose what a handler merges while they wait.

    `self.params = self.params + await ...` reads the parameters first. What has no source is not looked at.
    """
    for cls in kind.__mro__:
        if cls.__module__.partition(".")[0] in OURS:
            continue
        for name, method in vars(cls).items():
            if inspect.iscoroutinefunction(method):
                for line in _lines(method):
                    place = written(inspect.getfile(method), line)
                    yield (
                        f"{place}: {cls.__name__}.{name}() reads self.params before an await, and so loses "
                        "what is merged meanwhile; write `update = await ...`, and then `self.params = "
                        "self.params + update`"
                    )


def _lines(method: object) -> list[int]:
    """The lines of the statements that do so."""
    try:
        source, first = inspect.getsourcelines(method)  # type: ignore[arg-type]
        tree = ast.parse(textwrap.dedent("".join(source)))
    except (OSError, SyntaxError, TypeError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(map(_is_params, node.targets)):
            waits, reads = _places(node.value, ast.Await), _places(node.value, ast.Attribute)
            loses = bool(waits and reads and min(reads) < max(waits))
        else:
            loses = isinstance(node, ast.AugAssign) and _is_params(node.target)
            loses = loses and bool(_places(node.value, ast.Await))  # type: ignore[attr-defined]
        if loses:
            found.append(first + node.lineno - 1)  # type: ignore[attr-defined]
    return found


def _places(value: ast.expr, kind: type[ast.expr]) -> list[tuple[int, int]]:
    """Where an expression waits, or reads self.params."""
    nodes = [node for node in ast.walk(value) if isinstance(node, kind)]
    if kind is ast.Attribute:
        nodes = [node for node in nodes if _is_params(node)]
    return [(node.lineno, node.col_offset) for node in nodes]


def _is_params(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "params"
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
