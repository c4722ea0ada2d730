"""What several processes found, put together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import polars as pl
import pytest

from actors.codec import Codec
from actors.message import Envelope
from sim.live.logs import FileLog, log_path
from sim.live.loop import LiveLoop
from sim.live.network import LiveNetwork
from sim.live.parts import _SHARED, MergedEvents, Outcome, ProcessResults, merge
from sim.live.reporting import Reporter, StreamedTrace
from sim.results.trace import EVENTS_SCHEMA, Trace
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from sim.world.distributions import Constant
from sim.world.network_model import ConnectionModel, NetworkModel
from tests.lists import require_listed

OF_ONE_EVENT = ("time", "event", "detail")
"""Columns that may differ between the sending of a message and its end."""
EVENTS = dict(pl.DataFrame(pl.from_arrow(EVENTS_SCHEMA.empty_table())).schema)
OVERRIDES = ("clients.count=4", "clients.topology.degree=2", "run.duration=10 s", "run.compare_alone=false")


ENGINE = {"jobs": 1, "batches": 1, "seconds": 0.5, "updates": 2}


def part(
    process: str,
    lives: dict[str, list[Any]],
    metrics: pl.DataFrame,
    events: pl.DataFrame,
    **facts: Any,
) -> ProcessResults:
    """What a process told. lives: the device's intervals of each client."""
    told = {name: facts_of_life(intervals) for name, intervals in lives.items()}
    lists = {f"intervals {name}": intervals for name, intervals in lives.items()}
    lists |= {f"taken {name}": [[3, 0.1, True]] for name in lives}
    known = {"now_s": 10.0, "diverged": None, "diverging": [], "models": [], "models_changed": None}
    return ProcessResults(process, known | {"engine": ENGINE} | facts, told, lists, metrics, events)


def facts_of_life(intervals: list[Any]) -> dict[str, Any]:
    busy_s = sum(end - start for start, end, state in intervals if state == "busy")
    drawn = dict.fromkeys(("train", "gradient", "loss", "batch"), 3)
    work = {"drawn": drawn, "gradients": 1, "spent_s": None, "measured": 16}
    device = {"busy_s": busy_s, "waiting_s": 1.0}
    return {"up": True, "waits": [2, 1], "iterations": 3, "device": device, "work": work}


def outcome(*parts: ProcessResults, crashes: Sequence[tuple[float, str]] = ()) -> Outcome:
    return Outcome(parts, crashes, [], {}, raw=False, interrupted=False)


def events(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), EVENTS, orient="row")


def row(time: float, event: str, actor: str, **columns: Any) -> tuple[Any, ...]:
    """A row of a trace; columns that are not stated are null."""
    stated = {"time": time, "event": event, "actor": actor, **columns}
    assert stated.keys() <= EVENTS.keys()
    return tuple(stated.get(name) for name in EVENTS)


def told(**columns: Any) -> list[Any]:
    """The record of a message in a log, with other values in these columns."""
    records: list[list[Any]] = []
    trace = StreamedTrace()
    trace.tell = lambda *record: records.append(list(record))
    trace.message("sent", 1.0, Envelope("client-0", "client-1", None), "Model", 50, "", 1)
    kind, *values = records[0]
    return [kind, *(dict(zip(EVENTS, values, strict=True)) | columns).values()]


def metrics(*rows: tuple[float, str, str, float]) -> pl.DataFrame:
    types = {"time": pl.Float64, "actor": pl.String, "name": pl.String, "value": pl.Float64}
    return pl.DataFrame(list(rows), types, orient="row")


@pytest.fixture
def simulation() -> Any:
    made = build(load_scenario("gossip", OVERRIDES), device="cpu")
    yield made
    made.close()


def test_it_is_stated_which_columns_the_sending_and_the_end_of_a_message_share() -> None:
    """An event that no process recorded has these values of the other event, and null otherwise."""
    where = f"_SHARED in sim/live/parts.py, if it is one of a message, or to OF_ONE_EVENT in {__file__}"
    require_listed(EVENTS, (*_SHARED, *OF_ONE_EVENT), where)


def test_two_lives_of_a_client_are_one(simulation: Any) -> None:
    first = part(
        "process-1",
        {"client-1": [[0.0, 2.0, "busy"]]},
        metrics((0.0, "client-1", "accuracy", 0.1), (0.0, "all", "alive", 1.0)),
        events(
            started("client-1"),
            message("sent", 1.0, 1),
        ),
    )
    second = part(
        "process-1",
        {"client-1": [[0.0, 6.0, "down"], [6.0, 7.0, "busy"]]},
        metrics((8.0, "client-1", "accuracy", 0.5), (8.0, "all", "alive", 1.0)),
        events(row(6.0, "rejoin", "client-1", detail="fresh")),
    )
    other = part(
        "process-0",
        {"client-0": []},
        metrics((0.0, "client-0", "accuracy", 0.2), (0.0, "all", "alive", 1.0)),
        events(message("delivered", 1.5, 1)),
    )
    found = merge(simulation, outcome(first, second, other, crashes=[(2.5, "client-1")])).events
    assert found["event"].to_list() == ["start", "sent", "delivered", "crash", "rejoin"]
    assert found["message"].drop_nulls().n_unique() == 1
    client = simulation.clients[1]
    assert client.up and client.iterations == 3
    assert client.waits == (4, 2)
    assert client.work.steps == 3
    assert client.device.intervals() == [(0.0, 2.0, "busy"), (2.0, 6.0, "down"), (6.0, 7.0, "busy")]
    assert (client.device.busy_s, client.device.waiting_s, client.device.down_s) == (3.0, 2.0, 5.0)
    assert not simulation.clients[3].up  # of whom nobody has said anything
    assert (simulation.churn.crashed, simulation.churn.rejoined) == (1, 1)
    assert simulation.observer.metrics.latest("alive") == {"all": 1.0}
    assert simulation.observer.metrics.series("all", "alive").values.tolist() == [2.0, 1.0]
    assert simulation.loop.time() == 10.0


def started(name: str) -> tuple[Any, ...]:
    return row(0.0, "start", name)


def message(event: str, time_s: float, number: int, *, back: bool = False, why: str | None = None) -> Any:
    sender, receiver = ("client-0", "client-1") if back else ("client-1", "client-0")
    columns = {"peer": receiver, "type": "Model", "bytes": 50, "detail": why, "message": number}
    return row(time_s, event, sender, **columns)


def test_whoever_crashed_last_is_down(simulation: Any) -> None:
    told = part(
        "process-1", {"client-1": []}, metrics((0.0, "client-1", "loss", 0.1)), events(started("client-1"))
    )
    merge(simulation, outcome(told, crashes=[(3.0, "client-1")]))
    assert not simulation.clients[1].up


def test_who_had_left_does_not_crash_with_its_process(simulation: Any) -> None:
    left = row(2.0, "leave", "client-1")
    told = part("process-1", {"client-1": []}, metrics(), events(started("client-1"), left))
    merge(simulation, outcome(told, crashes=[(3.0, "client-1"), (3.0, "client-2")]))
    assert (simulation.churn.crashed, simulation.churn.left) == (0, 1)


@pytest.mark.parametrize("crashes", [[], [(3.0, "client-1")]])
def test_a_run_of_which_nothing_was_told_has_results(simulation: Any, crashes: list[Any]) -> None:
    merged = merge(simulation, outcome(crashes=crashes))
    assert merged.events.height == 0 and merged.in_flight == 0
    assert merged.events.columns == EVENTS_SCHEMA.names


def fates(found: MergedEvents) -> dict[str, int]:
    """How many messages met each fate, counted one by one; -1 where one was sent or ended twice."""
    rows = found.events.filter(pl.col("message").is_not_null())
    counts = dict(rows["event"].value_counts().iter_rows())
    sent, ended = (
        rows.filter((pl.col("event") == "sent") == is_sent)["message"] for is_sent in (True, False)
    )
    if sent.n_unique() < sent.len() or ended.n_unique() < ended.len() or set(ended) - set(sent):
        return {"wrong": -1}
    return counts | {"in_flight": len(set(sent) - set(ended))}


def test_each_message_has_one_sending_and_one_fate_whoever_died(simulation: Any) -> None:
    dead = part(
        "process-1",
        {},
        metrics(),
        events(
            started("client-1"),
            message("sent", 1.0, 1),
            message("sent", 1.1, 2),
            message("lost", 1.2, 2, why="cut off"),  # but it had come
            message("sent", 2.9, 3),  # nobody knows more
        ),
    )
    alive = part(
        "process-0",
        {},
        metrics(),
        events(
            started("client-0"),
            message("delivered", 1.1, 1),
            message("delivered", 1.2, 2),
            message("delivered", 2.0, 9),  # whose sending was not told
            message("sent", 2.8, 1, back=True),  # was on its way when its receiver died
            message("sent", 5.0, 2, back=True),
            message("dropped", 5.1, 2, back=True, why="down"),
            message("sent", 9.9, 3, back=True),
        ),
    )
    merged = merge(simulation, outcome(dead, alive, crashes=[(3.0, "client-1")]))
    assert fates(merged) == {"sent": 7, "delivered": 3, "dropped": 3, "in_flight": 1}
    assert (merged.in_flight, merged.untold, merged.twice, merged.settled) == (1, 1, 1, 2)
    counts = simulation.network.counts
    assert (counts.sent, counts.delivered, counts.lost, counts.dropped) == (7, 3, 0, 3)
    assert counts.reasons == {"down": 2, "sender crashed": 1}
    assert counts.by_type == {"Model": [7, 350]}
    assert dict(simulation.network.bytes_sent) == {"client-1": 200, "client-0": 150}


def test_two_lives_of_a_process_number_their_messages_differently(simulation: Any) -> None:
    own = {"client-0": "process-0", "client-1": "process-1"}
    numbers = []
    for lives in range(3):
        network = LiveNetwork(LiveLoop(lambda: 0.0), 1, NetworkModel(ConnectionModel(Constant(value=0.1))))
        network.join(None, "process-1", own, Codec(), lives)  # type: ignore[arg-type]
        numbers += [next(network.numbers) for _ in range(3)]
    assert len(set(numbers)) == 9


def test_events_of_all_make_one_trace_whatever_the_order_of_processes(simulation: Any) -> None:
    parts = []
    for number in range(2):
        own, is_first = f"client-{number}", number == 0
        sent = message("sent", 0.1 + number, 1, back=is_first)
        delivered = message("delivered", 1.1 - number + 1, 1, back=not is_first)
        found = events(sent, delivered)
        parts.append(part(f"process-{number}", {}, metrics((0.0, own, "accuracy", 0.1)), found))
    hashes = []
    for order in (parts, parts[::-1]):
        simulation.trace = Trace()
        merge(simulation, outcome(*order))
        hashes.append(simulation.trace.hash())
    assert hashes[0] == hashes[1]


# --- logs ---------------------------------------------------------------------------------------------------


def test_what_a_process_tells_is_what_is_read(tmp_path: Path, simulation: Any) -> None:
    """Also of lists whose last row changes, and of a log whose last record is torn."""
    trace, log = StreamedTrace(), FileLog(log_path(tmp_path, "process-1"), pytest.fail)
    trace.tell = log.write
    simulation.trace, simulation.network.listener = trace, trace.message
    teller = Reporter(simulation, ["client-1"], log)
    metrics = simulation.observer.metrics
    own = Trace()
    for each in (trace, own):
        each.lifecycle(0.0, "client-1", "start")
        each.message("sent", 0.5, Envelope("client-1", "client-0", None), "Model", 50, "", 7)
        each.checksum(0.5, "client-1", -1)
        each.message("lost", 0.6, Envelope("client-1", "client-0", None), "Model", 50, "loss", 7)
    lateness: list[float] = []
    for time_s in range(4):
        metrics.add(float(time_s), "client-1", "accuracy", 0.1 * time_s)
        metrics.graph(float(time_s // 2), 0, 1 + time_s % 2, 0.5)
        lateness.append(float(time_s))
        teller.tell({"code_warnings": []}, {"late_jobs": lateness})
    found = ProcessResults.read("process-1", log_path(tmp_path, "process-1"))
    assert found.events.equals(pl.DataFrame(pl.from_arrow(own.to_table())))
    assert found.metrics.rows() == metrics.rows_from(0)
    assert [tuple(row) for row in found.lists["graph"]] == metrics.graph_rows()
    assert found.lists["late_jobs"] == lateness
    assert found.of_life("client-1")["work"]["taken"] == []  # type: ignore[index]
    whole = log_path(tmp_path, "process-1").read_bytes()
    log_path(tmp_path, "process-1").write_bytes(whole[:-3])
    torn = ProcessResults.read("process-1", log_path(tmp_path, "process-1"))
    assert torn.events.equals(found.events) and torn.lists["graph"] == found.lists["graph"]


@pytest.mark.parametrize(
    "record",
    [
        told()[:3],
        told()[:-1],
        told(time="soon"),
        told(event="sent"),
        told(event=200),
        told(bytes=1 << 63),
        told(type=["Model"]),
        [*told(), "a new column"],
        ["rows", "metrics"],
        ["rows", "metrics", 0, 3],
        ["facts"],
        [],
        [3],
    ],
    ids=repr,
)
def test_a_log_that_makes_no_sense_is_named(tmp_path: Path, record: list[Any]) -> None:
    """Among them an event with a column more than a run's table has: it must not pass in silence."""
    log = FileLog(log_path(tmp_path, "process-1"), pytest.fail)
    log.write(*record)
    (lost,) = Outcome.read(tmp_path).lost
    assert lost.startswith("the log of process-1 is invalid: ")


@pytest.mark.long
def test_bytes_told_grow_with_what_happens_and_not_with_its_square(simulation: Any) -> None:
    """An hour in which a client with a process of its own is told each second."""
    told = Counted()
    simulation.trace = trace = StreamedTrace()
    trace.tell = told.write
    teller = Reporter(simulation, ["client-1"], told)
    envelope, device = Envelope("client-1", "client-0", None), simulation.clients[1].device
    bytes_by = []
    lateness: list[float] = []
    for second in range(3_600):
        for number in range(10):
            trace.message("sent", second + number / 10, envelope, "Model", 50, "", 10 * second + number + 1)
        simulation.observer.metrics.add(float(second), "client-1", "accuracy", 0.5)
        lateness.append(0.001)
        device._timeline.add(second + 0.2, second + 0.4, "busy")
        teller.tell({}, {"late_messages": lateness})
        bytes_by.append(told.bytes)
    assert bytes_by[-1] / 36_000 < 150  # a message
    assert bytes_by[-1] < 2.5 * bytes_by[len(bytes_by) // 2]


class Counted:
    """Counts what is told."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, *record: Any) -> None:
        self.bytes += len(msgpack.packb(record))

    def flush(self) -> None:
        pass


def test_the_records_that_the_tests_change_are_valid(tmp_path: Path) -> None:
    log = FileLog(log_path(tmp_path, "process-1"), pytest.fail)
    log.write(*told())
    assert Outcome.read(tmp_path).lost == []


@pytest.mark.parametrize(
    "record", [told()[:-1], [*told(), "more"], ["rows", "metrics", 0, [[1.0, "client-0", "accuracy"]]]]
)
def test_a_row_with_other_columns_than_its_table_is_refused(tmp_path: Path, record: list[Any]) -> None:
    """A column that nobody tells would be null for all rows, in silence."""
    log = FileLog(log_path(tmp_path, "process-1", 1), on_error=pytest.fail)
    log.write(*record)
    log.close()
    [found] = Outcome.read(tmp_path).lost
    assert found.startswith("the log of process-1 is invalid: ")
