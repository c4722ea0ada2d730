"""Tensors of a transformer in .safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.files.input_file import InputFile, excerpt
from sim.learning.language.shapes import Shape, TransformerShape

if TYPE_CHECKING:
    from torch import Tensor

MASKS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
"""Ends of names of constants in older checkpoints."""


def read_float_tensors(file: InputFile) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Return the tensors of a .safetensors file, float32, and its text metadata. Raises UserError."""
    stored, metadata = file.tensors()
    for name, values in stored.items():
        if not values.is_floating_point() and not name.endswith(MASKS):
            raise file.refusal(f"contains {values.dtype}; must contain real numbers", name)
    return {name: values.float() for name, values in stored.items()}, metadata


def gpt2_shape(stored: Mapping[str, Tensor], heads: int, file: InputFile) -> TransformerShape:
    """Return the sizes from the tensors. Raises UserError if tensors are missing, or do not fit the heads."""
    sizes: dict[str, tuple[int, ...]] = {}
    for name in ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"):
        if name not in stored or stored[name].dim() != 2 or not stored[name].numel():
            raise file.refusal(f"has no matrix {name}, which every model of GPT-2's architecture has")
        sizes[name] = tuple(stored[name].shape)
    depth = 1 + max(int(name.split(".")[1]) for name in stored if name.startswith("h.") and _is_block(name))
    vocabulary, width = sizes["wte.weight"]
    if width % heads:
        raise file.refusal(
            f"has vectors of {width} numbers; must be a multiple of {heads}, the number of heads"
        )
    if depth > len(stored):
        raise file.refusal(f"contains a block {depth - 1}, but only {len(stored)} tensors")
    return TransformerShape(
        vocabulary, sizes["wpe.weight"][0], width, depth, heads, sizes["h.0.mlp.c_fc.weight"][1]
    )


def _is_block(name: str) -> bool:
    return name.split(".")[1].isdecimal() and len(name) < 100


def require_fitting_tensors(stored: dict[str, Tensor], shape: Shape, file: InputFile) -> dict[str, Tensor]:
    """Return the tensors if they are exactly the tensors of a transformer of this shape. Raises UserError."""
    import torch

    if shape.depth > len(stored):  # creating the blocks would take long
        raise file.refusal(f"contains only {len(stored)} tensors; must contain {shape.depth:,} blocks")
    with torch.device("meta"):
        wanted = dict(shape.made().named_parameters())
    if unknown := [name for name in stored if name not in wanted]:
        raise file.refusal(f"contains {excerpt(unknown)}, which is not in {shape.family}'s architecture")
    for name, parameter in wanted.items():
        if name not in stored:
            raise file.refusal(f"has no {name}")
        if stored[name].shape != parameter.shape:
            shapes = f"{tuple(stored[name].shape)}; must be {tuple(parameter.shape)}"
            raise file.refusal(f"has shape {shapes}", name)
        if not bool(stored[name].isfinite().all()):
            raise file.refusal("contains numbers that are not finite", name)
    return stored
