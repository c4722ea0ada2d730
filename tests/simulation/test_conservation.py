"""Random small worlds: whatever happens in them, messages, time and lives add up."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.core.simulation import Simulation
from tests.draws import examples
from tests.hooks import AtEvaluations
from tests.simulation.worlds import DIGITS, QUADRATIC, events, simulation

CLIENTS = 6
DURATION_S = 4.0
FATES = ("delivered", "lost", "dropped")


def protocols() -> st.SearchStrategy[dict[str, Any]]:
    """Asynchronous methods that wait for nobody longer than the patience."""
    patience = st.sampled_from(["300 ms", "1 s"])
    return st.one_of(
        st.fixed_dictionaries({"name": st.just("gossip"), "period": st.sampled_from(["150 ms", "400 ms"])}),
        st.fixed_dictionaries(
            {"name": st.just("dpsgd"), "mode": st.just("asynchronous"), "patience": patience}
        ),
        st.fixed_dictionaries(
            {
                "name": st.just("cobo"),
                "sampling": st.sampled_from(["constant", "none"]),
                "exchange": st.sampled_from(["all", "sampled"]),
                "domain": st.sampled_from(["box", "simplex"]),
                "patience": patience,
            }
        ),
    )


def cuts() -> st.SearchStrategy[dict[str, Any]]:
    """A time in which some clients cannot reach others, in one direction or in both."""
    split = st.integers(1, CLIENTS - 1)
    sides = st.one_of(
        split.map(lambda k: {"groups": [list(range(k)), list(range(k, CLIENTS))]}),
        split.map(lambda k: {"from": list(range(k)), "to": list(range(k, CLIENTS))}),
    )
    times = st.tuples(st.integers(0, 30), st.integers(1, 15))
    return st.builds(
        lambda side, time: side | {"start": f"{time[0]}00 ms", "end": f"{time[0] + time[1]}00 ms"},
        sides,
        times,
    )


def networks() -> st.SearchStrategy[dict[str, Any]]:
    bandwidth = st.sampled_from(["unlimited", "1 Mbit/s", "20 kbit/s"])
    return st.fixed_dictionaries(
        {
            "latency": st.sampled_from([0, "20 ms", {"kind": "lognormal", "median": "80 ms", "sigma": 1.0}]),
            "uplink": bandwidth,
            "downlink": bandwidth,
            "loss": st.sampled_from([0.0, 0.3]),
            "link": st.sampled_from(["reliable", "datagram"]),
            "membership": st.sampled_from(["announce", "all-knowing"]),
            "partition": st.lists(cuts(), max_size=2),
        }
    )


@st.composite
def lives(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A possible churn schedule. Client 0 is there from the start; whole tenths invite coincidences."""
    schedule = []
    for client in range(CLIENTS):
        times = draw(st.lists(st.integers(0, 39), max_size=4, unique=True).map(sorted))
        up = client == 0 or draw(st.booleans())
        joined = up
        for tenths in times:
            kinds = ["leave", "crash"] if up else ["rejoin" if joined else "join"]
            kind = draw(st.sampled_from(kinds))
            event = {"at": f"{tenths}00 ms", "event": kind, "clients": [client]}
            if kind == "rejoin":
                event["state"] = draw(st.sampled_from(["keep", "fresh"]))
            schedule.append(event)
            up, joined = not up, True
    return draw(st.permutations(schedule))


@st.composite
def worlds(draw: st.DrawFn) -> str:
    """A scenario file."""
    raw = tomllib.loads(draw(st.sampled_from([QUADRATIC, QUADRATIC, DIGITS])))
    raw["run"] |= {
        "duration": "4 s",
        "evaluate_every": draw(st.sampled_from(["500 ms", "3 iterations"])),
        "seed": draw(st.integers(0, 3)),
        "shuffle_ties": draw(st.booleans()),
    }
    raw["protocol"] = draw(protocols())
    raw["network"] = draw(networks())
    raw["churn"] = draw(lives())
    if draw(st.booleans()):
        raw["devices"]["transient"] = {"every": "1 s", "length": "300 ms", "factor": 5}
    return tomli_w.dumps(raw)


def check(folder: Path, text: str) -> None:
    with simulation(folder, text) as built:
        built.add_hook(AtEvaluations(messages_are_conserved))
        built.run()
        assert [str(failure) for failure in built.supervisor.failures] == []
        assert built.loop.time() == DURATION_S
        messages_are_conserved(built)
        the_trace_agrees(built)
        nothing_reaches_who_is_down(built)
        devices_account_for_all_time(built)
        iterations_never_decrease_in_a_life(built)


def messages_are_conserved(built: Simulation) -> None:
    counts = built.network.counts
    assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
    assert min(counts.delivered, counts.lost, counts.dropped, counts.in_flight) >= 0
    assert sum(counts.reasons.values()) == counts.lost + counts.dropped
    assert [sum(column) for column in zip(*counts.by_type.values(), strict=True)] in (
        [counts.sent, counts.bytes],
        [],
    )


def the_trace_agrees(built: Simulation) -> None:
    counts, seen = built.network.counts, Counter(entry["event"] for entry in events(built))
    assert [seen[fate] for fate in ("sent", *FATES)] == [
        counts.sent,
        counts.delivered,
        counts.lost,
        counts.dropped,
    ]


def nothing_reaches_who_is_down(built: Simulation) -> None:
    up: set[str] = set()
    left_s: dict[str, float] = {}
    for entry in events(built):
        if entry["event"] in ("start", "join", "rejoin"):
            up.add(entry["actor"])
        elif entry["event"] in ("leave", "crash"):
            up.discard(entry["actor"])
            if entry["event"] == "leave":
                left_s[entry["actor"]] = entry["time"]
        elif entry["event"] == "delivered":
            # Leaving takes no time here, but the rest of its instant.
            assert entry["peer"] in up or left_s.get(entry["peer"]) == entry["time"], entry


def devices_account_for_all_time(built: Simulation) -> None:
    for client in built.clients:
        device = client.device
        assert device.busy_s + device.waiting_s + device.down_s == pytest.approx(DURATION_S)
        absent = [(event.time_s, event.kind) for event in built.events if client.index in event.clients]
        up_s = 0.0 if client.up_at_start else None
        total_up_s = 0.0
        for time_s, kind in [*sorted(absent), (DURATION_S, "end")]:
            if kind in ("join", "rejoin"):
                up_s = time_s
            elif up_s is not None:
                total_up_s += time_s - up_s
                up_s = None
        assert device.down_s == pytest.approx(DURATION_S - total_up_s)


def iterations_never_decrease_in_a_life(built: Simulation) -> None:
    for client in built.clients:
        began_s = [
            event.time_s
            for event in built.events
            if client.index in event.clients and event.kind == "rejoin" and event.state == "fresh"
        ]
        times, values = built.observer.metrics.series(client.name, "iterations")
        for k in range(1, len(times)):
            afresh = any(times[k - 1] < time_s <= times[k] for time_s in began_s)
            assert afresh or values[k] >= values[k - 1]


@pytest.mark.long
@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=worlds())
def test_everything_adds_up(tmp_path: Path, text: str) -> None:
    check(tmp_path, text)
