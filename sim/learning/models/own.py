"""User-defined model: any `nn.Module` with a pure forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.errors import FAILURES, UserError
from sim.learning.models.model import ModelSection
from sim.plugins.process_settings import restoring_torch_settings
from sim.plugins.section import PluginSection

if TYPE_CHECKING:
    import torch
    from torch import nn

    from sim.learning.architecture import Architecture
    from sim.learning.data.dataset import Dataset
    from sim.learning.objectives import Objective

_CLIENTS, _SAMPLES = 2, 2  # in a trial; batch norms need two samples


class OwnModel(PluginSection, ModelSection):
    """Your own class or function, which returns an `nn.Module`. It can have the arguments `input_shape` and
    `classes`; all other arguments are keys of `[model]`."""

    provided = ("input_shape", "classes")

    def module(
        self, input_shape: tuple[int, ...], classes: int, inputs: tuple[tuple[int, ...], ...] | None = None
    ) -> nn.Module:
        """Return the module, initialized by torch's generator of the process. Raises UserError.

        inputs: the shapes of several inputs; the module is called with all inputs, and receives the shapes as
        `input_shape`.
        """
        from torch import nn

        from sim.learning.models.modules.batch_norm import replace_batch_norms
        from sim.learning.models.modules.dropout import replace_dropouts
        from sim.learning.models.modules.several_inputs import SeveralInputs
        from sim.learning.models.torch_errors import in_words

        try:
            made = self.call(input_shape=inputs or input_shape, classes=classes)
            if not isinstance(made, nn.Module):
                raise TypeError(f"must return an nn.Module, not an object of type {type(made).__name__}")
            for path, part in made.named_modules():
                _require_computable(path, part)
            made = replace_dropouts(replace_batch_norms(made))
            _require_vector(made)
            return made if inputs is None else SeveralInputs(made, inputs)
        except FAILURES as error:
            raise self.refusal(f"cannot be created: {in_words(error)}", error) from error

    def architecture(
        self, input_shape: tuple[int, ...], classes: int, seed: int = 0, **options: Any
    ) -> Architecture:
        """Return the architecture. seed: as for `OwnArchitecture`."""
        import torch

        from sim.learning.architecture import OwnArchitecture
        from sim.learning.models.torch_errors import in_words

        def drawn(seed: int) -> nn.Module:
            """Return the module constructed with this seed; torch's generator is not changed."""
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return self.module(input_shape, classes, **options)

        try:
            return OwnArchitecture(drawn, self.key(input_shape, classes, **options), input_shape, seed)
        except UserError:
            raise
        except FAILURES as error:
            raise self.refusal(f"cannot be created: {in_words(error)}", error) from error

    def require_pure(
        self, architecture: Architecture, objective: Objective, views: int, dataset: Dataset
    ) -> None:
        """Raise UserError unless two clients can train the model, in one call if it has no recurrent layers.

        The trial uses the first samples of the data set, as other inputs might be invalid, for example if
        inputs are indices of words.
        """
        import torch

        from sim.learning.engine.backends.kernels import ModelKernel
        from sim.learning.models.purity import require_pure_calls
        from sim.learning.models.torch_errors import in_words

        generator = torch.Generator().manual_seed(0)
        flat = torch.stack([architecture.initial(generator) for _ in range(_CLIENTS)])
        indices = np.arange(_SAMPLES * views) % min(_SAMPLES, len(dataset.train_x))
        x, y = [
            torch.from_numpy(part[indices]).expand(_CLIENTS, *([-1] * part.ndim))
            for part in (dataset.train_x, dataset.train_y)
        ]
        architecture.examples = x[0]
        try:
            with restoring_torch_settings():
                require_pure_calls(architecture, flat[0], _two_batches(dataset.train_x, len(indices)))
        except FAILURES as error:
            raise self.refusal(f"cannot be computed: {in_words(error)}", error) from error
        way, together = ("loop", "") if architecture.is_recurrent else ("vmap", " for two clients at once")
        kernel = ModelKernel(architecture, objective, way)
        try:
            first, second = kernel.outputs(flat, x), kernel.outputs(flat, x)
            wanted = (*x.shape[:2], dataset.outputs)
            if tuple(first.shape) != wanted:
                shape = tuple(first.shape[1:])
                raise ValueError(f"the outputs have shape {shape}, not {wanted[1:]} (samples, outputs)")
            if not torch.equal(first.nan_to_num(), second.nan_to_num()):
                raise ValueError("a second call with the same input gives different outputs")
            gradients = [kernel.gradients(flat, x, y).nan_to_num() for _ in range(2)]
            if not torch.equal(*gradients):  # from random draws, in a loop; vmap has refused them
                raise ValueError("a second call with the same input gives different gradients")
            architecture.training_flops_per_sample  # noqa: B018  # raises here, in the model's code
        except FAILURES as error:
            problem = f"cannot be computed{together}: {in_words(error)}"
            raise self.refusal(problem, error) from error


def _two_batches(samples: np.ndarray, count: int) -> list[torch.Tensor]:
    """Return two batches of `count` samples, with different samples if there are enough."""
    import torch

    indices = np.arange(2 * count).reshape(2, count) % len(samples)
    return [torch.from_numpy(samples[row]) for row in indices]


def _require_computable(path: str, part: nn.Module) -> None:
    """Raise ValueError for a module of torch that changes itself or uses random numbers of torch."""
    import torch
    from torch import nn

    kind = type(part).__name__
    at = path or "the model"
    if isinstance(part, nn.MultiheadAttention | nn.RNNBase) and part.dropout:
        raise ValueError(
            f"{at} drops values by random numbers of torch, which are not separate for each client: "
            f"set {f'{path}.' if path else 'its '}dropout = 0.0 (nn.Dropout works)"
        )
    if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None:
        raise ValueError(
            f"{at} ({kind}) has max_norm, which changes the weight at every use: leave max_norm out, and "
            "divide the output by its norm"
        )
    if isinstance(part, nn.DataParallel | torch.jit.ScriptModule):
        inside = "its module" if isinstance(part, nn.DataParallel) else "the module without torch.jit"
        raise ValueError(f"{at} is a {kind}, which cannot take each client's parameters: return {inside}")


def _require_vector(module: nn.Module) -> None:
    """Raise ValueError unless the trained parameters of a module can form one float32 vector."""
    import torch
    from torch.nn.parameter import is_lazy

    for path, part in module.named_modules():
        for parameter in part.parameters(recurse=False):
            if is_lazy(parameter):
                raise ValueError(
                    f"{path or 'the model'} is a {type(part).__name__} with an unknown shape before its "
                    f"first input: use {type(part).__name__.removeprefix('Lazy')} with the number of inputs"
                )
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    if not trained:
        raise ValueError("it has no parameters to train: requires_grad is False for all parameters")
    at: dict[int, str] = {}
    for name, parameter in trained.items():
        if parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ValueError(f"{name} is {kind}: trained parameters must be float32")
        if parameter._backward_hooks:
            raise ValueError(f"{name} has a hook on its gradient, which clients do not call: remove it")
        other = at.setdefault(parameter.data_ptr(), name)
        if other != name and parameter.numel():
            raise ValueError(
                f"{other} and {name} share their memory, but are two parameters; to tie them, use the same "
                "nn.Parameter for both"
            )
