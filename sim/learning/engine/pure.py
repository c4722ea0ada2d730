"""When two functions are the same one, so that the calls of all clients can be computed together."""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from actors.source_location import of_error, written

Function = Callable[..., Any]
_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, type, types.ModuleType, np.ufunc)


class PureFunction:
    """A function of tensors, with the arguments by keyword that are the same in all of its calls.

    Two are equal if they compute the same: the same code with the same defaults, and with the same values of
    what it refers to outside itself, captured or global, which must be plain values, functions or modules. It
    keeps the values of now; what a module holds must not change.
    Raises TypeError for what may change between two calls, such as `self`.
    """

    def __init__(self, function: Function, static: Mapping[str, Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        freezer = _Freezer(self.name)
        key, frozen = freezer.frozen(function)
        static_key, values = freezer.table(static)
        self.call: Function = partial(frozen, **values) if values else frozen
        self.watched = freezer.watched
        self._key = (key, static_key)
        self._hash = hash(self._key)
        code = getattr(function, "__code__", None)
        self._file = None if code is None else code.co_filename
        self._place = None if code is None else written(code.co_filename, code.co_firstlineno)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PureFunction) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_outdated(self) -> bool:
        """Whether one of the globals that the function reads has become another."""
        return any([namespace.get(name) is not value for namespace, name, value in self.watched])

    def __str__(self) -> str:
        return f"{self.name}()" if self._place is None else f"{self.name}() in {self._place}"

    def line_of(self, error: BaseException) -> str:
        """The innermost line of the function's own file that an error came through, as "file:line"."""
        lines = [frame for frame in of_error(error) if frame[0] == self._file]
        return written(*lines[-1]) if lines else str(self._place or "torch")


class _Freezer:
    """Finds all that a function refers to outside itself, and makes copies that nothing can change any more.

    watched: each global that was read, as (namespace, name, value).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.watched: list[tuple[dict[str, Any], str, Any]] = []
        self._begun: dict[types.FunctionType, types.FunctionType] = {}

    def frozen(self, function: Function) -> tuple[Hashable, Function]:
        """What makes a function equal to another, and the copy."""
        if isinstance(function, partial):
            key, frozen = self.frozen(function.func)
            keys, values = self.values(function.args, "an argument of partial")
            keyword_keys, keywords = self.table(function.keywords)
            return (partial, key, keys, keyword_keys), partial(frozen, *values, **keywords)
        if isinstance(function, types.FunctionType):
            return (function, function) if _is_librarys(function) else self._function(function)
        if isinstance(function, types.BuiltinFunctionType):
            bound = getattr(function, "__self__", None)
            if bound is None or isinstance(bound, types.ModuleType | type):
                return function, function
        what = "a method" if isinstance(function, types.MethodType) else f"a {type(function).__name__}"
        raise TypeError(
            f"apply takes a function that depends on nothing but its arguments, not {what} such as "
            f"{self.name}; write it outside the class"
        )

    def _function(self, function: types.FunctionType) -> tuple[Hashable, Function]:
        if function in self._begun:  # it calls itself
            return function.__code__, self._begun[function]
        code, namespace = function.__code__, function.__globals__
        read, changed = _globals_of(code)
        if changed:
            raise TypeError(
                f"apply: {self.name}() changes {changed[0]}, which is not its own; what it finds is returned"
            )
        own: dict[str, Any] = {
            "__builtins__": namespace.get("__builtins__", builtins),
            "__name__": namespace.get("__name__"),
        }
        cells = [types.CellType() for _ in code.co_freevars]
        copied = types.FunctionType(code, own, function.__name__, None, tuple(cells))
        self._begun[function] = copied
        keys: list[Hashable] = [code, id(namespace)]  # equal text in two files may mean other things
        for cell, variable, outside in zip(cells, code.co_freevars, function.__closure__ or (), strict=True):
            key, cell.cell_contents = self.value(outside.cell_contents, variable)
            keys.append(key)
        for variable in read:
            if variable in namespace:
                value = namespace[variable]
                key, own[variable] = self.value(value, variable)
                keys.append((variable, key))
                if not isinstance(value, types.ModuleType):
                    self.watched.append((namespace, variable, value))
        default_keys, defaults = self.values(function.__defaults__ or (), "a default")
        keyword_keys, keywords = self.table(function.__kwdefaults__ or {})
        copied.__defaults__, copied.__kwdefaults__ = defaults or None, keywords or None
        return (*keys, default_keys, keyword_keys), copied

    def values(self, values: tuple[Any, ...], where: str) -> tuple[Hashable, tuple[Any, ...]]:
        pairs = [self.value(value, where) for value in values]
        return tuple([key for key, _ in pairs]), tuple([value for _, value in pairs])

    def table(self, values: Mapping[str, Any]) -> tuple[Hashable, dict[str, Any]]:
        pairs = {word: self.value(values[word], word) for word in sorted(values)}
        return tuple([(word, key) for word, (key, _) in pairs.items()]), {w: v for w, (_, v) in pairs.items()}

    def value(self, value: Any, where: str) -> tuple[Hashable, Any]:
        """What makes a value equal to another (its type, too: 1 is not 1.0), and the value."""
        if isinstance(value, float):
            return (float, value.hex()), value  # 0.0 == -0.0, by which one may not divide alike
        if isinstance(value, _PLAIN):
            return (type(value), value), value
        if isinstance(value, tuple):
            keys, values = self.values(value, where)
            return (tuple, keys), values
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | partial):
            return self.frozen(value)
        raise TypeError(
            f"apply: {self.name}() uses {where}, a {type(value).__name__}, which may be another by the time "
            "it is computed; hand over numbers, arrays and vectors as arguments, and what is the same for "
            "all clients by keyword, as a number, a text or a tuple of them"
        )


_READ, _CHANGE = {"LOAD_GLOBAL", "LOAD_NAME"}, {"STORE_GLOBAL", "DELETE_GLOBAL"}


@lru_cache(maxsize=1024)
def _globals_of(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals that a function, and functions inside it, read and change; in alphabetical order."""
    read, changed = set[str](), set[str]()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READ:
            read.add(instruction.argval)
        elif instruction.opname in _CHANGE:
            changed.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            also_read, also_changed = _globals_of(inner)
            read.update(also_read)
            changed.update(also_changed)
    return tuple(sorted(read)), tuple(sorted(changed))


_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy"}


def _is_librarys(function: types.FunctionType) -> bool:
    """Whether a function is one of Python's, torch's or numpy's, which do not change."""
    return (function.__module__ or "").partition(".")[0] in _LIBRARIES - {"__main__"}
