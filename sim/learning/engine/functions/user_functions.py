"""Functions of a protocol's own (`apply`): deferred, and computed for all clients at once."""

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
from actors.source_location import of_error, written
from sim.learning.engine.backends.batched import in_frames_of_its_own, vmapped
from sim.learning.engine.functions.encoded import (
    TYPES,
    Encoded,
    columns_of,
    decoded_rows,
    encoded_rows,
    type_of,
)
from sim.learning.engine.graph.nodes import GraphNode, Slot
from sim.learning.engine.graph.operations import Operation, gather_inputs
from sim.learning.engine.handles import WHOLE_MAX, Scalar, Vector, VectorEngine, known
from sim.learning.engine.memory import is_out_of_memory
from sim.learning.engine.replay_log import ReadLog
from sim.learning.engine.vector_pool import VectorPool, to_device

NUMBER, SCALAR = "number", "scalar"
_NUMBERS_AT_ONCE = 1 << 26  # of all inputs and outputs of a call
_NUMBERS_AT_ONCE_CPU = 1 << 19  # so few that they stay near, in its cache, from one operation to the next
_FUNCTIONS_MAX = 256  # that are remembered

Function = Callable[..., Any]


class FunctionEngine(VectorEngine, Protocol):
    """The part of an engine that functions use."""

    device: torch.device
    read_log: ReadLog
    flushes: int

    def pool(self, width: int) -> VectorPool: ...
    def flush(self) -> None: ...
    def submit(
        self, operation: Operation, inputs: tuple[Slot, ...], payload: object, pools: Sequence[VectorPool]
    ) -> list[Slot]: ...


class UserFunction:
    """A function of tensors, with the arguments by keyword that are the same in all of its calls.

    Raises TypeError for what may change between a call and its computation: methods, lambdas, functions
    inside of others, and static arguments that are not hashable.
    """

    def __init__(self, function: Function, static: Mapping[str, Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        owner = getattr(function, "__self__", None)
        is_builtin = isinstance(function, types.BuiltinFunctionType) and (
            owner is None or isinstance(owner, types.ModuleType | type)
        )
        is_plain = isinstance(function, types.FunctionType) and "<" not in function.__qualname__
        if not (is_plain or is_builtin):
            raise TypeError(
                f"apply takes a function that is written at the top of a file, not {self.name}, a "
                f"{type(function).__name__}: write it there with `def`, so that the calls of all clients can "
                "be computed together; what is the same for all clients goes by keyword"
            )
        for word, value in static.items():
            try:
                _typed(value)
            except TypeError:
                raise TypeError(
                    f"apply: {self.name}() gets {word} by keyword, a {type(value).__name__}, which may be "
                    "another by the time it is computed; by keyword go numbers, texts and tuples of them"
                ) from None
        self.call: Function = partial(function, **static) if static else function
        code = getattr(function, "__code__", None)
        self._file = None if code is None else code.co_filename
        self._place = None if code is None else written(code.co_filename, code.co_firstlineno)

    @property
    def costs(self) -> list[str]:
        """Its parameters whose names apply() takes for itself, by keyword."""
        code = getattr(getattr(self.call, "func", self.call), "__code__", None)
        names = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return [name for name in ("steps", "flops") if name in names]

    def __str__(self) -> str:
        return f"{self.name}()" if self._place is None else f"{self.name}() in {self._place}"

    def line_of(self, error: BaseException) -> str:
        """The innermost line of the function's own file that an error came through, as "file:line"."""
        lines = [frame for frame in of_error(error) if frame[0] == self._file]
        return written(*lines[-1]) if lines else str(self._place or "torch")


class Shape(NamedTuple):
    """One argument or result: NUMBER (a plain number), SCALAR, or how many numbers; and their type."""

    width: int | str
    dtype: str = "float32"

    @property
    def columns(self) -> int:
        """Float32 columns of a row that holds it."""
        return 1 if isinstance(self.width, str) else columns_of(self.width, self.dtype)


@dataclass(frozen=True, eq=False)
class Apply(Operation):
    """A function of the arguments of each node; payload: those of them that are plain numbers, in order.

    results: what comes of it; () before the first trial.
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
        """Float32 columns of all arguments and results of a node."""
        return sum(shape.columns for shape in self.arguments + self.results)

    def rows_at_once(self) -> int:
        most = _NUMBERS_AT_ONCE_CPU if self.device.type == "cpu" else _NUMBERS_AT_ONCE
        return max(1, most // self._columns)

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        inputs = self.inputs(nodes)
        try:
            with torch.no_grad():
                found = vmapped(self.function.call, inputs)
        except (Exception, SystemExit) as error:
            raise self._explained(error) from error
        results = (found,) if isinstance(found, Tensor) else found
        return tuple([encoded_rows(values) for values in results])

    def trial(self, inputs: list[Tensor]) -> tuple[tuple[Shape, ...], bool]:
        """What the function returns for some rows, and whether in a tuple.

        ValueError where it fails, or returns what can be no handle.
        """

        @torch.no_grad()
        def call() -> Any:
            return torch.func.vmap(self.function.call)(*inputs)

        try:
            found = in_frames_of_its_own(call)
        except (Exception, SystemExit) as error:
            raise self._explained(error) from error
        results = found if isinstance(found, tuple | list) else [found]
        for values in results:
            if not isinstance(values, Tensor) or values.dim() not in (1, 2) or type_of(values) is None:
                raise ValueError(f"{self.function} returns {_described(values)}; {_ALLOWED}")
        return tuple(map(_shape_of_result, results)), not isinstance(found, Tensor)

    def _explained(self, error: BaseException) -> BaseException:
        """What went wrong in the function, as a ValueError that names its line."""
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            return error
        why = _TORCHS_ADVICE.sub("", describe(error).partition("\n")[0])
        where = f"{self.function.line_of(error)}: {self.function.name}()"
        hint = f"; {_RULES}" if isinstance(error, RuntimeError) else ""  # torch's, such as those of vmap
        if isinstance(error, TypeError) and (costs := self.function.costs):
            hint = f"; by {costs[0]}= apply is told what the call costs: call the parameter otherwise"
        return ValueError(f"{where} failed: {why}{hint}")

    def inputs(self, nodes: list[GraphNode]) -> list[Tensor]:
        """The arguments, [N] or [N, width] each."""
        handles, numbers, inputs = 0, 0, []
        for shape in self.arguments:
            if shape.width == NUMBER:
                column = np.array([node.payload[numbers] for node in nodes], np.float32)
                inputs.append(to_device(column, self.device))
                numbers += 1
            else:
                rows, width = gather_inputs(nodes, handles), shape.width
                inputs.append(
                    rows.squeeze(1) if width == SCALAR else decoded_rows(rows, shape.dtype, int(width))
                )
                handles += 1
        return inputs

    def made_up(self) -> list[Tensor]:
        """Arguments for one client, all ones."""
        return [
            torch.ones(1, device=self.device)
            if isinstance(shape.width, str)
            else torch.ones((1, shape.width), dtype=TYPES.get(shape.dtype), device=self.device)
            for shape in self.arguments
        ]


_ALLOWED = (
    "must be a tensor without dimensions or with one (`flatten()` makes one of several), of float32 or of "
    f"{', '.join(TYPES)}; or a tuple of such tensors"
)
_TORCHS_ADVICE = re.compile(r"\.\s*We don't support that yet, please .*? at \S+ ?\.?")  # in all its releases
_RULES = (
    "it is computed for many clients at once: no branch may depend on a number (torch.where does), none may "
    "be taken out of a tensor, and random numbers go in as an argument"
)


def _described(values: object) -> str:
    if not isinstance(values, Tensor):
        return f"a {type(values).__name__}"
    # Without the dimension of the clients.
    return f"a tensor of shape {tuple(values.shape[1:])} and {values.dtype}"


@dataclass(frozen=True)
class Prepared:
    """A function for arguments of certain shapes: the operation, and what comes of it."""

    operation: Apply
    pools: tuple[VectorPool, ...]
    handles: tuple[tuple[Callable[[VectorEngine, int, Slot], Vector], int], ...]
    """For each result, the function that makes a handle of its slot, and its width."""
    is_tuple: bool


Signature = tuple[Any, ...]
"""A key for the shapes of arguments: a width, a width and a type, NUMBER or SCALAR for each."""


class Functions:
    """The functions that the clients of one engine apply, each prepared once for its arguments' shapes.

    As `jax.jit` does it, one is known by the function and the values of its static arguments. Those that came
    first are forgotten if there are very many, and prepared anew should they come again.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[UserFunction, dict[Signature, Prepared]]] = {}

    def apply(
        self, engine: FunctionEngine, function: Function, arguments: Sequence[Any], static: Mapping[str, Any]
    ) -> Any:
        """What `function` makes of the arguments, pending; see `Node.apply`. TypeError, ValueError."""
        identity: Hashable = function
        try:
            if static:
                identity = (function, *[(word, _typed(value)) for word, value in static.items()])
            known = self._known.get(identity)
        except TypeError:  # what is not hashable is no function, or a static argument that may change
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
            elif kind is Encoded:
                signature.append((argument.width, argument.dtype))
            elif isinstance(argument, int | float | np.floating | np.integer):
                signature.append(NUMBER)
                numbers.append(_exact(argument, user_function, len(signature) - 1))
                continue
            else:
                argument = _array(engine, argument, user_function, len(signature))
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
    ) -> tuple[UserFunction, dict[Signature, Prepared]]:
        """Remember a function with these static arguments. TypeError for what cannot be remembered."""
        made = UserFunction(function, static)
        if len(self._known) >= _FUNCTIONS_MAX:
            del self._known[next(iter(self._known))]
        return self._known.setdefault(identity, (made, {}))


def _typed(value: Any) -> Hashable:
    """A static argument with its type and sign: 1 is not 1.0, nor 0.0 -0.0. TypeError if it may change."""
    if isinstance(value, tuple):
        return tuple(map(_typed, value))
    hash(value)
    return type(value), value.hex() if isinstance(value, float) else value


def _shapes(signature: Signature) -> tuple[Shape, ...]:
    return tuple([Shape(*part) if isinstance(part, tuple) else Shape(part) for part in signature])


def _exact(number: Any, function: UserFunction, place: int) -> float:
    """A plain number; ValueError for a whole number that float32 does not hold."""
    if isinstance(number, int | np.integer) and not -WHOLE_MAX <= number <= WHOLE_MAX:
        raise ValueError(
            f"argument {place} of {function} is {number}: whole numbers beyond {WHOLE_MAX:,} lose digits as "
            "float32; one that is the same for all clients goes by keyword"
        )
    return float(number)


def _array(engine: FunctionEngine, argument: Any, function: UserFunction, place: int) -> Vector:
    if isinstance(argument, np.ndarray | Tensor | list):
        return known(engine, argument)
    raise TypeError(
        f"argument {place} of {function} is a {type(argument).__name__}; must be a vector, a scalar, a "
        "number or an array of numbers"
    )


def _prepared(
    engine: FunctionEngine,
    function: UserFunction,
    shapes: tuple[Shape, ...],
    inputs: tuple[Slot, ...],
    numbers: tuple[float, ...],
) -> Prepared:
    """Try the function: this tells the shapes of its results, and mistakes show where it is first applied."""
    if not shapes:
        raise TypeError(f"{function} is applied to nothing; it needs an argument at least")
    operation = Apply(function, shapes, engine.device)
    try:
        results, is_tuple = operation.trial(operation.made_up())
    except ValueError:  # perhaps by those numbers only
        if any(slot.node is not None for slot in inputs):
            engine.flush()

        first = GraphNode(operation, inputs, numbers)
        engine.read_log.arrive(engine.flushes)
        found, is_tuple = engine.read_log.plain(lambda: operation.trial(operation.inputs([first])))
        results = tuple([Shape(*shape) for shape in found])
    if not results:
        raise ValueError(f"{function} returns nothing; {_ALLOWED}")
    pools = tuple([engine.pool(shape.columns) for shape in results])
    return Prepared(replace(operation, results=results), pools, tuple(map(_handle, results)), is_tuple)


def _shape_of_result(values: Tensor) -> Shape:
    return Shape(SCALAR) if values.dim() == 1 else Shape(values.shape[1], str(type_of(values)))


def _handle(result: Shape) -> tuple[Callable[[VectorEngine, int, Slot], Vector], int]:
    if isinstance(result.width, str):
        return Scalar.of_slot, 1
    made = Vector.of_slot if result.dtype == "float32" else partial(Encoded, dtype=result.dtype)
    return made, result.width
