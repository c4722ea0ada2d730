"""Checks of methods of a protocol's clients and servers: signatures, and methods that are never called."""

import ast
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actors.nearest import nearest
from actors.source_location import definition_location
from protocols.framework.client import Client
from protocols.framework.former_names import FORMER_NAMES
from protocols.framework.node import Node
from protocols.framework.server import Server
from protocols.shared.server_rounds import RoundClient, RoundServer
from sim.plugins.source_files import OURS

_HOOKS = (
    "setup", "on_start", "on_stop", "on_message", "on_failure", "run", "step", "intercept", "peer_changed",
    "weights", "coalition", "evaluated", "objective", "requirements", "servers",
)  # fmt: skip
_CLOSE = 0.8  # similarity of a name and a hook above which the name may be a typing error
_NOT_REGISTERING = ("classmethod", "staticmethod", "override", "no_grad", "inference_mode")
"""Decorators that do not register a function with a caller."""


def unsound_methods(kind: type) -> Iterator[str]:
    """Return the errors in the methods of a client's or server's class, and one for each unused attribute."""
    ours, hooks, verbs = _framework_attributes_of(kind), _hooks(kind), _final_methods(kind)
    declared = {
        name for cls in kind.__mro__ if _is_ours(cls) for name in vars(cls).get("__annotations__", ())
    }
    for cls in kind.__mro__:
        for name, value in () if _is_ours(cls) else vars(cls).items():
            if name in ours and (name in hooks or name[0] == "_" or isinstance(ours[name], property)):
                yield from _signature_error(cls, name, value, ours[name])
            elif _is_method(value) and (name in verbs or (name in declared and name not in ours)):
                if not getattr(_function(value), "__override__", False):
                    what = "a method" if name in verbs else "an attribute"
                    hides = f"replaces {what} of coterie: rename it, or mark it with @override"
                    yield f"{location_text(value)}: {cls.__name__}.{name} {hides}"
            elif name not in ours and name not in declared and not name.startswith("_"):
                yield from _unused_attribute_error(cls, name, value, kind)


def location_text(what: Any) -> str:
    return definition_location(what) or str(getattr(what, "__qualname__", what))


def method_location(kind: type, name: str) -> str:
    """Return the location of a method in the user's code, or of the class if the method has none."""
    method = _function(getattr(kind, name))
    return location_text(kind if str(method.__module__).partition(".")[0] in OURS else method)


def is_server(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Server)


def _is_ours(cls: type) -> bool:
    return cls is object or cls.__module__.partition(".")[0] in OURS


def _framework_attributes_of(kind: type) -> dict[str, Any]:
    """Return the attributes that a class has from coterie's code, even if the user overrides them."""
    return {name: what for cls in reversed(kind.__mro__) if _is_ours(cls) for name, what in vars(cls).items()}


def _hooks(kind: type) -> dict[str, Any]:
    """Return the attributes that subclasses may define: methods that coterie calls, and constants."""
    found = {*_HOOKS, *FORMER_NAMES}
    for cls in filter(_is_ours, kind.__mro__):
        found |= vars(cls).get("__annotations__", {}).keys() & vars(cls).keys()
        if cls.__name__ in ("RoundServer", "RoundClient", "AsyncServer", "AsyncClient"):
            found |= {name for name, value in vars(cls).items() if inspect.isfunction(value)}
    return {
        name: what
        for name, what in _framework_attributes_of(kind).items()
        if name in found and not name.startswith("_")
    }


def _final_methods(kind: type) -> set[str]:
    """Return the methods of all clients and servers that subclasses must not replace."""
    names = {name for cls in Node.__mro__ for name, value in vars(cls).items() if _is_method(value)}
    return names - set(_hooks(kind))


def _function(method: Any) -> Any:
    return inspect.unwrap(getattr(method, "__func__", method))


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)


def _passed_arguments(method: Any) -> list[str]:
    """Return the arguments that coterie passes to one of its methods, or to an override of it."""
    return [
        each.name
        for each in inspect.signature(_function(method)).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
    ]


def _accepts_arguments(cls: type, name: str, value: Any, given: list[str]) -> bool:
    """Return True if a class's method accepts these arguments, of which the first is the object."""
    first = 0 if inspect.isfunction(value) else 1
    try:
        inspect.signature(getattr(cls, name), follow_wrapped=False).bind(*given[first:])
    except TypeError:
        return False
    return True


def _signature_error(cls: type, name: str, value: Any, other: Any) -> Iterator[str]:
    """Return an error if a method cannot be called like the method that it overrides."""
    where, what = location_text(value if _is_method(value) else cls), f"{cls.__name__}.{name}"
    if isinstance(other, property) and _is_method(value):
        yield f"{where}: {what} must be a property, because it is read without (): write @property above it"
    if name.startswith("__") or not _is_method(other):
        return
    form = "async def" if inspect.iscoroutinefunction(_function(other)) else "def"
    if not callable(getattr(cls, name)):
        yield f"{where}: {what} must be a method, `{form} {name}({', '.join(_passed_arguments(other))})`"
    elif not _is_method(value):
        return  # another callable of the user
    elif inspect.iscoroutinefunction(_function(value)) != (form == "async def"):
        hint = "" if form == "async def" else ", without async"
        yield f"{where}: {what}() must be written `{form} {name}(...)`{hint}"
    elif isinstance(other, classmethod) and inspect.isfunction(value):
        yield f"{where}: {what}() must be a @classmethod"
    elif not _accepts_arguments(cls, name, value, _passed_arguments(other)):
        yield f"{where}: {what}() must take ({', '.join(_passed_arguments(other))})"


def _unused_attribute_error(cls: type, name: str, value: Any, kind: type) -> Iterator[str]:
    """Return an error if an attribute resembles a hook, or is a server's class, but is not used."""
    hooks = _hooks_meant_by(cls, name, value, _hooks(kind))
    written = {each for base in kind.__mro__ if not _is_ours(base) for each in vars(base)} - {"collected"}
    near = _nearest(name, {hook for hook in hooks if hook not in written})
    others: tuple[type, ...] = (Client, RoundClient) if is_server(kind) else (RoundServer, RoundClient)
    is_method = _is_method(value)
    of_others = [each.__name__ for each in others if name in _hooks_meant_by(cls, name, value, _hooks(each))]
    elsewhere = of_others if is_method else []
    is_handler = is_method and name.startswith("on_")
    if not (near or elsewhere or is_handler or is_server(value)):
        return
    is_slip = bool(near or elsewhere) and is_method
    if _is_used(name, kind, of_any=not is_slip, as_text=is_handler and not is_slip):
        return
    if is_server(value):
        hint = "a RoundClient names its server class in `server`, other clients in servers()"
    elif elsewhere:
        hint = f"it is a method of {elsewhere[0]}"
    elif near:
        like = f"{near}({', '.join(_passed_arguments(hooks[near]))})" if is_method else repr(near)
        hint = f"did you mean {like}?"
    else:
        hint = f"its hooks are {', '.join(each for each in _HOOKS if each in _hooks(kind))}"
    where = location_text(value if is_method else cls)
    yield f"{where}: {cls.__name__}.{name} is used neither by coterie nor by this code; {hint}"


def _hooks_meant_by(cls: type, name: str, value: Any, hooks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hooks that a misspelled attribute may stand for; for a method, those with its arguments."""
    alike = {hook: other for hook, other in hooks.items() if _is_method(other) == _is_method(value)}
    if not _is_method(value):
        return alike
    return {
        hook: other
        for hook, other in alike.items()
        if _accepts_arguments(cls, name, value, _passed_arguments(other))
    }


def _nearest(name: str, hooks: set[str]) -> str | None:
    """Return the hook with a similar name, regardless of how words are joined: onMessage is on_message."""
    plain = {hook.replace("_", "").lower(): hook for hook in sorted(hooks)}
    near = nearest(name.replace("_", "").lower(), plain, _CLOSE)
    return None if near is None else plain[near]


def _is_used(name: str, kind: type, *, of_any: bool, as_text: bool) -> bool:
    """Return True if code in the folder of the class or of its bases uses an attribute of the class.

    of_any: count the attribute of any object, which may have the same name, such as `layer.weight`.
    as_text: also count the name as a text, by which the attribute may be looked up.
    """
    modules = [sys.modules.get(cls.__module__) for cls in kind.__mro__ if not _is_ours(cls)]
    folders = {_folder_of(module) for module in modules} - {None}
    beside = [module for module in list(sys.modules.values()) if _folder_of(module) in folders]
    return any(_uses_attribute(_parsed(module), name, of_any, as_text) for module in beside)


def _folder_of(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    return os.path.dirname(file) if isinstance(file, str) and file.endswith(".py") else None


def _parsed(module: Any) -> ast.AST:
    """Parse a module's file. inspect fails for an empty file."""
    try:
        return ast.parse(Path(module.__file__).read_bytes())
    except (OSError, SyntaxError, ValueError):  # removed or changed since the import
        return ast.Module([], [])


def _uses_attribute(node: ast.AST, name: str, of_any: bool, as_text: bool) -> bool:
    match node:
        case ast.FunctionDef(name=of) | ast.AsyncFunctionDef(name=of) if of == name:
            # A decorator may register the function; uses inside the function do not count.
            names = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
            return any(each.rpartition(".")[2] not in _NOT_REGISTERING for each in names)
        case ast.Call(func=ast.Attribute(attr=attribute)) if attribute == name:
            return True
        case ast.Attribute(attr=attribute, value=of, ctx=ast.Load()) if attribute == name:
            if of_any or (isinstance(of, ast.Name) and (of.id in ("self", "cls") or of.id[:1].isupper())):
                return True
        case ast.ClassDef(body=body):
            values = [each.value for each in body if isinstance(each, ast.Assign | ast.AnnAssign)]
            parts = [part for value in values if value is not None for part in ast.walk(value)]
            if any(isinstance(part, ast.Name) and part.id == name for part in parts):
                return True
        case ast.Call(func=ast.Name(id="getattr"), args=[of, key, *_]):
            if isinstance(of, ast.Name) and re.fullmatch(_pattern(key), name):
                return True
        case ast.Constant(value=text) if text == name and as_text:
            return True
    return any(_uses_attribute(child, name, of_any, as_text) for child in ast.iter_child_nodes(node))


def _pattern(value: ast.expr) -> str:
    """Return a regular expression for the names that an expression can have as its value."""
    match value:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(_pattern(part) for part in parts)
    return ".*"
