"""What to write where torch cannot compute a model for several clients at once, in words for users."""

import re
import traceback
from collections.abc import Mapping

from torch import nn

from sim.plugins.section import in_short

_HINTS: Mapping[str, str] = {
    r"_nested_tensor": "nn.TransformerEncoder makes nested tensors: pass enable_nested_tensor=False to it",
    r"randomness": "it draws random numbers, which are no client's own: use nn.Dropout, or leave them out",
    r"dynamic shape|boolean mask": (
        "a mask chooses a number of samples that differs from client to client: compute all and choose by "
        "torch.where, or multiply by the mask"
    ),
    r"data-dependent control flow|\.item\(\)|\bbool\b.*vmap|vmap.*\bbool\b": (
        "it branches on numbers, which differ from client to client: use torch.where, and no .item()"
    ),
    r"setup_context|generate_vmap_rule|vmap staticmethod": (
        "its torch.autograd.Function is of the old form: write forward without ctx, "
        "setup_context(ctx, inputs, output), and generate_vmap_rule = True in the class"
    ),
    r"requires_grad_\(\)|torch\.autograd\.grad|autograd\.functional": (
        "it differentiates in forward by torch.autograd: use torch.func.grad"
    ),
    r"stride divisible by 2|stride.* must be 1": (
        "torch.view_as_complex does not take the numbers of several clients: use "
        "torch.complex(w[..., 0], w[..., 1])"
    ),
    r"modified inplace|in-?place|doesn't match the broadcast shape": (
        "it changes a tensor in place that all clients share, or that is a view: make a new one, as in "
        "`x = x + 1` for `x += 1`, and let what is changed be of the inputs, as in x.new_zeros(...)"
    ),
    r"Batching rule not implemented for (?P<name>[\w:.]+)": (
        "torch computes {name} for one client alone: write it by other operations"
    ),
    r"escaped from inside": (
        "a tensor is kept outside of the call, which is another client's in the next: keep nothing, and "
        "return it"
    ),
    r"support the deepcopy protocol": (
        "a tensor that was computed from parameters is an attribute: compute it in forward, or use "
        "torch.nn.utils.parametrizations"
    ),
}
"""Patterns of torch's messages, and the words instead."""


def in_words(error: BaseException) -> str:
    """What is wrong and what to write, with the class of the module in whose forward pass it happened."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    words = None if isinstance(error, ValueError) else _hint(str(error))  # a ValueError has words of its own
    if any(frame.f_code.co_filename.endswith("torch/utils/checkpoint.py") for frame in frames):
        words = "torch.utils.checkpoint cannot be used here: call the function itself"
    if words is None:
        return in_short(error)
    modules = [frame.f_locals.get("self") for frame in frames if frame.f_code.co_name == "forward"]
    kinds = [type(each).__name__ for each in modules if isinstance(each, nn.Module)]
    return f"in {kinds[-1]}, {words}" if kinds else words


def _hint(message: str) -> str | None:
    for pattern, words in _HINTS.items():
        if match := re.search(pattern, message):
            return words.format(**match.groupdict()) if match.groupdict() else words
    return None
