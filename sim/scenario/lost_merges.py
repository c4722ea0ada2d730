"""Check for statements that assign `self.params` and read it before an `await`."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from actors.source_location import location_text
from sim.plugins.source_files import OURS


def lost_merges(kind: type) -> Iterator[str]:
    """Return errors for lines of a class that undo a merge made by a message handler during an await.

    `self.params = self.params + await ...` reads the parameters first. Methods without source are skipped.
    """
    for cls in kind.__mro__:
        if cls.__module__.partition(".")[0] in OURS:
            continue
        for name, method in vars(cls).items():
            if inspect.iscoroutinefunction(method):
                for line in _lines(method):
                    where = location_text(inspect.getfile(method), line)
                    yield (
                        f"{where}: {cls.__name__}.{name}() reads self.params before an await and loses any "
                        "merge during the await; write `update = await ...`, or `model = await ...`, on a "
                        "separate line, and read self.params after it, as in `self.params + update`"
                    )


def _lines(method: object) -> list[int]:
    """Return the lines of a method that assign `self.params` and read it before an `await`."""
    try:
        source, first = inspect.getsourcelines(method)  # type: ignore[arg-type]
        tree = ast.parse(textwrap.dedent("".join(source)))
    except (OSError, SyntaxError, TypeError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(map(_is_params, node.targets)):
            loses = _EvaluationEffects.of(node.value).loses
        else:
            loses = isinstance(node, ast.AugAssign) and _is_params(node.target)
            loses = loses and _EvaluationEffects.of(node.value).waits  # type: ignore[attr-defined]
        if loses:
            found.append(first + node.lineno - 1)  # type: ignore[attr-defined]
    return found


@dataclass(frozen=True)
class _EvaluationEffects:
    """Effects of evaluating an expression: it reads self.params, waits, or reads and then waits."""

    reads: bool = False
    waits: bool = False
    loses: bool = False

    @classmethod
    def of(cls, value: ast.AST) -> "_EvaluationEffects":
        if isinstance(value, ast.IfExp):  # one branch is evaluated; the condition is not part of the value
            one, other = cls.of(value.body), cls.of(value.orelse)
            waits = one.waits or other.waits or cls.of(value.test).waits
            return cls(one.reads or other.reads, waits, one.loses or other.loses)
        # An awaited call reads its arguments, and may return a successor of them.
        course = cls(_is_params(value), isinstance(value, ast.Await))
        for child in sorted(ast.iter_child_nodes(value), key=_position):
            course = course.then(cls.of(child))
        return course

    def then(self, later: "_EvaluationEffects") -> "_EvaluationEffects":
        loses = self.loses or later.loses or (self.reads and later.waits)
        return _EvaluationEffects(self.reads or later.reads, self.waits or later.waits, loses)


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _is_params(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "params"
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
