"""Functions of stacked tensors, compiled by `torch.compile` once for any number of rows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from sim.errors import UserError
from sim.learning.engine.memory import is_out_of_memory


class CompiledForAnyCount:
    """`function(*stacked)` for tensors [N, ...] with the same N >= 2; it may change the first in place.

    It is compiled, which takes seconds to minutes, when it is called with rows of new shapes. Each of these
    has a graph, and so a cache at torch, of its own: no limit on recompilations is ever reached.
    """

    def __init__(self, function: Callable[..., Any], of_what: str) -> None:
        self._function = function
        self._of_what = of_what
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *stacked: Tensor) -> Any:
        """Raises UserError where it can't be compiled, ValueError if the first tensor isn't contiguous."""
        first, *others = stacked
        if not first.is_contiguous():
            raise ValueError("what a compiled function changes must lie in one piece")
        stacked = (first, *[own.contiguous() for own in others])  # torch compiles anew for other strides
        cast = torch.is_autocast_enabled(first.device.type)
        key = (cast, *[(own.shape[1:], own.dtype, own.device) for own in stacked])
        if key not in self._compiled:
            self._compiled[key] = self._compile([own[0] for own in stacked])
        return self._compiled[key](*stacked)

    def _compile(self, rows: list[Tensor]) -> Callable[..., Any]:
        device = rows[0].device
        require_compiler(device)
        try:
            return self._compiled_for(rows)
        except UserError:  # of a batch norm, say: any way would raise it
            raise
        except Exception as error:  # of many kinds, of the compiler's own and of torch's
            if isinstance(error, RuntimeError) and is_out_of_memory(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f'engine.way = "compiled": torch.compile fails for {self._of_what} on {device} '
                f'({type(error).__name__}: {reason}); use "auto", "vmap" or "loop"'
            ) from error

    def _compiled_for(self, rows: list[Tensor]) -> Callable[..., Any]:
        # What this imports takes a while, too.
        from sim.learning.engine.tracing import graph_for_any_count

        compiled = torch.compile(graph_for_any_count(self._function, rows), fullgraph=True)
        # Always the same number of rows: the compiler may look at it, and a run would not be repeatable.
        examples = [row.new_zeros(2, *row.shape) for row in rows]
        for example in examples:
            torch._dynamo.mark_dynamic(example, 0)
        compiled(*examples)
        return compiled


def missing_compiler(device: torch.device) -> str | None:
    """What has to be installed before torch can compile for a device; None if nothing seems to be missing."""
    if device.type == "cuda":
        return None if find_spec("triton") else "the Python package triton"
    usual = {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
    command = os.environ.get("CXX") or usual
    return None if shutil.which(command) else f'a C++ compiler: "{command}" (or what CXX names)'


def require_compiler(device: torch.device) -> None:
    """UserError if torch cannot compile for this device."""
    missing = missing_compiler(device)
    if missing is not None:
        raise UserError(
            f'engine.way = "compiled": compiling for {device} needs {missing}, which was not found; install '
            'it, or use "auto", "vmap" or "loop"'
        )
