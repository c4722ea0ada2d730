"""Whether a process's first run and its second one are the same to the last row, each pair in a fork.

`python -m tests.resume.first_runs NAME ...` prints a line for each scenario or protocol whose runs differ;
without a name all are run.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import tomli_w

from sim.core.process import without_garbage_collection
from sim.errors import UserError
from sim.learning.engine.snapshot import collect_garbage, pool_snapshots
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.fuzz.worlds import SHORT, short
from tests.hooks import AtEvaluations
from tests.protocols.test_survival import LOSSY, variants
from tests.simulation.worlds import write


def worlds() -> dict[str, tuple[str, Sequence[str]]]:
    """All scenarios in their short forms, and all protocols where messages are lost: a text and overrides."""
    found: dict[str, tuple[str, Sequence[str]]] = {" ".join(each): (LOSSY, each) for each in variants()}
    for name in SHORT:
        table = short(name)
        table["run"].setdefault("name", name)
        found[name] = (tomli_w.dumps(table), ())
    return found


def left_by(text: str, overrides: Sequence[str]) -> tuple[str, dict[int, list[int]]]:
    """A run's trace hash, and which rows of each width were free in the end."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = load_scenario(write(Path(folder), text), overrides)
        with without_garbage_collection(), closing(build(scenario, device="cpu")) as simulation:
            engine = simulation.engine
            simulation.add_hook(AtEvaluations(lambda _: collect_garbage(engine)))
            simulation.run()
            rows = {width: there.free.tolist() for width, there in pool_snapshots(engine).items()}
            return simulation.trace.hash(), rows


def in_a_fork(text: str, overrides: Sequence[str]) -> int:
    """0 if two runs of a fork of this process leave the same, 1 if not, 2 for an error, 3 without data."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code: Any = 2
    try:
        code = int(left_by(text, overrides) != left_by(text, overrides))
    except UserError:
        code = 3
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    assert "torch._dynamo" not in sys.modules  # nothing has been run here
    every = worlds()
    for name in sys.argv[1:] or every:
        if code := in_a_fork(*every[name]):
            print(name, {1: "differs", 3: "has no data"}.get(code, "fails"), flush=True)
