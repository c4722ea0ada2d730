"""Counts of the operations and copies that a flush sends to a GPU, made without one."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.engine import BATCH_SIZE, MODELS_MEASURED, Model, with_engine
from benchmarks.measuring import Effort, Say, table

META = torch.device("meta")  # tensors on it have no values: waiting for one raises an error

TEXT = f"""\
The table counts the operations of a flush in which every client takes one training step on {BATCH_SIZE}
samples, as a GPU would receive them, with `way = "auto"`. *Operations* compute (each launches one kernel or
more; views launch none). *Copies* are copies of row numbers from the host to the device. No call waits for
the device and nothing is copied back. The operations are counted on tensors without values, with calls as
large as on a GPU of up to 16 GB. Calls grow with the memory of a larger GPU, which then receives fewer
operations. [Run on a GPU](gpu.md) counts the launches of a real GPU."""

CLIENTS = (1, 8, 32, 100)


class Counted(TorchDispatchMode):
    """Context that counts operations and copies."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and args[0].device != META:
            self.copies += 1
        elif not func.is_view and func is not torch.ops.aten.lift_fresh.default:
            self.operations += 1
        return func(*args, **(kwargs or {}))


def counts(model: Model, clients: int) -> tuple[int, int]:
    """Return the operations and copies to the device of one flush, after one that is not counted."""
    train = with_engine(model, clients, "auto", META)
    train()
    with Counted() as counted:
        train()
    return counted.operations, counted.copies


def measure(effort: Effort, say: Say) -> str:
    """Return the section on the launches of a flush, in Markdown."""
    rows = []
    for model in MODELS_MEASURED[1:]:
        for clients in effort.sizes(*CLIENTS):
            operations, copies = counts(model, clients)
            rows.append([model.label, f"{clients:,}", f"{operations:,}", f"{copies:,}"])
            say(f"launches, {model.label}, {clients:,} clients: {operations:,} operations")
    return "\n\n".join(["## Launches", TEXT, table(["model", "clients", "operations", "copies"], rows)])
