"""Methods of a protocol's clients and servers: whether coterie can call them, and what nothing calls."""

import ast
import difflib
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

from actors.source_location import of_definition
from sim.plugins.source_files import OURS

_AWAITED = ("on_start", "on_stop", "on_message", "on_failure", "run", "step")
_CALLED = (
    "begin", "heard", "peer_changed", "_finish_iteration", "weights", "coalition", "evaluated", "objective",
    "requirements", "servers",
)  # fmt: skip
_CLOSE = 0.8  # how alike two names are of which one may be a slip


def unsound_methods(kind: type) -> Iterator[str]:
    """What is wrong with the methods of a client's or a server's class, and what in it is used by nothing."""
    for name in (*_AWAITED, *_CALLED):
        method = _function(getattr(kind, name, None))  # a server has fewer
        if method is None:
            continue
        if name in _AWAITED and not inspect.iscoroutinefunction(method):
            yield f"{defined(method)}: {kind.__name__}.{name}() must be written `async def {name}(...)`"
        elif name in _CALLED and inspect.iscoroutinefunction(method):
            must = f"must be written `def {name}(...)`, without async"
            yield f"{defined(method)}: {kind.__name__}.{name}() {must}"
    ours = {name: what for cls in reversed(kind.__mro__) if _is_ours(cls) for name, what in vars(cls).items()}
    declared = {
        name for cls in kind.__mro__ if _is_ours(cls) for name in vars(cls).get("__annotations__", ())
    }
    for cls in kind.__mro__:
        for name, value in () if _is_ours(cls) else vars(cls).items():
            if name in ours:
                yield from _unfit(cls, name, value, ours[name])
            elif name not in declared and not name.startswith("_"):
                yield from _unused(cls, name, value, kind)


def defined(what: Any) -> str:
    """Where a function or class is defined."""
    return of_definition(what) or str(getattr(what, "__qualname__", what))


def is_server(kind: object) -> bool:
    """Whether something is a class of servers."""
    from protocols.framework.server import Server

    return isinstance(kind, type) and issubclass(kind, Server)


def _is_ours(cls: type) -> bool:
    return cls is object or cls.__module__.partition(".")[0] in OURS


def _function(method: Any) -> Any:
    return inspect.unwrap(getattr(method, "__func__", method))


def _unfit(cls: type, name: str, value: Any, other: Any) -> Iterator[str]:
    """Whether a method takes what the one takes in whose place it is."""
    method, base = _function(value), _function(other)
    if name.startswith("__") or not (inspect.isfunction(method) and inspect.isfunction(base)):
        return
    given = [
        each.name
        for each in inspect.signature(base).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
    ]
    try:
        inspect.signature(method).bind(*given)
    except TypeError:
        yield f"{defined(method)}: {cls.__name__}.{name}() must take ({', '.join(given)})"


def _unused(cls: type, name: str, value: Any, kind: type) -> Iterator[str]:
    """Whether something is meant for coterie, by its name or as a server's class, and used by nothing."""
    from protocols.framework.client import Client
    from protocols.shared.server_rounds import RoundClient, RoundServer

    others: tuple[type, ...] = (Client, RoundClient) if is_server(kind) else (RoundServer, RoundClient)
    is_method = inspect.isfunction(value)
    elsewhere = [other.__name__ for other in others if is_method and name in _hooks(other)][:1]
    written = {each for base in kind.__mro__ if not _is_ours(base) for each in vars(base)}
    alike = [each for each in _hooks(kind) - written if callable(getattr(kind, each)) == is_method]
    near = difflib.get_close_matches(name, alike, n=1, cutoff=_CLOSE)
    is_handler = is_method and name.startswith("on_")
    if not (elsewhere or near or is_handler or is_server(value)) or _is_used(name, cls):
        return
    place = defined(value if is_method else cls)
    hint = (
        f"; it belongs to a {elsewhere[0]}" if elsewhere else f"; did you mean {near[0]!r}?" if near else ""
    )
    if is_server(value):
        hint = "; a RoundClient has a `server`, others name theirs in servers()"
    yield f"{place}: {cls.__name__}.{name} is used neither by coterie nor by this code{hint}"


def _hooks(kind: type) -> set[str]:
    """What is there to be written by subclasses: methods that coterie calls, and constants that it reads."""
    found = {name for name in (*_AWAITED, *_CALLED) if hasattr(kind, name)}
    for cls in filter(_is_ours, kind.__mro__):
        found |= vars(cls).get("__annotations__", {}).keys() & vars(cls).keys()
        if cls.__name__ in ("RoundServer", "RoundClient"):
            found |= {name for name, value in vars(cls).items() if inspect.isfunction(value)}
    return {name for name in found if not name.startswith("_")}


def _is_used(name: str, cls: type) -> bool:
    """Whether a name is an attribute that code asks for which lies beside that of a class."""
    folder = _folder_of(sys.modules.get(cls.__module__))
    beside = [module for module in list(sys.modules.values()) if folder and _folder_of(module) == folder]
    for module in beside:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Attribute(attr=attribute, ctx=ast.Load()) if attribute == name:
                    return True
                case ast.FunctionDef(name=of) | ast.AsyncFunctionDef(name=of) if of == name:
                    if node.decorator_list:  # what decorates it may keep it
                        return True
                case ast.Call(func=ast.Name(id="getattr"), args=[_, asked, *_]):
                    if not isinstance(asked, ast.Constant) or asked.value == name:
                        return True
    return False


def _folder_of(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    return os.path.dirname(file) if isinstance(file, str) and file.endswith(".py") else None
