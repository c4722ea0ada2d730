"""Checks of methods of clients and servers for missing `await` and overwritten fields of coterie."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache

from actors.source_location import location_text
from sim.plugins.source_files import OURS

_OPERANDS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Attribute, ast.Subscript)


def method_mistakes(kind: type) -> Iterator[str]:
    """Return errors for the user's methods that do not await a coroutine, or assign a framework field."""
    users = [cls for cls in kind.__mro__ if cls is not object and not _is_ours(cls)]
    fields = _framework_attributes(kind) - {name for cls in users for name in vars(cls)}
    for cls in users:
        for name, method in vars(cls).items():
            tree = _parsed(method) if inspect.isfunction(method) else None
            if tree is None:
                continue
            method_name = f"{cls.__name__}.{name}()"
            first = method.__code__.co_firstlineno - 1
            for line, verb in _unawaited(tree, kind):
                where = location_text(inspect.getfile(method), first + line)
                yield f"{where}: {method_name} does not await {verb}(): write `await self.{verb}(...)`"
            for line, field in _assignments_to_self(tree):
                if field in fields:
                    where = location_text(inspect.getfile(method), first + line)
                    yield (
                        f"{where}: {method_name} assigns self.{field}, an attribute of coterie: choose "
                        f"another name, such as self.own_{field.strip('_')}"
                    )


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in OURS


@cache
def _parsed(method: object) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(method)))  # type: ignore[arg-type]
    except (OSError, SyntaxError, TypeError):
        return None


def _framework_attributes(kind: type) -> set[str]:
    """Return attributes that coterie's classes set in __init__, their methods and read-only properties."""
    found: set[str] = set()
    for cls in filter(_is_ours, kind.__mro__):
        made = _parsed(vars(cls).get("__init__"))
        found |= {name for _, name in _assignments_to_self(made)} if made is not None else set()
        for name, value in vars(cls).items():
            is_fixed = isinstance(value, property) and value.fset is None
            if (is_fixed or inspect.isfunction(value)) and not name.startswith("__"):
                found.add(name)
    return found


def _assignments_to_self(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return the lines that assign an attribute of `self`, each with the attribute's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.lineno, node.attr


def _unawaited(tree: ast.AST, kind: type) -> Iterator[tuple[int, str]]:
    """Return the lines that use the result of a coroutine method of `self` without await, and the method."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr=verb)) if _is_self(of):
                if not inspect.iscoroutinefunction(getattr(kind, verb, None)):
                    continue
            case _:
                continue
        parent = parents[node]
        is_used = isinstance(parent, (*_OPERANDS, ast.Expr))
        match parent:
            case ast.Assign(targets=[ast.Attribute(value=of, attr="params")]):
                is_used = is_used or _is_self(of)
            case ast.Assign(targets=[ast.Name(id=name)]):
                same = [each for each in names if each.id == name]
                stored = sum(isinstance(each.ctx, ast.Store) for each in same)
                operands = [isinstance(parents[each], _OPERANDS) for each in same]
                is_used = stored == 1 and any(operands)
        if is_used:
            yield node.lineno, verb


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
