"""When two functions are the same one, so that the calls of all clients can be computed together."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import torch

from actors.place import of_error, written

Function = Callable[..., Any]
_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, type, types.ModuleType)


class PureFunction:
    """A function of tensors, with the arguments by keyword that are the same in all of its calls.

    Two are equal if they compute the same: the same code with the same defaults, and with the same values of
    what it refers to outside itself, which must be plain values or functions. It keeps the values of now.
    Raises TypeError for what may change between two calls, such as `self`.
    """

    def __init__(self, function: Function, static: Mapping[str, Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        key, frozen = _frozen(function, self.name)
        static_key, values = _frozen_table(static, self.name)
        self.call: Function = partial(frozen, **values) if values else frozen
        self._key = (key, static_key)
        self._hash = hash(self._key)
        code = getattr(function, "__code__", None)
        self._file = None if code is None else code.co_filename
        self._place = None if code is None else written(code.co_filename, code.co_firstlineno)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PureFunction) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{self.name}()" if self._place is None else f"{self.name}() in {self._place}"

    def line_of(self, error: BaseException) -> str:
        """The innermost line of the function's own file that an error came through, as "file:line"."""
        lines = [frame for frame in of_error(error) if frame[0] == self._file]
        return written(*lines[-1]) if lines else str(self._place or "torch")


def _frozen(function: Function, name: str) -> tuple[Hashable, Function]:
    """What makes a function equal to another, and a copy that what it refers to cannot change any more."""
    if isinstance(function, partial):
        key, frozen = _frozen(function.func, name)
        keys, values = _frozen_values(function.args, name, "an argument of partial")
        keyword_keys, keywords = _frozen_table(function.keywords, name)
        return (partial, key, keys, keyword_keys), partial(frozen, *values, **keywords)
    if isinstance(function, types.FunctionType):
        return _frozen_function(function, name)
    if isinstance(function, types.BuiltinFunctionType):
        bound = getattr(function, "__self__", None)
        if bound is None or isinstance(bound, types.ModuleType | type):
            return function, function
    what = "a method" if isinstance(function, types.MethodType) else f"a {type(function).__name__}"
    raise TypeError(
        f"apply takes a function that depends on nothing but its arguments, not {what} such as {name}; "
        "write it outside the class"
    )


def _frozen_function(function: types.FunctionType, name: str) -> tuple[Hashable, Function]:
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    outside = [_frozen_value(cell.cell_contents, name, variable) for variable, cell in cells]
    default_keys, defaults = _frozen_values(function.__defaults__ or (), name, "a default")
    keyword_keys, keywords = _frozen_table(function.__kwdefaults__ or {}, name)
    closure = tuple([types.CellType(value) for _, value in outside])
    frozen = types.FunctionType(code, function.__globals__, function.__name__, defaults or None, closure)
    frozen.__kwdefaults__ = keywords or None
    # Equal text in two files is equal code, but may mean other things.
    key = code, id(function.__globals__), tuple([key for key, _ in outside]), default_keys, keyword_keys
    return key, frozen


def _frozen_values(values: tuple[Any, ...], name: str, where: str) -> tuple[Hashable, tuple[Any, ...]]:
    pairs = [_frozen_value(value, name, where) for value in values]
    return tuple([key for key, _ in pairs]), tuple([value for _, value in pairs])


def _frozen_table(values: Mapping[str, Any], name: str) -> tuple[Hashable, dict[str, Any]]:
    pairs = {word: _frozen_value(values[word], name, word) for word in sorted(values)}
    return tuple([(word, key) for word, (key, _) in pairs.items()]), {w: v for w, (_, v) in pairs.items()}


def _frozen_value(value: Any, name: str, where: str) -> tuple[Hashable, Any]:
    """What makes a value equal to another for a function (its type, too: 1 is not 1.0), and the value."""
    if isinstance(value, float):
        return (float, value.hex()), value  # 0.0 == -0.0, by which one may not divide alike
    if isinstance(value, _PLAIN):
        return (type(value), value), value
    if isinstance(value, tuple):
        keys, values = _frozen_values(value, name, where)
        return (tuple, keys), values
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | partial):
        return _frozen(value, name)
    raise TypeError(
        f"apply: {name}() uses {where}, a {type(value).__name__}, which may be another by the time it is "
        "computed; hand over numbers, arrays and vectors as arguments, and what is the same for all clients "
        "by keyword, as a number, a text or a tuple of them"
    )
