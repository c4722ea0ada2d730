"""What a client holds, waits for and has in its mailbox at one moment of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sim.errors import UserError
from sim.learning.engine.reads import WalkError
from sim.results.store import RunDirectory
from sim.run.clients import Client
from sim.run.simulation import Simulation
from sim.run.walking import walking
from sim.scenario.scenario import load_scenario

_OF_THE_FRAMEWORK = ("name", "surroundings", "compute", "settings", "rng", "observe")
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")  # of a process that is gone
_SHOWN_MAX = 200  # characters of a value


def explained_client(
    path: Path, time_s: float, number: int, *, data_dir: Path | None = None, code: bool = True
) -> list[tuple[str, str]]:
    """Name and value of what there is to say of a client, after everything that happens at `time_s`.

    Walks to that moment by the log of the run. UserError without such a client, or where the log ends before.
    """
    scenario = load_scenario(path / "scenario.toml", code=code)
    if number >= scenario.clients.count:
        raise UserError(f"--client {number}: must be from 0 to {scenario.clients.count - 1}")
    if (path / "summary.json").is_file():
        end_s = RunDirectory.load(path).summary().get("virtual_seconds", time_s)
        if end_s < time_s:
            raise UserError(f"{path}: the run ended at {end_s:g} s, before --at {time_s:g} s")
    device = RunDirectory(path).provenance().get("machine", {}).get("device", "cpu")
    with walking(scenario, RunDirectory(path), device=device, data_dir=data_dir) as simulation:
        simulation.begin()
        ended = f"{path}: the run ended"
        try:
            reached = simulation.loop.run_until(time_s)
        except WalkError:
            reached, ended = False, f"{path}: its log ends"
        failure = getattr(simulation.engine.reads, "failure", None)
        now_s = simulation.loop.time()
        if failure is not None:
            raise UserError(f"{path}: cannot be walked through to {time_s:g} s: {failure}")
        if not reached:
            raise UserError(f"{ended} at {now_s:g} s, before --at {time_s:g} s")
        return list(_described(simulation, simulation.clients[number]))


def _described(simulation: Simulation, client: Client) -> Iterator[tuple[str, str]]:
    learner = client.learner
    yield "client", f"{client.name}, {'up' if client.up else 'down'} at {simulation.loop.time():g} s"
    yield "device", f"{client.device!r}, {client.work.steps:,} training steps so far"
    if learner is None:
        yield "learner", "none: nothing is left of it, or it has not joined yet"
        return
    if client.up:
        yield "it", learner.whereabouts
    yield "mailbox", ", ".join(learner.inbox) or "empty"
    yield "peers", ", ".join(learner.peers) or "none"
    for name, value in sorted(vars(learner).items()):
        if not name.startswith("_") and name not in _OF_THE_FRAMEWORK:
            shown = _ADDRESS.sub("", " ".join(repr(value).split()))
            yield name, shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
