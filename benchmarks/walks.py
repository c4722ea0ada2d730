"""Cost of logging a run's reads, of keeping checkpoints, and of replaying the run.

`python -m benchmarks.walks quickstart gossip --set run.duration="1 min"` prints a row for each scenario: CPU
seconds of the run without and with its log (in turns, the minimum of each) and of the replay, and bytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.measuring import Effort, Say, table
from sim.core.process import exclude_from_collection, simulating
from sim.files.journal import Journal, frames
from sim.learning.engine.replay_log import RecordedReadLog, ReplayedReadLog
from sim.learning.engine.snapshot import pool_snapshots, start_replay
from sim.run.collection import GarbageCollection
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario, load_scenario
from tests.fuzz.worlds import short


def measured(scenario: Scenario, log: Path, kind: str) -> dict[str, Any]:
    """CPU seconds, trace hash, updates and final memory of a run or replay."""
    with simulating(), closing(build(scenario, device="cpu")) as simulation:
        exclude_from_collection()
        engine = simulation.engine
        if kind == "logged":
            log.unlink(missing_ok=True)
            engine.read_log = RecordedReadLog(Journal(log))
        elif kind == "walk":
            start_replay(engine, ReplayedReadLog(frames(log)))
        simulation.add_hook(GarbageCollection())
        started = time.process_time()
        simulation.run()
        engine.read_log.flush()
        seconds = time.process_time() - started
        held = 0 if kind == "walk" else sum(4 * each.rows.numel() for each in pool_snapshots(engine).values())
        engine.read_log.close()
        return {
            "seconds": seconds,
            "hash": simulation.trace.hash(),
            "updates": engine.statistics.updates,
            "held": held,
        }


def row(scenario: Scenario, turns: int) -> list[str]:
    """Return the figures of one scenario."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "reads.log"
        found = [{kind: measured(scenario, log, kind) for kind in KINDS} for _ in range(turns)]
        size = log.stat().st_size
    assert len({each[kind]["hash"] for each in found for kind in KINDS}) == 1
    plain, logged, walked = (min(each[kind]["seconds"] for each in found) for kind in KINDS)
    last = found[-1]["logged"]
    return [
        scenario.name,
        f"{plain:.2f}",
        f"{logged / plain - 1:+.1%}",
        f"{walked:.2f}",
        f"{walked / logged:.1%}",
        f"{size:,}",
        f"{size / last['updates']:.1f}",
        f"{last['held']:,}",
    ]


def measure(effort: Effort, say: Say) -> str:
    """Return the section of the page."""
    rows = []
    for name, duration in SCENARIOS.items():
        with tempfile.TemporaryDirectory() as folder:
            table_of = short(name)
            if duration is not None:
                table_of["run"]["duration"] = duration
            table_of["run"] |= {"name": name, "compare_alone": False}
            file = Path(folder) / "scenario.toml"
            file.write_text(tomli_w.dumps(table_of), encoding="utf-8")
            rows.append(row(load_scenario(file), effort.repetitions))
        say(f"walks: {name}")
    return f"## Replays\n\n{TEXT}\n\n{table(HEAD, rows)}"


KINDS = ("plain", "logged", "walk")
SCENARIOS = {"quickstart": "30 s", "gossip": "60 s", "mapl_churn": None, "cobo_cross_device": None}
"""Scenarios and their durations; None uses the short form of the tests."""
HEAD = (
    "scenario",
    "run, s",
    "log",
    "replay, s",
    "replay / run",
    "log, bytes",
    "per update",
    "checkpoint, bytes",
)
TEXT = """\
The table gives the cost of logging the reads of a run and the cost of replaying the run. quickstart runs
for 30 s of virtual time, and gossip for 60 s; the two other scenarios run in the short forms of their tests.
Times are CPU seconds, the
minimum of alternating measurements. *Log* is the relative increase of the run's time by its log. The
checkpoint is the final one. A replay takes a smaller share of a run if a larger share of the run is tensor
work:
`cobo_cross_device` trains a ResNet-9."""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="+")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    print(table(HEAD, [row(load_scenario(name, given.overrides), given.turns) for name in given.scenarios]))
