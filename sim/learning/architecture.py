"""`Architecture`: a model as a pure function of one flat parameter vector.

The engine stores a client's parameters as one vector of P float32 numbers. Modules are built on the meta
device, where they have shapes but no values, and a call inserts the values of a vector. That works only for
modules without other state: the running statistics of coterie's batch norms are parameters, too. Values that
never change, such as frozen parameters, are in no vector: all clients share them.
"""

import copy
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from protocols.framework.objectives import AdapterSlices, Embedding, Parameters, ParameterSlice
from sim.kernel.random import key
from sim.learning.flops import flops_counted

_COUNTED = 2  # samples whose operations are counted: some norms need two


def _reset_affine(parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
    """Initialize linear and convolution layers as PyTorch: weight and bias uniform in +-1/sqrt(fan in)."""
    weight = parameters["weight"]
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    if "bias" in parameters:
        bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
        nn.init.uniform_(parameters["bias"], -bound, bound, generator=generator)


def _reset_norm(parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
    for name, parameter in parameters.items():
        parameter.fill_(1.0 if name == "weight" else 0.0)


_Reset = Callable[[Mapping[str, Tensor], torch.Generator], None]
_RESETS: Mapping[type[nn.Module], _Reset] = {
    nn.Linear: _reset_affine,
    nn.Conv1d: _reset_affine,
    nn.Conv2d: _reset_affine,
    nn.Conv3d: _reset_affine,
    nn.GroupNorm: _reset_norm,
    nn.LayerNorm: _reset_norm,
}


def _reset_of(module: nn.Module) -> _Reset | None:
    """Return the function that initializes a module's direct parameters; None if none is known."""
    return _RESETS.get(type(module)) or getattr(module, "reset", None)


class Architecture:
    """Model as a pure function of a flat vector of P parameters.

    `key` describes it ("mlp(hidden=[100]) (64,) -> 10") and is equal for equal architectures, so that the
    engine can group clients by it. `slices` lists the parameters in the vector's order, the order of
    `module.named_parameters()`; `numel` is P.

    `untrained` are the parameters that no optimizer changes. They include the `statistics` of batch norms,
    and `drawn`: random parameters that the engine draws before each training step. A module lists the names
    of both kinds in its attributes `untrained` and `draws`. `module` evaluates; `training_module` is its copy
    in training mode.
    """

    start: Tensor | None = None
    """Initial parameters [P] of all clients, if the scenario gives them; by default they are drawn."""
    examples: Tensor | None = None
    """Samples whose operations are counted; by default zeros, which some models do not accept."""

    def __init__(
        self,
        module: nn.Module,
        key: str,
        input_shape: tuple[int, ...],
        constants: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """Set up the model. constants: shared, unchanging buffers and frozen parameters, on the CPU.

        Raises TypeError for state other than parameters, and for parameters without a known initialization.
        """
        self.constants = dict(constants)
        stateful = [name for name, _ in module.named_buffers() if name not in constants]
        if stateful:
            raise TypeError(
                f"{key}: a model may have parameters only, but it has the buffers {', '.join(stateful)} "
                "(if these are batch norms, use GroupNorm, or "
                "sim.learning.models.modules.batch_norm.replace_batch_norms)"
            )
        for path, part in module.named_modules():
            if self._is_unknown(part):
                raise TypeError(
                    f"{key}: no initialization is known for {type(part).__name__} (at {path or 'the top'}); "
                    f"it has no method reset, and is none of {', '.join(kind.__name__ for kind in _RESETS)}"
                )
        self._modules = _ModulesPerThread(module, _module_on_meta(module), threading.get_ident())
        self.key = key
        self.input_shape = input_shape
        self._constants_on: dict[torch.device, Mapping[str, Tensor]] = {torch.device("cpu"): self.constants}
        shapes = {
            name: tuple(parameter.shape)
            for name, parameter in module.named_parameters()
            if name not in constants
        }
        self._sizes = [math.prod(shape) for shape in shapes.values()]
        *offsets, self.numel = accumulate(self._sizes, initial=0)
        self.slices = tuple(map(ParameterSlice, shapes, shapes.values(), offsets))
        self._parts: dict[str, slice] = {}  # those asked for: methods ask in every step
        self._by_name = {part.name: part for part in self.slices}
        self.untrained = self._named_by("untrained")
        self.drawn = self._named_by("draws")
        running = ("running_mean", "running_var")
        self.statistics = tuple(p for p in self.untrained if p.name.rpartition(".")[2] in running)
        # torch cannot vmap them.
        self.is_recurrent = any(isinstance(m, nn.RNNBase | nn.LSTMCell) for m in module.modules())
        self.has_convolution = any(isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d) for m in module.modules())

    @property
    def module(self) -> nn.Module:
        """Model in evaluation mode."""
        return self._modules.evaluating

    @property
    def training_module(self) -> nn.Module:
        """Copy of the model in training mode."""
        return self._modules.training

    def new_module(self) -> nn.Module:
        """Return a new copy of the model on the meta device: shapes without values."""
        return copy.deepcopy(self._modules.unused)

    def _named_by(self, attribute: str) -> tuple[ParameterSlice, ...]:
        """Return the parameters that modules list in this attribute."""
        names = {
            f"{path}.{name}".removeprefix(".")
            for path, part in self.module.named_modules()
            for name in getattr(part, attribute, ())
        }
        return tuple(part for part in self.slices if part.name in names)

    def _is_unknown(self, part: nn.Module) -> bool:
        """Return True if a module has parameters without a known initialization."""
        return _reset_of(part) is None and any(True for _ in part.parameters(recurse=False))

    def __repr__(self) -> str:
        return f"<Architecture {self.key}, {self.numel} parameters>"

    @cached_property
    def adapters(self) -> tuple[AdapterSlices, ...]:
        """Low-rank adapters: the modules with the parameters `lora_a` and `lora_b` in the vector.

        Such a module may also have the parameter `merged`, and the number `scale`, 1 by default.
        """
        found = []
        for path, part in self.module.named_modules():
            names = ("lora_a", "lora_b", "merged")
            a, b, merged = [self._by_name.get(f"{path}.{name}".removeprefix(".")) for name in names]
            if a is not None and b is not None:
                found.append(AdapterSlices(a, b, merged, float(getattr(part, "scale", 1.0))))
        return tuple(found)

    @cached_property
    def untrained_columns(self) -> Tensor:
        """Columns of `untrained` in the flat vector, int64."""
        spans = [torch.arange(part.offset, part.offset + part.numel) for part in self.untrained]
        return torch.cat(spans) if spans else torch.empty(0, dtype=torch.int64)

    @cached_property
    def drawn_columns(self) -> Tensor:
        """Column of each parameter of `drawn`, which is a single number, int64."""
        return torch.tensor([part.offset for part in self.drawn], dtype=torch.int64)

    @property
    def constant_bytes(self) -> int:
        """Memory of the constants, with one copy for all clients."""
        return sum(each.nbytes for each in self.constants.values())

    def set_untrained(self, flat: Tensor, values: Tensor | None) -> None:
        """Set the untrained parameters of `flat` [N, P], in place, to `values` [N, U]; None if U = 0."""
        if values is None:
            return
        columns = self.untrained_columns  # a local variable, as threads may use several devices
        if columns.device != flat.device:
            columns = self.untrained_columns = columns.to(flat.device)
        flat.index_copy_(1, columns, values)

    def clear_untrained(self, flat: Tensor) -> None:
        """Set the untrained columns of `flat` [N, P] to 0, in place."""
        if self.untrained:
            flat.index_fill_(1, self.untrained_columns.to(flat.device), 0.0)

    def part(self, name: str, row: int | None = None) -> slice:
        """Return a part's slice of the flat vector: a parameter, a row of it, or all with a prefix ("head").

        Raises ValueError for an unknown name or row.
        """
        if row is None:
            if not isinstance(name, str):
                return self._columns_of(name)  # raises
            columns = self._parts.get(name)
            if columns is None:
                columns = self._parts[name] = self._columns_of(name)
            return columns
        whole = self._slice(name)
        rows, *others = whole.shape
        if not 0 <= row < rows:
            raise ValueError(f"{name} has the rows 0 to {rows - 1}, not {row}")
        width = math.prod(others)
        return slice(whole.offset + row * width, whole.offset + (row + 1) * width)

    def _columns_of(self, name: str) -> slice:
        """Return the slice of the parameter `name`, or of all with this prefix."""
        own = [part for part in self.slices if part.name == name or part.name.startswith(f"{name}.")]
        if not own:
            parts = dict.fromkeys(part.name.partition(".")[0] for part in self.slices)
            raise ValueError(f'{self.key} has no part "{name}"; it has {", ".join(parts)}')
        first, end = own[0].offset, own[-1].offset + own[-1].numel
        if end - first != sum(part.numel for part in own):
            raise ValueError(f'{self.key}: the part "{name}" is not contiguous')
        return slice(first, end)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of the parameter `name`. Raises ValueError for an unknown name."""
        return self._slice(name).shape

    def tensor(self, parameters: Parameters, name: str) -> Tensor:
        """Return one parameter by its full name, in its shape. Raises ValueError for an unknown name."""
        part = self._slice(name)
        if not isinstance(parameters, Tensor):
            return parameters[name]
        piece = parameters.narrow(-1, part.offset, part.numel)
        return piece.view((*parameters.shape[:-1], *part.shape))

    def _slice(self, name: str) -> ParameterSlice:
        if name not in self._by_name:
            raise ValueError(
                f'{self.key} has no parameter "{name}"; it has {", ".join(part.name for part in self.slices)}'
            )
        return self._by_name[name]

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the parameters by name, as views of a flat vector [P]; for stacked vectors [N, P], they are
        [N, *shape]."""
        parts = flat.split(self._sizes, dim=-1)
        return {
            part.name: piece.view((*flat.shape[:-1], *part.shape))
            for part, piece in zip(self.slices, parts, strict=True)
        }

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return stacked parameters [N, *shape] as a new tensor [N, P], the reverse of `unflatten`."""
        return torch.cat([parameters[part.name].reshape(-1, part.numel) for part in self.slices], dim=1)

    def named(self, parameters: Parameters) -> dict[str, Tensor]:
        """Return the parameters and the constants by name, in a new dictionary."""
        named = self.unflatten(parameters) if isinstance(parameters, Tensor) else dict(parameters)
        if self.constants:
            device = next(iter(named.values())).device
            if device not in self._constants_on:
                self._constants_on[device] = {name: each.to(device) for name, each in self.constants.items()}
            named |= self._constants_on[device]
        return named

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Return outputs [B, K], in evaluation, of parameters (flat [P], or by name) and inputs [B, ...].

        Pure, for use inside vmap and grad.
        """
        return torch.func.functional_call(self.module, self.named(parameters), (x,))

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        """Return the outputs and the representations before the scores.

        Raises TypeError unless the model is decoupled.
        """
        self.require_decoupled()
        return torch.func.functional_call(self.module, self.named(parameters), (x,), {"embed": True})

    def require_decoupled(self) -> None:
        """Raise TypeError unless the model is decoupled into a backbone and a head."""
        if not getattr(self.module, "is_decoupled", False):
            raise TypeError(f'{self.key}: has no representations; use model.name = "decoupled"')

    def starting_parameters(self, seed: int, *client: int) -> Tensor:
        """Return the parameters [P] at a run's start: those of a start file, if one was set; otherwise drawn.

        Drawn parameters are the same for all clients without `client`, and else those of client number
        `client`.
        """
        if self.start is not None:
            return self.start.clone()
        drawn = key(seed, "initial parameters", *client) >> 1
        return self.initial(torch.Generator().manual_seed(drawn))

    def initial(self, generator: torch.Generator) -> Tensor:
        """Return initial parameters [P], float32, on the generator's device, drawn in the vector's order.

        They equal, bit for bit, the parameters that the module's constructor draws from a global generator in
        the same state.
        """
        flat = torch.empty(self.numel, device=generator.device)
        parameters = self.unflatten(flat)
        modules = dict(self.module.named_modules())
        owners = dict.fromkeys(part.name.rpartition(".")[0] for part in self.slices)
        for path in owners:
            own = {
                name: parameters[f"{path}.{name}".removeprefix(".")]
                for name, _ in modules[path].named_parameters(recurse=False)
                if f"{path}.{name}".removeprefix(".") in parameters
            }
            reset = _reset_of(modules[path])
            assert reset is not None  # the constructor checked it
            reset(own, generator)
        return flat

    @cached_property
    def forward_flops_per_sample(self) -> int:
        """Floating-point operations to evaluate one sample."""
        return self._count(training=False)[0]

    @property
    def training_flops_per_sample(self) -> int:
        """Floating-point operations of one sample's forward and backward pass, projections included."""
        return self._of_training[0]

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Operations of a training step without a formula; counts of FLOPs include estimates for them."""
        return self._of_training[1]

    @property
    def training_bytes_per_sample(self) -> int:
        """Memory that the forward pass of one sample keeps for the backward pass; 0 if unknown."""
        return self._of_training[2]

    @cached_property
    def _of_training(self) -> tuple[int, tuple[str, ...], int]:
        try:
            return self._count(training=True, kept=_KeptMemoryCounter())
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
            return self._count(training=True)  # its forward pass uses torch.func, which has no hooks

    def _count(
        self, *, training: bool, kept: "_KeptMemoryCounter | None" = None
    ) -> tuple[int, tuple[str, ...], int]:
        """Count the operations of products and convolutions; without any, 2 per parameter and pass.

        Also returns the names of uncounted operations, and the bytes kept for the backward pass.
        """
        # With values: on the meta device, torch would load its compiler, which takes seconds.
        flat = self.initial(torch.Generator().manual_seed(0)).requires_grad_(training)
        x = torch.zeros(_COUNTED, *self.input_shape) if self.examples is None else self.examples
        noted = kept.noted(but=[flat, x, *self.constants.values()]) if kept else nullcontext()
        with flops_counted() as counter, torch.set_grad_enabled(training), noted:
            if training and getattr(self.module, "projection", None) is not None:
                embedding = self.embed(flat, x)
                assert embedding.projections is not None
                (embedding.scores.sum() + embedding.projections.sum()).backward()
            else:
                output = self.forward(flat, x)
                if training:
                    output.sum().backward()
        per_sample = counter.total // len(x) or (4 if training else 2) * self.numel
        return per_sample, tuple(sorted(counter.uncounted)), kept.total_bytes // len(x) if kept else 0


class _KeptMemoryCounter:
    """Counter of the memory that is kept for backward passes."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._counted: set[int] = set()

    def noted(self, but: Sequence[Tensor]) -> saved_tensors_hooks:
        """Return a context that counts kept memory, except that of some tensors and their views."""
        self._counted.update(each.untyped_storage().data_ptr() for each in but)
        return saved_tensors_hooks(self._note, lambda kept: kept)

    def _note(self, kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        if storage.data_ptr() not in self._counted:
            self._counted.add(storage.data_ptr())
            self.total_bytes += storage.nbytes()
        return kept


class _ModulesPerThread(threading.local):
    """Model in both modes; a separate copy for each thread, as a call replaces parameters by values.

    owner: the thread that uses `module` itself; others use copies of `unused`, which is never called.
    """

    def __init__(self, module: nn.Module, unused: nn.Module, owner: int = 0) -> None:
        self.unused = unused
        own = module if threading.get_ident() == owner else copy.deepcopy(unused)
        self.evaluating = own.eval()
        self.training = copy.deepcopy(own).train()

    def __reduce__(self) -> tuple[Any, ...]:
        return _ModulesPerThread, (self.unused, self.unused)


class OwnArchitecture(Architecture):
    """Architecture of a user-defined model, which `drawn` creates from a seed with its initial values."""

    def __init__(
        self, drawn: Callable[[int], nn.Module], key: str, input_shape: tuple[int, ...], seed: int = 0
    ) -> None:
        """Set up the model. seed: seed of the model whose buffers and frozen parameters all clients share."""
        module = drawn(seed)
        self._drawn = drawn
        frozen = [(name, each) for name, each in module.named_parameters() if not each.requires_grad]
        constants = {name: each.detach().clone() for name, each in (*frozen, *module.named_buffers())}
        super().__init__(_module_on_meta(module), key, input_shape, constants)

    def _is_unknown(self, part: nn.Module) -> bool:
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for computation elsewhere, where no initial parameters are needed."""
        return {name: value for name, value in vars(self).items() if name != "_drawn"}

    def initial(self, generator: torch.Generator) -> Tensor:
        seed = int(torch.empty((), dtype=torch.int64, device=generator.device).random_(generator=generator))
        named = dict(self._drawn(seed).named_parameters())
        flat = torch.cat([named[part.name].detach().float().reshape(-1) for part in self.slices])
        return flat.to(generator.device)


def _module_on_meta(module: nn.Module) -> nn.Module:
    """Return the module on the meta device; tied parameters stay tied, which `Module.to` does not ensure."""
    shapes: dict[int, Any] = {
        id(each): nn.Parameter(each.detach().to("meta"), each.requires_grad) for each in module.parameters()
    }
    shapes |= {id(each): each.detach().to("meta") for each in module.buffers()}
    return copy.deepcopy(module, shapes)


class TrainingPass:
    """Architecture in training mode, for one evaluation of an objective at one vector of parameters.

    `untrained`: untrained parameters by name, as set by the last forward pass, such as the updated statistics
    of batch norms.
    """

    def __init__(self, architecture: Architecture, untrained: Mapping[str, Tensor]) -> None:
        self.architecture = architecture
        self.untrained = dict(untrained)
        self.slices, self.input_shape = architecture.slices, architecture.input_shape

    @property
    def adapters(self) -> tuple[AdapterSlices, ...]:
        """Low-rank adapters, as `Architecture.adapters`."""
        return self.architecture.adapters

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Return outputs [B, K] from inputs [B, ...]."""
        return self._call(parameters, x)

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        """Return the result of `Architecture.embed`."""
        self.architecture.require_decoupled()
        return self._call(parameters, x, embed=True)

    def tensor(self, parameters: Parameters, name: str) -> Tensor:
        """Return the result of `Architecture.tensor`."""
        return self.architecture.tensor(parameters, name)

    def _call(self, parameters: Parameters, x: Tensor, **options: bool) -> Any:
        values = self.architecture.named(parameters) | self.untrained
        output = torch.func.functional_call(self.architecture.training_module, values, (x,), options)
        # Replacements of parameters during the call are in `values` after it.
        self.untrained = {name: values[name] for name in self.untrained}
        return output
