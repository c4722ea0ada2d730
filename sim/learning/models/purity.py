"""Check by trial calls that a user-defined model is pure: equal calls must compute equal results.

All clients share the module, and each call inserts one client's parameters. State that a call leaves in the
module, and random numbers from generators of the process, would be lost or reach other clients.
"""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from sim.learning.architecture import Architecture
from sim.learning.models.modules.batch_norm import BatchNorm
from sim.learning.models.modules.dropout import Dropout

_OF_TORCH = frozenset(vars(nn.Module())) - {"training"}
_DEPTH = 4  # of nested containers and objects that are compared
_GENERATORS: Mapping[str, Callable[[], Any]] = {
    "torch": torch.default_generator.clone_state,
    "Python's random": random.getstate,
    "numpy.random": lambda: _numpy_state(),
}
_Attribute = tuple[str, str]
"""Path of a module in the model, and name of one of its attributes."""


def require_pure_calls(architecture: Architecture, flat: Tensor, batches: Sequence[Tensor]) -> None:
    """Raise ValueError for a model that draws, stores or changes something in a call, or returns no tensor.

    flat: parameters [P]. batches: two of equal shape, with different samples.
    """
    before = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            for training in (True, False):
                _Trial(architecture, flat, batches, training).require_pure()
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


class _Trial:
    """Calls of a model in one of its modes."""

    def __init__(
        self, architecture: Architecture, flat: Tensor, batches: Sequence[Tensor], training: bool
    ) -> None:
        self._architecture, self._flat, self._batches = architecture, flat, batches
        self._original = architecture.training_module if training else architecture.module
        self._training = training
        self._mode = "in training" if training else "in evaluation"

    def require_pure(self) -> None:
        """Raise ValueError as `require_pure_calls`."""
        first, second = self._batches
        self._require_no_draws()
        module = self._copy()
        start = _attribute_contents(module)
        self._call(module, first)
        once = _attribute_contents(module)
        self._call(module, second)
        twice, other = _attribute_contents(module), self._copy()
        self._call(other, second)
        elsewhere = _attribute_contents(other)
        attributes = dict.fromkeys([*start, *twice])
        # Values that are the same after any calls are only created late, such as a mask of the inputs' shape.
        changed = [
            attribute
            for attribute in attributes
            if not _attribute_or_absent(once, attribute)
            == _attribute_or_absent(twice, attribute)
            == _attribute_or_absent(elsewhere, attribute)
        ]
        if changed:
            self._require_not_read(changed)
        elif self._training and (
            late := [
                attribute
                for attribute in attributes
                if _attribute_or_absent(start, attribute) != _attribute_or_absent(once, attribute)
            ]
        ):
            self._require_same_evaluation(module.eval(), late)

    def _copy(self) -> nn.Module:
        return copy.deepcopy(self._original)

    def _call(self, module: nn.Module, x: Tensor) -> Tensor:
        """Return the outputs of a call, which must not change parameters and buffers."""
        values = self._architecture.named(self._flat)
        trained = {part.name for part in self._architecture.slices} - self._untrained
        values |= {name: values[name].detach().clone().requires_grad_(self._training) for name in trained}
        kept = {name: value.detach().clone() for name, value in values.items()}
        given, registered = dict(values), _registered(module)
        outputs = functional_call(module, values, (x,))
        for name, value in given.items():
            if values[name] is not value or not torch.equal(value.detach(), kept[name]):
                self._require_unchanged(module, name)
        if new := _registered(module) - registered:
            raise ValueError(
                f"{_path_text(module, min(new)[0])} creates {min(new)[1]} in forward, unknown to the "
                "optimizer: create it in __init__"
            )
        if not isinstance(outputs, Tensor):
            hint = f"return only its {'.logits' if hasattr(outputs, 'logits') else 'tensor of outputs'}"
            found = f"an object of type {type(outputs).__name__}"
            raise ValueError(f"{type(module).__name__} returns {found} {self._mode}, not a tensor: {hint}")
        return outputs

    @property
    def _untrained(self) -> set[str]:
        return {part.name for part in self._architecture.untrained}

    def _require_unchanged(self, module: nn.Module, name: str) -> None:
        """Raise ValueError for a parameter or buffer that a call changed, unless it may change."""
        path, _, own = name.rpartition(".")
        part = module.get_submodule(path)
        if name in self._untrained and isinstance(part, BatchNorm | Dropout):
            if self._training:
                return
            raise ValueError(
                f"{_path_text(module, path)} is in training mode during evaluation, when statistics must not "
                "change and nothing is dropped: leave it in evaluation mode after `eval()`"
            )
        if name in self._architecture.constants:
            kind = "buffer" if own in part._buffers else "frozen parameter"
            raise ValueError(
                f"{_path_text(module, path)} changes its {kind} {own}, which all clients share, in forward: "
                "compute it from the inputs, or use nn.BatchNorm1d, with separate statistics for "
                "each client"
            )
        raise ValueError(
            f"{_path_text(module, path)} changes its parameter {own} in forward, which only the "
            f"optimizer may do: compute with a new tensor, as in `{own} = self.{own}.clamp(-1, 1)`"
        )

    def _require_no_draws(self) -> None:
        """Raise ValueError for random numbers in a call, with the innermost module that draws them."""
        module, begun = self._copy(), list[dict[str, Any]]()
        calls = list[tuple[str, dict[str, Any], dict[str, Any]]]()

        def enter(*_: Any) -> None:
            begun.append({name: state() for name, state in _GENERATORS.items()})

        for path, part in module.named_modules():

            def leave(*_: Any, path: str = path) -> None:
                calls.append((path, begun.pop(), {name: state() for name, state in _GENERATORS.items()}))

            part.register_forward_pre_hook(enter)
            part.register_forward_hook(leave)
        self._call(module, self._batches[0])
        for path, before, after in calls:  # compared afterwards: torch.func.grad hides values
            drawn = [
                name
                for name in _GENERATORS
                if _comparable_state(before[name]) != _comparable_state(after[name])
            ]
            if drawn:
                problem = (
                    f"{_path_text(module, path)} draws random numbers of {drawn[0]} {self._mode}, which "
                    "ignore client and seed: use nn.Dropout, which depends on both, or remove the draws"
                )
                with _RandomnessRefusal(problem):  # so that the error is raised in the line that draws
                    self._call(self._copy(), self._batches[0])
                raise ValueError(problem)

    def _require_not_read(self, changed: Sequence[_Attribute]) -> None:
        """Raise ValueError if a call reads these attributes as the previous call left them."""
        for training in (True, False):
            trial = _Trial(self._architecture, self._flat, self._batches, training)
            trial._call(trial._copy(), self._batches[0])  # other errors of this mode are raised unchanged
            for attribute in changed:
                module = trial._copy()
                part = module.get_submodule(attribute[0])
                vars(part)[attribute[1]] = _Unreadable()
                try:
                    trial._call(module, self._batches[0])
                except Exception:
                    raise ValueError(
                        f"{_path_text(module, attribute[0])} keeps self.{attribute[1]} between calls, which "
                        "may belong to another client: use a local variable, or compute it in __init__ (only "
                        "parameters and the statistics of batch norms are kept)"
                    ) from None

    def _require_same_evaluation(self, module: nn.Module, late: Sequence[_Attribute]) -> None:
        """Raise ValueError if a module evaluates differently after training than before."""
        evaluating = _Trial(self._architecture, self._flat, self._batches, False)
        x = self._batches[0]
        outputs = [evaluating._call(each, x).nan_to_num() for each in (module, evaluating._copy())]
        if not torch.equal(*outputs):
            path, name = late[0]
            raise ValueError(
                f"{_path_text(module, path)} sets self.{name} in training and uses it in evaluation, but "
                "it is not stored with a client's model: use self.training to distinguish the modes"
            )


class _RandomnessRefusal(TorchFunctionMode):
    """Mode in which a function of torch that draws random numbers raises ValueError."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self._problem = problem

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        before = _comparable_state(torch.default_generator)
        found = func(*args, **(kwargs or {}))
        if _comparable_state(torch.default_generator) != before:
            raise ValueError(self._problem)
        return found


class _Unreadable:
    """Object on which every operation except replacement fails."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise LookupError

    __getattr__ = __bool__ = __len__ = __iter__ = __eq__ = __getitem__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def _numpy_state() -> tuple[bytes, int]:
    """Return the state of numpy's global generator in a form that is fast to compare."""
    _, numbers, position, *_ = np.random.get_state()
    return np.asarray(numbers).tobytes(), int(position)


def _comparable_state(state: Any) -> Any:
    return state.get_state().tolist() if isinstance(state, torch.Generator) else state


def _path_text(module: nn.Module, path: str) -> str:
    """Describe a part of a model: its class and its path."""
    kind = type(module.get_submodule(path)).__name__
    return f"{kind} (at {path})" if path else kind


def _registered(module: nn.Module) -> set[_Attribute]:
    """Return the parameters, buffers and modules of each part."""
    return {
        (path, name)
        for path, part in module.named_modules()
        for own in (part._parameters, part._buffers, part._modules)
        for name in own
    }


def _attribute_contents(module: nn.Module) -> dict[_Attribute, Any]:
    """Return the contents of the attributes of a model's parts, in a comparable form."""
    return {
        (path, name): _comparable_content(value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in _OF_TORCH
    }


def _attribute_or_absent(held: Mapping[_Attribute, Any], attribute: _Attribute) -> Any:
    return held.get(attribute, "absent")


def _comparable_content(value: Any, depth: int = 0) -> Any:
    if isinstance(value, Tensor):
        if value.is_meta:
            return "tensor", tuple(value.shape)
        data = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return "tensor", value.dtype, tuple(value.shape), data.numpy().tobytes()
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype):
        return type(value), repr(value)
    if isinstance(value, np.random.Generator):
        return "generator", str(value.bit_generator.state)
    if isinstance(value, random.Random):
        return "generator", value.getstate()
    if depth == _DEPTH or isinstance(value, nn.Module | type) or callable(value):
        return type(value)
    if isinstance(value, Mapping):
        return type(value), [(repr(key), _comparable_content(each, depth + 1)) for key, each in value.items()]
    if isinstance(value, Sequence | set | frozenset) or hasattr(value, "popleft"):
        return type(value), [_comparable_content(each, depth + 1) for each in value]
    return type(value), _comparable_content(dict(getattr(value, "__dict__", {})), depth + 1)
