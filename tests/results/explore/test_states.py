"""States of clients: those of the simulation at any time, and the messages that ended waits, by hand."""

from pathlib import Path
from random import Random

import pytest

from actors.message import Envelope
from sim.core.lives import ClientLife
from sim.results.explore.states import (
    CUT_SHORT,
    DOWN,
    FINISHED,
    STATES,
    TIMER,
    TRAINS,
    UNKNOWN,
    WAITS,
    StateInterval,
    client_states,
    state_at,
)
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.trace import Trace
from sim.results.view import RunView
from sim.run.resume.explain import start_replay_of_run
from sim.world.devices.device import BUSY
from tests.protocols.test_survival import LOSSY
from tests.results.synthetic import write_run
from tests.simulation.worlds import run

END_S = 600.0
BUSY_SPANS = [
    ("client-0", 0.0, 10.0),
    ("client-0", 14.0, 20.0),
    ("client-0", 30.0, 40.0),
    ("client-0", 110.0, 120.0),
    ("client-1", 5.0, END_S),
]
DELIVERED = [
    (12.0, "client-1", "client-0", "Model"),
    (14.0, "client-2", "client-0", "Model"),
    (14.0, "client-1", "client-0", "Pull"),
    (110.0, "client-2", "client-0", "Model"),
]
MOVES = [(50.0, "client-0", "crash"), (100.0, "client-0", "rejoin")]


def small_run(folder: Path, *, messages: bool = True) -> RunDirectory:
    directory = write_run(folder, clients=3, clusters=1, evaluations=3, steps=2)
    trace = Trace(keep_messages=messages)
    for name in ("client-0", "client-1", "client-2"):
        trace.lifecycle(0.0, name, "start")
    entries = [(time_s, "delivered", (sender, to), kind) for time_s, sender, to, kind in DELIVERED]
    entries += [(time_s, event, (name,), "") for time_s, name, event in MOVES]
    entries.sort(key=lambda entry: entry[0])
    for number, (time_s, event, names, kind) in enumerate(entries, start=1):
        if event == "delivered":
            trace.message(event, time_s, Envelope(*names, None), kind, 10, "", number)
        else:
            trace.lifecycle(time_s, names[0], event)
    directory.write_events(trace)
    directory.write_intervals([(*span, "busy") for span in BUSY_SPANS])
    return directory


def test_waits_end_with_the_last_message_of_their_end(tmp_path: Path) -> None:
    first, second, third = client_states(RunView(small_run(tmp_path)))
    assert first == [
        StateInterval(0.0, TRAINS),
        StateInterval(10.0, WAITS, "client-1", "Pull"),
        StateInterval(14.0, TRAINS),
        StateInterval(20.0, WAITS, TIMER),
        StateInterval(30.0, TRAINS),
        StateInterval(40.0, WAITS, CUT_SHORT),
        StateInterval(50.0, DOWN),
        StateInterval(100.0, WAITS, "client-2", "Model"),
        StateInterval(110.0, TRAINS),
        StateInterval(120.0, WAITS, CUT_SHORT),
    ]
    assert second == [StateInterval(0.0, WAITS, TIMER), StateInterval(5.0, TRAINS)]
    assert third == [StateInterval(0.0, WAITS, CUT_SHORT)]


def test_without_messages_nobody_knows_why_a_wait_ended(tmp_path: Path) -> None:
    first, *_ = client_states(RunView(small_run(tmp_path, messages=False)))
    assert {each.sender for each in first if each.state == WAITS} == {UNKNOWN}


def test_the_new_state_holds_at_the_time_of_the_change(tmp_path: Path) -> None:
    first, *_ = client_states(RunView(small_run(tmp_path)))
    found = [STATES[state_at(first, time_s).state] for time_s in (0.0, 9.9, 10.0, 50.0, 99.9, 100.0, END_S)]
    assert found == ["trains", "trains", "waits", "down", "down", "waits", "waits"]


@pytest.mark.parametrize(
    "protocol",
    [
        ("protocol.name=dpsgd", "protocol.mode=synchronous", "protocol.patience=700 ms"),
        ("protocol.name=fedavg", "protocol.patience=700 ms"),
        ("protocol.name=gossip", "run.budget.steps=6"),
    ],
    ids=lambda protocol: protocol[0],
)
def test_states_are_those_of_the_simulation(tmp_path: Path, protocol: tuple[str, ...]) -> None:
    path = run(tmp_path, LOSSY, *protocol).directory
    assert path is not None
    view = RunView(load_checked(path))
    states = client_states(view)
    random = Random(7)
    times = {random.uniform(0, view.end_s) for _ in range(60)}
    times |= {each.start_s for stretches in states for each in stretches[:20]}
    seen = set()
    with start_replay_of_run(path) as replay:
        replay.simulation.begin()
        for time_s in sorted(times):
            replay.simulation.loop.run_until(time_s)
            for client, stretches in zip(replay.simulation.clients, states, strict=True):
                expected = simulated(client)
                assert state_at(stretches, time_s).state == expected, (time_s, client.name)
                seen.add(expected)
    assert {TRAINS, DOWN, WAITS} <= seen
    assert (FINISHED in seen) == ("run.budget.steps=6" in protocol)


def simulated(client: ClientLife) -> int:
    """The state of a client, as `explain` describes it."""
    if not client.up:
        return DOWN
    if client.compute.spent_s is not None:
        return FINISHED
    return TRAINS if client.device.state == BUSY else WAITS
