"""State, awaited event and mailbox of a client at one virtual time of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.status import ActorStatus
from protocols.framework.client import Client
from sim.core.assembly import Classes
from sim.core.lives import ClientLife
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.files.journal import frames
from sim.learning.engine.replay_log import ReplayedReadLog, ReplayError
from sim.learning.engine.snapshot import start_replay
from sim.results.store.output_dir import READS
from sim.results.store.run_directory import RunDirectory
from sim.run.collection import GarbageCollection
from sim.run.resume.resuming import Provenance, changed_conditions, result_folders, version_added_to_errors
from sim.run.save.provenance import conditions_of_run
from sim.run.setup.builder import SIMULATED, building_process, with_engine
from sim.scenario.scenario import Scenario, load_scenario
from sim.world.devices.device import BUSY
from sim.world.participants import client_number

_OF_THE_FRAMEWORK = ("name", "context", "compute", "settings", "rng", "observe", "late", "newcomer")
_OF_NUMBERS_ALONE = ("the device", "torch", "numpy", "python")  # a replay takes all values from the log
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")  # an address in an ended process
_SHOWN_MAX = 200  # characters of a value
_MOVES = {
    "join": "joined",
    "leave": "left",
    "crash": "crashed",
    "rejoin": "rejoined",
    "failed": "failed",
    "restarted": "was restarted",
}
_MOVES_MAX = 4  # moves shown, the last ones
_STATES = {"keep": " with its state", "stale": " with its last backup", "fresh": " without a model"}


def explained_client(
    path: Path,
    time_s: float | None,
    client: int | str,
    *,
    data_dir: Path | None = None,
    code: bool = True,
    notice: Callable[[str], None] | None = None,
) -> list[tuple[str, str]]:
    """Return rows of name and value about a client, after all events at `time_s`, None for the run's end.

    client: its number or name. Replays the log of the run up to that time, even if the run was killed.
    `notice` gets a line about code that has changed since the run. Raises UserError if there is no such
    client, if the log ends before that time, or if neither the time nor the run's end is known.
    """
    with start_replay_of_run(path, data_dir=data_dir, code=code, notice=notice) as replay:
        life = replay.client(client)
        time_s = replay.planned_end_s if time_s is None else time_s
        if time_s is None:
            raise UserError(f"{path} has no complete results that state its end; pass --at with a time")
        replay.run_until(time_s)
        return list(replay.described(life))


class Replay:
    """Replay of the run in a folder, without tensor work.

    folder: files of the run; hidden for a killed process. changed: lines about code that has changed since.
    """

    def __init__(self, path: Path, folder: Path, simulation: Simulation, changed: list[str]) -> None:
        self.path, self.folder, self.simulation = path, folder, simulation
        self._changed = changed
        self._has_begun = False

    @property
    def end_s(self) -> float | None:
        """Virtual time at which the run ended; None for a run without complete results."""
        directory = RunDirectory.found(self.folder)
        return float(directory.summary()["virtual_seconds"]) if directory.is_whole else None

    @property
    def planned_end_s(self) -> float | None:
        """Virtual time at which the run ended; without complete results, its duration, if it has one."""
        return self.simulation.rules.duration_s if self.end_s is None else self.end_s

    def client(self, given: int | str) -> ClientLife:
        """Return a client by its number or name. Raises UserError if there is no such client."""
        clients = self.simulation.clients
        return clients[client_number(given, [each.name for each in clients])]

    def described(self, client: ClientLife) -> Iterator[tuple[str, str]]:
        """Yield rows of name and value about a client at the time that the replay has reached."""
        return _client_facts(self.simulation, client)

    def run_until(self, time_s: float) -> None:
        """Replay all events up to `time_s`. Raises UserError if the run or its log ends before.

        Each further call needs a time at or after the last one. Also raises UserError if changed code or a
        damaged log prevents the replay.
        """
        if (end_s := self.end_s) is not None and end_s < time_s:
            raise UserError(
                f"{self.path}: the run ended at {end_s:g} s, before the requested time, {time_s:g} s"
            )
        simulation, ended = self.simulation, f"{self.path}: the run ended"
        try:
            if not self._has_begun:
                self._has_begun = True
                simulation.begin()
            reached = simulation.loop.run_until(time_s) or simulation.loop.time() >= time_s
        except ReplayError:
            reached, ended = False, f"{self.path}: its log ends"
        except Exception as error:  # changed code may raise any error
            if not self._changed:
                raise
            raise UserError(
                f"{self.path} cannot be replayed to {time_s:g} s by this code: {error}"
            ) from error
        failure = getattr(simulation.engine.read_log, "failure", None)
        if failure is not None:
            earlier = "" if end_s is not None else "; the run was killed: name an earlier time (--at)"
            raise UserError(f"{self.path} cannot be replayed to {time_s:g} s: {failure}{earlier}")
        if not reached:
            raise UserError(
                f"{ended} at {simulation.loop.time():g} s, before the requested time, {time_s:g} s"
            )


@contextmanager
def start_replay_of_run(
    path: Path,
    *,
    data_dir: Path | None = None,
    code: bool = True,
    notice: Callable[[str], None] | None = None,
    classes: Classes = SIMULATED,
) -> Iterator[Replay]:
    """Return the replay of a run, even of a killed run, at virtual time 0.

    notice: gets a line about code that has changed since. Raises UserError for a run that cannot be replayed.
    """
    folder = max(result_folders(path), key=lambda each: ((each / READS).stat().st_size, each.name))
    directory = RunDirectory.found(folder)
    directory.file(READS)
    with version_added_to_errors(folder):
        scenario = load_scenario(directory.file("scenario.toml"), code=code)
    recorded = Provenance.of(folder)
    device = recorded.machine.device.partition(":")[0]  # the first of several is enough
    scenario = with_engine(scenario, devices=None)
    with replaying(scenario, directory, device=device, data_dir=data_dir, classes=classes) as simulation:
        now = conditions_of_run(scenario, simulation.engine.device, simulation.engine.data)
        matters = {name: what for name, what in now.items() if name not in _OF_NUMBERS_ALONE}
        other = changed_conditions(recorded.made_by, matters)
        if notice is not None and other:
            notice(f"this replay may differ from the run in {path}: {'; '.join(other)}")
        yield Replay(path, folder, simulation, other)


@contextmanager
def replaying(
    scenario: Scenario,
    directory: RunDirectory,
    *,
    device: str,
    data_dir: Path | None = None,
    classes: Classes = SIMULATED,
) -> Iterator[Simulation]:
    """Return a simulation at virtual time 0 that replays a run from its log of reads, without tensor work.

    Raises UserError if the simulation cannot be built, and `ReplayError` if the log is of another run.
    """
    assert scenario.engine.threads != "fastest", "a scenario as results state it"
    with building_process(scenario, data_dir, device, classes) as run:
        simulation = run.simulation
        start_replay(simulation.engine, ReplayedReadLog(frames(directory.path / READS)))
        simulation.add_hook(GarbageCollection())
        yield simulation


def _client_facts(simulation: Simulation, client: ClientLife) -> Iterator[tuple[str, str]]:
    actor = client.actor
    text = f"{client.name}, {'up' if client.up else 'down'} at {simulation.loop.time():g} s"
    if actor is not None and actor.newcomer:
        text += "; has no model from its peers yet"
    yield "client", text
    if moves := _moves_text(simulation, client):
        yield "moves", moves
    yield "device", f"{client.device}, {client.work.steps:,} training steps so far"
    if actor is None:
        yield "state", "none: its state is lost" if moves else "none: the client has not joined yet"
        return
    if client.up:
        yield "activity", _activity_text(client, actor)
    yield "mailbox", ", ".join(ActorStatus(actor).inbox) or "empty"
    yield "peers", ", ".join(actor.peers) or "none"
    for name, value in sorted(vars(actor).items()):
        has_repr = type(value).__repr__ is not object.__repr__
        if has_repr and not name.startswith("_") and name not in _OF_THE_FRAMEWORK:
            text = _ADDRESS.sub("", " ".join(repr(value).split()))
            yield name, text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _moves_text(simulation: Simulation, client: ClientLife) -> str:
    """Describe the client's last arrivals, departures and failures; empty without any."""
    moves = [each for each in simulation.trace.lifecycles if each[1] == client.name and each[2] in _MOVES]
    shown = [
        f"{_MOVES[event]}{_STATES.get(state, '')} at {time_s:g} s"
        for time_s, _, event, state in moves[-_MOVES_MAX:]
    ]
    earlier = len(moves) - len(shown)
    return ", ".join([f"{earlier:,} earlier"] * (earlier > 0) + shown)


def _activity_text(client: ClientLife, actor: Client) -> str:
    """Describe a client's activity and awaited event; for a finished one also the time since then."""
    if client.compute.spent_s is None:
        trains = "trains; " if client.device.state == BUSY else ""
        return trains + ActorStatus(actor).whereabouts("its device, a timer or a similar event")
    waits = ActorStatus(actor).waiting_for
    since = f"finished: its budget was exhausted at {client.compute.spent_s:g} s"
    return f"{since}; waits for {waits}" if waits else since
