"""Counting the floating-point operations of torch's code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class FlopCounter(TorchDispatchMode):
    """Counts in `total` what matrix products, convolutions and attention do while it is entered.

    By torch's formulas, as `torch.utils.flop_counter.FlopCounterMode`, which first loads torch's compiler.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch is to tell its compiler, which it loads for that, to leave this class alone."""
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        formula: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **named)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **named)
        if formula is not None:
            self.total += formula(*args, **named, out_val=output)
        return output
