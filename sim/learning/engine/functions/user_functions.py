"""Protocols' functions for `apply`: deferred, and computed for all clients at once."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from actors.message import describe
from actors.source_location import location_text, traceback_frames
from sim.learning.engine.backends.fast_vmap import call_under_vmap, in_new_thread
from sim.learning.engine.functions.encoded import (
    TYPES,
    EncodedVector,
    decoded_rows,
    encoded_rows,
    float32_columns,
    storage_type,
)
from sim.learning.engine.graph.nodes import GraphNode, Slot
from sim.learning.engine.graph.operations import Operation, gather_inputs
from sim.learning.engine.handles import WHOLE_MAX, Scalar, Vector, VectorEngine, known_values_handle
from sim.learning.engine.memory import is_out_of_memory
from sim.learning.engine.replay_log import ReadLog
from sim.learning.engine.vector_pool import VectorPool, numpy_to_device

NUMBER, SCALAR = "number", "scalar"
_NUMBERS_AT_ONCE = 1 << 26  # in all inputs and outputs of a call
_NUMBERS_AT_ONCE_CPU = 1 << 19  # fit in the cache between operations
_FUNCTIONS_MAX = 256  # largest number of remembered functions

Function = Callable[..., Any]


class FunctionEngine(VectorEngine, Protocol):
    """Interface of the engine that the functions passed to `apply` need."""

    device: torch.device
    read_log: ReadLog
    flushes: int

    def pool(self, width: int) -> VectorPool: ...
    def flush(self) -> None: ...
    def submit(
        self, operation: Operation, inputs: tuple[Slot, ...], payload: object, pools: Sequence[VectorPool]
    ) -> list[Slot]: ...


class UserFunction:
    """Function of tensors, with its static keyword arguments, which are the same in all of its calls.

    Raises TypeError for static arguments that are not hashable, and for methods, lambdas and nested
    functions, which may change between a call and its computation.
    """

    def __init__(self, function: Function, static: Mapping[str, Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        owner = getattr(function, "__self__", None)
        is_builtin = isinstance(function, types.BuiltinFunctionType) and (
            owner is None or isinstance(owner, types.ModuleType | type)
        )
        is_plain = isinstance(function, types.FunctionType) and "<" not in function.__qualname__
        if not (is_plain or is_builtin):
            what = f"of type {type(function).__name__}"
            if isinstance(function, types.FunctionType):
                what = "a lambda" if self.name == "<lambda>" else "defined inside another function"
            raise TypeError(
                f"apply needs a top-level function, but {self.name} is {what}: define it with `def` at the "
                "top of a file, so that the calls of all clients can be computed together; pass arguments "
                "shared by all clients by keyword"
            )
        for word, value in static.items():
            try:
                _static_argument_key(value)
            except TypeError:
                raise TypeError(
                    f"apply: {self.name}() gets {word} by keyword, of type {type(value).__name__}, which may "
                    "change before the call is computed; pass only numbers, texts and tuples of them by "
                    "keyword"
                ) from None
        self.call: Function = partial(function, **static) if static else function
        code = getattr(function, "__code__", None)
        self._file = None if code is None else code.co_filename
        self._place = None if code is None else location_text(code.co_filename, code.co_firstlineno)

    @property
    def costs(self) -> list[str]:
        """Parameters of the function with names that apply() reserves for its own keywords."""
        code = getattr(getattr(self.call, "func", self.call), "__code__", None)
        names = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return [name for name in ("steps", "flops") if name in names]

    def __str__(self) -> str:
        return f"{self.name}()" if self._place is None else f"{self.name}() in {self._place}"

    def failing_line(self, error: BaseException) -> str:
        """Return the innermost line of the function's file in an error's traceback, as "file:line"."""
        lines = [frame for frame in traceback_frames(error) if frame[0] == self._file]
        return location_text(*lines[-1]) if lines else str(self._place or "torch")


class Shape(NamedTuple):
    """Shape of an argument or result: NUMBER (a plain number), SCALAR, or a width; and its number type."""

    width: int | str
    dtype: str = "float32"

    @property
    def columns(self) -> int:
        """Number of float32 columns in a row."""
        return 1 if isinstance(self.width, str) else float32_columns(self.width, self.dtype)


@dataclass(frozen=True, eq=False)
class Apply(Operation):
    """Function of the arguments of each node; payload: the plain numbers among them, in order.

    results: shapes of the results; () before the first trial.
    """

    function: UserFunction
    arguments: tuple[Shape, ...]
    device: torch.device
    results: tuple[Shape, ...] = ()

    @property
    def subject(self) -> str:
        widths = " and ".join(f"{shape.columns:,}" for shape in self.arguments)
        return f"{self.function} of {widths} numbers"

    @cached_property
    def _columns(self) -> int:
        """Number of float32 columns of all arguments and results of a node."""
        return sum(shape.columns for shape in self.arguments + self.results)

    def rows_at_once(self) -> int:
        most = _NUMBERS_AT_ONCE_CPU if self.device.type == "cpu" else _NUMBERS_AT_ONCE
        return max(1, most // self._columns)

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        inputs = self.inputs(nodes)
        try:
            with torch.no_grad():
                found = call_under_vmap(self.function.call, inputs)
        except (Exception, SystemExit) as error:
            raise self._explained(error) from error
        results = (found,) if isinstance(found, Tensor) else found
        return tuple([encoded_rows(values) for values in results])

    def trial(self, inputs: list[Tensor]) -> tuple[tuple[Shape, ...], bool]:
        """Return the shapes of the function's results for some rows, and True if it returns a tuple.

        Raises ValueError if the function fails, or returns a value that cannot become a handle.
        """

        @torch.no_grad()
        def call() -> Any:
            return torch.func.vmap(self.function.call)(*inputs)

        try:
            found = in_new_thread(call)
        except (Exception, SystemExit) as error:
            raise self._explained(error) from error
        results = found if isinstance(found, tuple | list) else [found]
        for values in results:
            if not isinstance(values, Tensor) or values.dim() not in (1, 2) or storage_type(values) is None:
                raise ValueError(f"{self.function} returns {_result_text(values)}; {_ALLOWED}")
        return tuple(map(_shape_of_result, results)), not isinstance(found, Tensor)

    def _explained(self, error: BaseException) -> BaseException:
        """Return the function's error as a ValueError that names its line."""
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            return error
        why = _TORCHS_ADVICE.sub("", describe(error).partition("\n")[0])
        where = f"{self.function.failing_line(error)}: {self.function.name}()"
        hint = f"; {_RULES}" if isinstance(error, RuntimeError) else ""  # errors of torch, such as vmap
        if isinstance(error, TypeError) and (costs := self.function.costs):
            hint = f"; apply uses the keyword {costs[0]}= for the cost of the call: rename the parameter"
        return ValueError(f"{where} failed: {why}{hint}")

    def inputs(self, nodes: list[GraphNode]) -> list[Tensor]:
        """Return the arguments, [N] or [N, width] each."""
        handles, numbers, inputs = 0, 0, []
        for shape in self.arguments:
            if shape.width == NUMBER:
                column = np.array([node.payload[numbers] for node in nodes], np.float32)
                inputs.append(numpy_to_device(column, self.device))
                numbers += 1
            else:
                rows, width = gather_inputs(nodes, handles), shape.width
                inputs.append(
                    rows.squeeze(1) if width == SCALAR else decoded_rows(rows, shape.dtype, int(width))
                )
                handles += 1
        return inputs

    def made_up(self) -> list[Tensor]:
        """Return arguments for one client, all ones."""
        return [
            torch.ones(1, device=self.device)
            if isinstance(shape.width, str)
            else torch.ones((1, shape.width), dtype=TYPES.get(shape.dtype), device=self.device)
            for shape in self.arguments
        ]


_ALLOWED = (
    "must be a tensor with no dimension or one (`flatten()` reduces several), of float32 or of "
    f"{', '.join(TYPES)}; or a tuple of such tensors"
)
_TORCHS_ADVICE = re.compile(r"\.\s*We don't support that yet, please .*? at \S+ ?\.?")  # for all releases
_RULES = (
    "it is computed for many clients at once: do not branch on a value (use torch.where) or read a value "
    "from a tensor, and pass random numbers as an argument"
)


def _result_text(values: object) -> str:
    if not isinstance(values, Tensor):
        return f"an object of type {type(values).__name__}"
    # Omit the dimension of the clients.
    return f"a tensor of shape {tuple(values.shape[1:])} and {values.dtype}"


@dataclass(frozen=True)
class PreparedFunction:
    """Function for arguments of certain shapes: its operation, and its results."""

    operation: Apply
    pools: tuple[VectorPool, ...]
    handles: tuple[tuple[Callable[[VectorEngine, int, Slot], Vector], int], ...]
    """For each result, the function that makes a handle of its slot, and its width."""
    is_tuple: bool


Signature = tuple[Any, ...]
"""Key for the shapes of arguments. For each: a width, a pair of width and type, NUMBER, or SCALAR."""


class Functions:
    """Functions that the clients of one engine apply, each prepared once for the shapes of its arguments.

    As in `jax.jit`, the key is the function and the values of its static arguments. If there are very many,
    the oldest are forgotten, and prepared again when needed.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[UserFunction, dict[Signature, PreparedFunction]]] = {}

    def apply(
        self, engine: FunctionEngine, function: Function, arguments: Sequence[Any], static: Mapping[str, Any]
    ) -> Any:
        """Return the pending results of `function`; see `Node.apply`. Raises TypeError or ValueError."""
        identity: Hashable = function
        try:
            if static:
                identity = (
                    function,
                    *[(word, _static_argument_key(value)) for word, value in static.items()],
                )
            known = self._known.get(identity)
        except TypeError:  # unhashable: not a function, or a mutable static argument
            known = None
        user_function, by_signature = known or self._new(identity, function, static)
        signature: list[Any] = []
        slots: list[Slot] = []
        numbers: list[float] = []
        for argument in arguments:
            kind = type(argument)
            if kind is Vector:
                signature.append(argument.width)
            elif kind is Scalar:
                signature.append(SCALAR)
            elif kind is EncodedVector:
                signature.append((argument.width, argument.dtype))
            elif isinstance(argument, int | float | np.floating | np.integer):
                signature.append(NUMBER)
                numbers.append(_exact_in_float32(argument, user_function, len(signature) - 1))
                continue
            else:
                argument = _argument_handle(engine, argument, user_function, len(signature))
                signature.append(argument.width if type(argument) is Vector else SCALAR)
            if argument.engine is not engine:
                raise ValueError("this vector belongs to another engine")
            slots.append(argument._slot or argument.stored())
        key, inputs, payload = tuple(signature), tuple(slots), tuple(numbers)
        prepared = by_signature.get(key)
        if prepared is None:
            prepared = by_signature[key] = _prepared(engine, user_function, _shapes(key), inputs, payload)
        outputs = engine.submit(prepared.operation, inputs, payload, prepared.pools)
        if not prepared.is_tuple:
            handle, width = prepared.handles[0]
            return handle(engine, width, outputs[0])
        pairs = zip(prepared.handles, outputs, strict=True)
        return tuple([handle(engine, width, slot) for (handle, width), slot in pairs])

    def _new(
        self, identity: Hashable, function: Function, static: Mapping[str, Any]
    ) -> tuple[UserFunction, dict[Signature, PreparedFunction]]:
        """Store a function with these static arguments. Raises TypeError if it cannot be stored."""
        made = UserFunction(function, static)
        if len(self._known) >= _FUNCTIONS_MAX:
            del self._known[next(iter(self._known))]
        return self._known.setdefault(identity, (made, {}))


def _static_argument_key(value: Any) -> Hashable:
    """Return a static argument with its type and sign (1 is not 1.0). Raises TypeError if it is mutable."""
    if isinstance(value, tuple):
        return tuple(map(_static_argument_key, value))
    hash(value)
    return type(value), value.hex() if isinstance(value, float) else value


def _shapes(signature: Signature) -> tuple[Shape, ...]:
    return tuple([Shape(*part) if isinstance(part, tuple) else Shape(part) for part in signature])


def _exact_in_float32(number: Any, function: UserFunction, index: int) -> float:
    """Return a plain number. Raises ValueError for a whole number that float32 cannot represent."""
    if isinstance(number, int | np.integer) and not -WHOLE_MAX <= number <= WHOLE_MAX:
        raise ValueError(
            f"argument {index} of {function} is {number}: whole numbers beyond {WHOLE_MAX:,} lose digits in "
            "float32; pass a number that is the same for all clients by keyword"
        )
    return float(number)


def _argument_handle(engine: FunctionEngine, argument: Any, function: UserFunction, index: int) -> Vector:
    if isinstance(argument, np.ndarray | Tensor | list):
        return known_values_handle(engine, argument)
    raise TypeError(
        f"argument {index} of {function} is of type {type(argument).__name__}; must be a vector, a scalar, a "
        "number or an array of numbers"
    )


def _prepared(
    engine: FunctionEngine,
    function: UserFunction,
    shapes: tuple[Shape, ...],
    inputs: tuple[Slot, ...],
    numbers: tuple[float, ...],
) -> PreparedFunction:
    """Try the function: this determines the shapes of its results, and raises its errors at the first use."""
    if not shapes:
        raise TypeError(f"{function} is applied without arguments; it needs at least one")
    operation = Apply(function, shapes, engine.device)
    try:
        results, is_tuple = operation.trial(operation.made_up())
    except ValueError:  # possibly due to the made-up arguments
        if any(slot.node is not None for slot in inputs):
            engine.flush()

        first = GraphNode(operation, inputs, numbers)
        engine.read_log.arrive(engine.flushes)
        found, is_tuple = engine.read_log.plain(lambda: operation.trial(operation.inputs([first])))
        results = tuple([Shape(*shape) for shape in found])
    if not results:
        raise ValueError(f"{function} returns nothing; {_ALLOWED}")
    pools = tuple([engine.pool(shape.columns) for shape in results])
    return PreparedFunction(
        replace(operation, results=results), pools, tuple(map(_handle_constructor, results)), is_tuple
    )


def _shape_of_result(values: Tensor) -> Shape:
    return Shape(SCALAR) if values.dim() == 1 else Shape(values.shape[1], str(storage_type(values)))


def _handle_constructor(result: Shape) -> tuple[Callable[[VectorEngine, int, Slot], Vector], int]:
    if isinstance(result.width, str):
        return Scalar.of_slot, 1
    made = Vector.of_slot if result.dtype == "float32" else partial(EncodedVector, dtype=result.dtype)
    return made, result.width
