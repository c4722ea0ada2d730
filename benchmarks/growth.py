"""What an update costs from 10 to 10,000 clients, in time and memory."""

import gc
import multiprocessing
import resource
from typing import NamedTuple
from unittest.mock import patch

from benchmarks import whole_run
from benchmarks.measuring import Effort, Say, median, table

LOCAL_STEPS = 5
PERIODS = 4
MODEL = "mlp"

TEXT = f"""\
The same asynchronous gossip with the MLP 64-100-10, {LOCAL_STEPS} steps after each merge and {PERIODS} periods: {LOCAL_STEPS * PERIODS} steps of
each client on average. Each run has a process of its own, whose peak memory is given; *wall time* is that of
the whole run, with building it and measuring all models at the start and at the end. *Per update* is the time
of the run alone, as in the section before; an *update* is one step. *Engine, per client* is what the engine's
arenas hold at the end."""


class Cost(NamedTuple):
    """Of one run: wall seconds, seconds without building and measuring, updates, bytes."""

    wall_s: float
    run_s: float
    updates: int
    peak_bytes: int
    engine_bytes: int


def run(clients: int, threads: int) -> Cost:
    """One run in this process."""
    gc.disable()
    whole_run.torch.set_num_threads(threads)
