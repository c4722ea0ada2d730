"""What several processes found, put together."""

import json
from typing import Any

import polars as pl
import pytest

from sim.live.parts import ProcessResults, facts_of, merge
from sim.results.trace import Trace
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario

OVERRIDES = ("clients.count=4", "clients.topology.degree=2", "run.duration=10 s", "run.compare_alone=false")


def facts(lives: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """What a process tells, with nothing but its lives."""
    counts = dict.fromkeys(("sent", "delivered", "lost", "dropped", "duplicated"), 0)
    found = {
        "lives": lives,
        "counts": counts | {"by_type": {}, "reasons": {}},
        "bytes_sent": {},
        "failures": [],
    }
    found |= {"churn": {"joined": 0}, "graph": [], "coalitions": [], "diverged": None, "diverging": []}
    engine = {"jobs": 1, "batches": 1, "seconds": 0.5, "updates": 2}
    return found | {"models": [], "models_changed": None, "engine": engine} | more


def life(name: str, *intervals: tuple[float, float, str], up: bool = True) -> dict[str, Any]:
    busy_s = sum(end - start for start, end, state in intervals if state == "busy")
    device = {"busy_s": busy_s, "waiting_s": 1.0, "intervals": [list(each) for each in intervals]}
    drawn = dict.fromkeys(("train", "gradient", "loss", "batch"), 3)
    work = {"drawn": drawn, "gradients": 1, "spent_s": None, "measured": 16, "taken": [[3, 0.1, True]]}
    return {"name": name, "up": up, "waits": [2, 1], "iterations": 3, "device": device, "work": work}


def events(*rows: tuple[Any, ...]) -> pl.DataFrame:
    columns = ["time", "event", "actor", "peer", "type", "bytes", "detail", "message"]
    types = [pl.Float64, pl.String, pl.String, pl.String, pl.String, pl.Int64, pl.String, pl.Int64]
    return pl.DataFrame(list(rows), dict(zip(columns, types, strict=True)), orient="row")


def metrics(*rows: tuple[float, str, str, float]) -> pl.DataFrame:
    types = {"time": pl.Float64, "actor": pl.String, "name": pl.String, "value": pl.Float64}
    return pl.DataFrame(list(rows), types, orient="row")


@pytest.fixture
def simulation() -> Any:
    made = build(load_scenario("gossip", OVERRIDES), device="cpu")
    yield made
    made.close()


def test_a_process_tells_what_it_counted_in_plain_types(simulation: Any) -> None:
    counts = simulation.network.counts
    counts.sent = counts.delivered = 2
    counts.by_type["Pull"][:] = [2, 80]
    told = facts_of(simulation, ())["counts"]
    assert json.loads(json.dumps(told)) == told
    assert (told["sent"], told["by_type"], told["reasons"]) == (2, {"Pull": [2, 80]}, {})


def test_two_lives_of_a_client_are_one(simulation: Any) -> None:
    first = ProcessResults(
        "process-1",
        facts([life("client-1", (0.0, 2.0, "busy"))]),
        metrics((0.0, "client-1", "accuracy", 0.1), (0.0, "all", "alive", 1.0)),
        events(
            (0.0, "start", "client-1", None, None, None, None, None),
            (1.0, "sent", "client-1", "client-0", "Model", 50, None, 1),
        ),
    )
    second = ProcessResults(
        "process-1",
        facts([life("client-1", (0.0, 6.0, "down"), (6.0, 7.0, "busy"))], churn={"rejoined": 1}),
        metrics((8.0, "client-1", "accuracy", 0.5), (8.0, "all", "alive", 1.0)),
        events((6.0, "rejoin", "client-1", None, None, None, "fresh", None)),
    )
    other = ProcessResults(
        "process-0",
        facts([life("client-0")]),
        metrics((0.0, "client-0", "accuracy", 0.2), (0.0, "all", "alive", 1.0)),
        events((1.5, "delivered", "client-1", "client-0", "Model", 50, None, 1)),
    )
    found = merge(simulation, [first, second, other], [(2.5, "client-1")])
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


def test_whoever_crashed_last_is_down(simulation: Any) -> None:
    part = ProcessResults(
        "process-1", facts([life("client-1")]), metrics((0.0, "client-1", "accuracy", 0.1)), events()
    )
    merge(simulation, [part], [(3.0, "client-1")])
    assert not simulation.clients[1].up


def test_events_of_all_make_one_trace_whatever_the_order_of_processes(simulation: Any) -> None:
    parts = [
        ProcessResults(
            f"process-{number}",
            facts([]),
            metrics((0.0, f"client-{number}", "accuracy", 0.1)),
            events(
                (0.1 + number, "sent", f"client-{number}", f"client-{1 - number}", "Model", 50, None, 1),
                (
                    1.1 - number + 1,
                    "delivered",
                    f"client-{1 - number}",
                    f"client-{number}",
                    "Model",
                    50,
                    None,
                    1,
                ),
            ),
        )
        for number in range(2)
    ]
    hashes = []
    for order in (parts, parts[::-1]):
        simulation.trace = Trace()
        simulation.network.counts.__init__()
        merge(simulation, order, [])
        hashes.append(simulation.trace.hash())
    assert hashes[0] == hashes[1]
