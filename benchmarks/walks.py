"""What it costs to log a run's reads, to keep checkpoints, and to walk through it again.

`python -m benchmarks.walks quickstart gossip --set run.duration="1 min"` prints a row for each scenario: CPU
seconds of the run without and with its log (in turns, the least of each), of the walk, and bytes.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from sim.files.journal import Journal, frames
from sim.learning.engine.reads import LoggedReads, WalkedReads
from sim.learning.engine.rows import stored, walk
from sim.run.building import build
from sim.run.process import quiet_collector, threads
from sim.scenario.scenario import Scenario, load_scenario


def measured(scenario: Scenario, log: Path, kind: str) -> dict[str, Any]:
    """One run or walk: its CPU seconds, trace hash, updates, and what is held at its end."""
    with quiet_collector(), threads(1), closing(build(scenario, device="cpu")) as simulation:
        engine = simulation.engine
        if kind == "logged":
            log.unlink(missing_ok=True)
            engine.reads = LoggedReads(Journal(log))
        elif kind == "walk":
            walk(engine, WalkedReads(frames(log)))
        simulation.observer.on_evaluated = gc.collect
        started = time.process_time()
        simulation.run()
        engine.reads.settle()
        seconds = time.process_time() - started
        held = 0 if kind == "walk" else sum(4 * each.rows.numel() for each in stored(engine).values())
        engine.reads.close()
        return {
            "seconds": seconds,
            "hash": simulation.trace.hash(),
            "updates": engine.statistics.updates,
            "held": held,
        }


def row(scenario: Scenario, turns: int) -> str:
    """The figures of one scenario."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "reads.log"
        found = [{kind: measured(scenario, log, kind) for kind in KINDS} for _ in range(turns)]
        size = log.stat().st_size
    assert len({each[kind]["hash"] for each in found for kind in KINDS}) == 1
    plain, logged, walked = (min(each[kind]["seconds"] for each in found) for kind in KINDS)
    last = found[-1]["logged"]
    return (
        f"{scenario.name:<16} {plain:8.2f} {logged:8.2f} {logged / plain - 1:+8.1%} {walked:8.2f} "
        f"{walked / logged:7.1%} {size:12,} {size / last['updates']:10.1f} {last['held']:14,}"
    )


KINDS = ("plain", "logged", "walk")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="+")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    print(
        "scenario          run, s  logged     more  walk, s    walk  log, bytes per update checkpoint, bytes"
    )
    for name in given.scenarios:
        print(row(load_scenario(name, given.overrides), given.turns), flush=True)
