"""Torch modules without coterie's layers, from vectors of parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sim.learning.architecture import Architecture
from sim.learning.models.modules.batch_norm import restore_batch_norms
from sim.learning.models.modules.dropout import restore_dropouts
from sim.learning.models.modules.several_inputs import SeveralInputs


def plain_module(architecture: Architecture, flat: Tensor) -> nn.Module:
    """Return the module of a model with the values of a vector [P], in evaluation mode, on the CPU.

    It is the module that the user's code, or the kind of the model, creates: batch norms and dropout layers
    are torch's classes again, and the shared buffers and frozen parameters are included.
    """
    module = architecture.new_module()
    _fill(module, architecture.named(flat.detach().cpu()))
    restore_batch_norms(module)
    restore_dropouts(module)
    plain = module.module if isinstance(module, SeveralInputs) else module
    assert isinstance(plain, nn.Module)
    return plain.eval()


def untied_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's `state_dict`, as separate tensors: tied parameters are copied."""
    return {
        name: values.detach().clone(memory_format=torch.contiguous_format)
        for name, values in module.state_dict().items()
    }


def _fill(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Replace the parameters and buffers of a module by tensors with these values; tied ones stay tied."""
    new: dict[int, Tensor] = {}
    for name, parameter in module.named_parameters():
        new[id(parameter)] = nn.Parameter(values[name].clone(), parameter.requires_grad)
    for name, buffer in module.named_buffers():
        new[id(buffer)] = values[name].clone()
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = new[id(tensor)]  # type: ignore[assignment]
        if isinstance(part, nn.RNNBase):
            part._flat_weights = [getattr(part, name, None) for name in part._flat_weights_names]
