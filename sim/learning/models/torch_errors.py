"""Hints for users about models that torch cannot compute for several clients at once."""

import re
import traceback
from collections.abc import Mapping

from torch import nn

from sim.plugins.section import first_error_line

_HINTS: Mapping[str, str] = {
    r"_nested_tensor": "nn.TransformerEncoder creates nested tensors: pass enable_nested_tensor=False to it",
    r"randomness": "it draws random numbers that clients would share: use nn.Dropout, or remove them",
    r"dynamic shape|boolean mask": (
        "a mask selects a number of samples that differs from client to client: compute all and select with "
        "torch.where, or multiply by the mask"
    ),
    r"data-dependent control flow|\.item\(\)|\bbool\b.*vmap|vmap.*\bbool\b": (
        "it branches on values, which differ from client to client: use torch.where, and no .item()"
    ),
    r"setup_context|generate_vmap_rule|vmap staticmethod": (
        "its torch.autograd.Function has the old form: write forward without ctx, "
        "setup_context(ctx, inputs, output), and generate_vmap_rule = True in the class"
    ),
    r"requires_grad_\(\)|torch\.autograd\.grad|autograd\.functional": (
        "it differentiates in forward with torch.autograd: use torch.func.grad"
    ),
    r"stride divisible by 2|stride.* must be 1": (
        "torch.view_as_complex does not support the parameters of several clients: use "
        "torch.complex(w[..., 0], w[..., 1])"
    ),
    r"modified inplace|in-?place|doesn't match the broadcast shape": (
        "it changes a tensor in place that all clients share, or that is a view: create a new one, as in "
        "`x = x + 1` for `x += 1`, and derive changed tensors from the inputs, as in x.new_zeros(...)"
    ),
    r"Batching rule not implemented for (?P<name>[\w:.]+)": (
        "torch computes {name} for a single client only: use other operations"
    ),
    r"escaped from inside": (
        "a tensor is stored outside of the call, so the next client would read it: store nothing, and "
        "return it"
    ),
    r"support the deepcopy protocol": (
        "an attribute is a tensor that was computed from parameters: compute it in forward, or use "
        "torch.nn.utils.parametrizations"
    ),
}
"""Patterns of torch's messages, with the replacement for each."""


def in_words(error: BaseException) -> str:
    """Describe the error and its remedy, with the class of the module whose forward pass failed."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    words = None if isinstance(error, ValueError) else _hint(str(error))  # a ValueError is clear
    if any(frame.f_code.co_filename.endswith("torch/utils/checkpoint.py") for frame in frames):
        words = "torch.utils.checkpoint cannot be used here: call the function itself"
    if words is None:
        return first_error_line(error)
    modules = [frame.f_locals.get("self") for frame in frames if frame.f_code.co_name == "forward"]
    kinds = [type(each).__name__ for each in modules if isinstance(each, nn.Module)]
    return f"in {kinds[-1]}, {words}" if kinds else words


def _hint(message: str) -> str | None:
    for pattern, words in _HINTS.items():
        if match := re.search(pattern, message):
            return words.format(**match.groupdict()) if match.groupdict() else words
    return None
