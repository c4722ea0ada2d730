"""Initial values of all models from a file of `coterie export`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sim.files.input_file import InputFile, excerpt
from sim.learning.architecture import Architecture
from sim.learning.models.modules.several_inputs import SeveralInputs
from sim.learning.models.plain import plain_module


def set_start(architecture: Architecture, file: InputFile) -> None:
    """Set the initial parameters, the shared buffers and the frozen parameters to the values in a file.

    Raises UserError unless the file has exactly the tensors of the model, with finite values.
    """
    module = plain_module(architecture, torch.zeros(architecture.numel))
    stored = _require_fitting_tensors(file.tensors()[0], module.state_dict(), file)
    module.load_state_dict(stored)
    prefix = "module." if isinstance(architecture.module, SeveralInputs) else ""
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    values = {f"{prefix}{name}": each.detach() for name, each in named.items()}
    parts = [
        # Only the parameters that the engine draws are in no file.
        values[part.name].float().reshape(-1) if part.name in values else torch.zeros(part.numel)
        for part in architecture.slices
    ]
    architecture.start = torch.cat(parts)
    for name in architecture.constants:
        architecture.constants[name] = values[name].clone()


def _require_fitting_tensors(
    stored: dict[str, Tensor], wanted: Mapping[str, Tensor], file: InputFile
) -> dict[str, Tensor]:
    """Return the tensors of a file, if they fit the tensors of the model. Raises UserError."""
    if unknown := [name for name in stored if name not in wanted]:
        raise file.refusal(f"contains {excerpt(unknown)}, which the model does not have")
    for name, values in wanted.items():
        if name not in stored:
            raise file.refusal(f"has no {name}, which the model has")
        if stored[name].shape != values.shape:
            shapes = f"{tuple(stored[name].shape)}; must be {tuple(values.shape)}"
            raise file.refusal(f"has shape {shapes}", name)
        if stored[name].dtype != values.dtype:
            raise file.refusal(f"has dtype {stored[name].dtype}; must be {values.dtype}", name)
        if not bool(stored[name].isfinite().all()):
            raise file.refusal("contains numbers that are not finite", name)
    return stored
