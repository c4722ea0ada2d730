"""A model of the user's own: any `nn.Module` whose forward pass is pure, computed like ours."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from actors.message import describe
from actors.place import of_error, written
from sim.errors import UserError
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn

    from sim.learning.architecture import Architecture
    from sim.learning.objectives import Objective

PROVIDED = ("input_shape", "classes")
"""Arguments that the class of a model is given, as far as it takes them; all others are keys of `[model]`."""
_CLIENTS, _SAMPLES = 2, 2  # of a trial; batch norms need two samples


class OwnModel(ModelSection):
    """A model of the user's own: its class, or a function that makes it."""

    make: ClassVar[Callable[..., Any]]
    """What makes the module, of the arguments that it takes."""
    takes: ClassVar[frozenset[str]]
    """Those of `PROVIDED` that it takes."""

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module, its numbers from torch's generator of the process. UserError."""
        from torch import nn

        from sim.learning.models.batch_norm import replace_batch_norms
        from sim.learning.models.dropout import replace_dropouts

        provided = {"input_shape": input_shape, "classes": classes}
        given = {name: provided[name] for name in PROVIDED if name in self.takes}
        try:
            made = type(self).make(**given, **{name: getattr(self, name) for name in self.options})
            if not isinstance(made, nn.Module):
                raise TypeError(f"a model is an nn.Module, not a {type(made).__name__}")
            for path, part in made.named_modules():
                if isinstance(part, nn.MultiheadAttention) and part.dropout:
                    raise ValueError(
                        f"{path} draws inside torch which attention weights it drops, where no client has "
                        f"numbers of its own: set {path}.dropout = 0.0 (nn.Dropout works)"
                    )
            return replace_dropouts(replace_batch_norms(made))
        except Exception as error:
            raise self._refusal(f"cannot be made: {_first(error)}", error) from error

    def architecture(self, input_shape: tuple[int, ...], classes: int) -> Architecture:
        import torch

        from sim.learning.architecture import OwnArchitecture

        def drawn(seed: int) -> nn.Module:
            """The module as its constructor makes it of this seed; torch's generator stays as it was."""
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return self.module(input_shape, classes)

        return OwnArchitecture(drawn, self._key(self.options, input_shape, classes), input_shape)

    def require_pure(
        self, architecture: Architecture, objective: Objective, views: int, classes: int
    ) -> None:
        """UserError unless its passes can be computed for all clients at once; tried for two of them."""
        import torch

        from sim.learning.engine.kernels import Kernel

        generator = torch.Generator().manual_seed(0)
        flat = torch.stack([architecture.initial(generator) for _ in range(_CLIENTS)])
        shape = (_CLIENTS, _SAMPLES * views, *architecture.input_shape)
        x = torch.empty(shape).normal_(generator=generator)
        y = torch.zeros(x.shape[:2], dtype=torch.int64)
        before = copy.deepcopy(dict(architecture.constants))
        kernel = Kernel(architecture, objective, "vmap")
        try:
            first, second = kernel.outputs(flat, x), kernel.outputs(flat, x)
            wanted = (*y.shape, classes)
            if tuple(first.shape) != wanted:
                shape = tuple(first.shape[1:])
                raise ValueError(f"its outputs have the shape {shape}, not {wanted[1:]} (samples, classes)")
            if not torch.equal(first.nan_to_num(), second.nan_to_num()):
                raise ValueError("the same input gives other outputs when it is called again")
            kernel.gradients(flat, x, y)
            for name, value in before.items():
                if not torch.equal(value, architecture.constants[name]):
                    raise ValueError(f"it changes its buffer {name}, which is the same for all clients")
        except Exception as error:
            raise self._refusal(
                f"cannot be computed for two clients at once: {_first(error)}", error
            ) from error

    def _refusal(self, problem: str, error: BaseException) -> UserError:
        """What the scenario says, the innermost line of the user's file, and what is wrong."""
        make = type(self).make
        file, line = _place(make)
        lines = [frame for frame in of_error(error) if frame[0] == file]
        where = written(*lines[-1]) if lines else written(file, line)
        return UserError(f'model.name = "{self.name}": {where}: {make.__name__} {problem}')


def _place(make: Callable[..., Any]) -> tuple[str, int]:
    """File and line where a class or a function is written."""
    try:
        return inspect.getsourcefile(make) or "", inspect.getsourcelines(make)[1]
    except (OSError, TypeError):
        return "", 0


def _first(error: BaseException) -> str:
    return describe(error).partition("\n")[0]
