"""Energy, cost and CO2: by hand for small runs, unknown where a constant is, equal after a resume."""

import json
import re
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.results.store.run_directory import load_checked
from sim.run.energy.meter import EnergyMeter
from sim.run.running import RunResult
from sim.run.setup.builder import build
from sim.run.setup.plan import plan_run
from tests.simulation.worlds import QUADRATIC, load, run

POWER = 'devices.power={busy="8 W", idle="2 W"}'
PER_BYTE = 'network.energy_per_byte={sent="3 mJ/B", received="1 mJ/B"}'


def exact(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


def energy(folder: Path, *overrides: str) -> dict[str, Any]:
    directory = run(folder, QUADRATIC, *overrides).directory
    assert directory is not None
    load_checked(directory)
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["energy"]
    return found


def table(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(next((folder / "runs").glob("*/energy.parquet")))


def test_a_straggler_by_hand(tmp_path: Path) -> None:
    """Six clients train alone for 10 s, five of them without a pause: a straggler too, five times longer."""
    slow = 'devices.override=[{clients=[3], slowdown=5, power={busy="1 W", idle="0 W"}}]'
    found = energy(tmp_path, POWER, slow, "energy.price=0.36", "energy.currency=EUR", "energy.carbon=720")
    assert found["clients"]["joules"] == [exact(80.0)] * 3 + [exact(10.0)] + [exact(80.0)] * 2
    assert found["joules"] == exact(410.0)
    assert found["cost"] == exact(410 / 3.6e6 * 0.36) and found["currency"] == "EUR"
    assert found["co2_grams"] == exact(410 / 3.6e6 * 720)
    assert found["parts"]["busy"]["joules"] == exact(410.0) and found["parts"]["idle"]["joules"] == 0
    assert found["unknown"] == [] and found["messages"] == {}, "no message is sent"
    assert found["simulation_cpu_seconds"] > 0


def test_churn_by_hand(tmp_path: Path) -> None:
    """Client 0 is down from 2 to 6 s, client 1 arrives at 4 s; the others train for all 10 s."""
    churn = (
        'churn=[{at="2 s", event="crash", clients=[0]}, {at="6 s", event="rejoin", clients=[0]}, '
        '{at="4 s", event="join", clients=[1]}]'
    )
    found = energy(tmp_path, POWER, churn, PER_BYTE, "protocol.name=gossip", "protocol.period=1 s")
    rows = table(tmp_path)
    seconds = rows.group_by("actor", maintain_order=True).agg(pl.col("seconds").sum())["seconds"].to_list()
    assert seconds == [exact(6.0), exact(6.0), *[exact(10.0)] * 4], "what is down draws nothing"
    expected = 0.0
    for row in rows.iter_rows(named=True):
        factor = {"busy": 8.0, "idle": 2.0, "sent": 3e-3, "received": 1e-3}[row["part"]]
        amount = row["bytes"] if row["seconds"] is None else row["seconds"]
        assert row["joules"] == exact(factor * amount)
        expected += row["joules"]
    assert found["joules"] == exact(expected)
    assert found["cost"] is None and found["co2_grams"] is None
    assert found["unknown"] == ["energy.price", "energy.carbon"]


def test_a_server_by_hand(tmp_path: Path) -> None:
    """FedAvg with four rounds of 1 s: 250 ms there, 500 ms of training, 250 ms back."""
    overrides = (
        "protocol.name=fedavg",
        "protocol.local_steps=4",
        "run.duration=4 s",
        "run.evaluate_every=1 s",
    )
    overrides += ("network.latency=250 ms", POWER, PER_BYTE, 'server.power={busy="100 W", idle="50 W"}')
    rates = ("server.pue=1.5", "energy.price=0.3", "energy.carbon=400")
    found = energy(tmp_path, *overrides, *rates)
    rows = table(tmp_path)
    servers = rows.filter(pl.col("actor").str.contains("server"))
    assert servers.filter(part="idle")["joules"].to_list() == [exact(200.0)]
    messages = rows.filter(pl.col("bytes") > 0)
    assert servers["bytes"].sum() > 0
    devices = 6 * (8 * 2.0 + 2 * 2.0)  # half of each round is training
    assert found["clients"]["joules"] and found["parts"]["busy"]["joules"] == exact(6 * 8 * 2.0)
    assert found["joules"] == exact(devices + 200 + messages["joules"].sum())
    of_server = 200 + servers.filter(pl.col("bytes") > 0)["joules"].sum()
    assert found["servers"]["joules"] == exact(of_server)
    of_clients = found["joules"] - of_server
    assert found["cost"] == exact(0.3 * (of_clients + 1.5 * of_server) / 3.6e6)
    assert found["co2_grams"] == exact(400 * (of_clients + 1.5 * of_server) / 3.6e6)
    by_type = {kind: each["joules"] for kind, each in found["messages"].items()}
    assert sum(by_type.values()) == exact(messages["joules"].sum())


@pytest.mark.parametrize(
    ("left_out", "joules", "cost"),
    [
        ("devices.power", False, False),
        ("network.energy_per_byte", False, False),
        ("server.power", False, False),
        ("server.pue", True, False),
        ("energy.price", True, False),
    ],
)
def test_what_needs_an_unknown_constant_is_unknown(
    tmp_path: Path, left_out: str, joules: bool, cost: bool
) -> None:
    overrides = [POWER, PER_BYTE, 'server.power={busy="100 W", idle="50 W"}', "server.pue=1.5"]
    overrides += ["energy.price=0.3", "energy.carbon=400"]
    overrides = [each for each in overrides if not each.startswith(left_out)]
    found = energy(tmp_path, "protocol.name=fedavg", "protocol.local_steps=4", *overrides)
    assert found["unknown"] == [left_out]
    assert (found["joules"] is not None, found["cost"] is not None) == (joules, cost)


BUDGET = (POWER, "network.energy_per_byte=0 J/B", "run.budget.energy=40 J", "run.duration=60 s")


def summary(folder: Path, *overrides: str) -> dict[str, Any]:
    directory = run(folder, QUADRATIC, *overrides).directory
    assert directory is not None
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return found


def test_a_budget_ends_the_run_when_the_last_client_has_used_it(tmp_path: Path) -> None:
    """40 J at 8 W last 5 s; the straggler needs 3 W only, and has no step that ends at this time."""
    slow = 'devices.override=[{clients=[3], slowdown=7, power={busy="3 W", idle="0 W"}}]'
    found = summary(tmp_path, *BUDGET, slow)
    assert found["virtual_seconds"] == exact(40 / 3)
    assert found["budget"]["energy"] == 40 and found["budget"]["finished"] == 6
    assert found["budget"]["spent_seconds"] == [exact(5.0)] * 3 + [exact(40 / 3)] + [exact(5.0)] * 2
    assert found["energy"]["clients"]["joules"][3] == exact(40.0)
    assert found["energy"]["clients"]["joules"][0] == exact(40.0 + 2 * (40 / 3 - 5)), "then it idles"
    assert found["work"]["steps"]["clients"][0] == 40, "5 s of 125 ms"


def test_a_budget_counts_idle_times_absences_and_bytes(tmp_path: Path) -> None:
    """Client 0 is down from 2 to 4 s. FedAvg's clients compute for half of each round of 1 s."""
    rounds = ("protocol.name=fedavg", "protocol.local_steps=4", "network.latency=250 ms")
    churn = 'churn=[{at="2 s", event="crash", clients=[0]}, {at="4 s", event="rejoin", clients=[0]}]'
    found = summary(tmp_path, *BUDGET, *rounds)
    assert found["budget"]["spent_seconds"] == [exact(8.0)] * 6, "5 J in each second"
    assert found["virtual_seconds"] == exact(8.0)
    found = summary(tmp_path, *BUDGET, *rounds, churn)
    assert found["virtual_seconds"] == found["budget"]["spent_seconds"][0] > 9
    assert found["energy"]["clients"]["joules"][0] == exact(40.0)
    found = summary(tmp_path, *BUDGET, *rounds, "network.energy_per_byte=10 mJ/B")
    rows = table(tmp_path).filter(actor="client-5")
    assert found["virtual_seconds"] < 8 and max(found["budget"]["spent_seconds"]) == found["virtual_seconds"]
    assert rows["joules"].sum() >= 40


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [
        ("devices.power", "the power of some clients is unknown; set devices.power"),
        ("network.energy_per_byte", "also set network.energy_per_byte"),
        ("run.duration", "with a power of 0 W might never exhaust this budget; also set run.duration"),
    ],
)
def test_a_budget_needs_its_constants(tmp_path: Path, left_out: str, problem: str) -> None:
    never = 'devices.override=[{clients=[3], power={busy="3 W", idle="0 W"}}]'
    overrides = [each for each in (*BUDGET, never) if not each.startswith(left_out)]
    text = QUADRATIC.replace('duration = "10 s"\n', "") if left_out == "run.duration" else QUADRATIC
    if left_out == "devices.power":
        overrides.remove(never)
    with pytest.raises(UserError, match=re.escape(problem)):
        run(tmp_path, text, *overrides)


RATES = """region,hour,per_kwh
north,0,0.1
north,1,0.4
south,0,0.2
"""


def test_prices_by_region_and_hour(tmp_path: Path) -> None:
    """Each client trains for 2.5 h; client 3 lives in the south, whose price is constant."""
    (tmp_path / "prices.csv").write_text(RATES)
    overrides = ("run.duration=2.5 h", "run.evaluate_every=1 h", "devices.step_time=100 s", POWER)
    where = ("devices.region=north", 'devices.override=[{clients=[3], region="south"}]')
    found = energy(tmp_path, *overrides, *where, 'energy.price={file="prices.csv"}')
    north = 8 * 1e-3 * (0.1 + 0.4 + 0.5 * 0.1)
    assert found["clients"]["cost"] == [exact(north)] * 3 + [exact(8e-3 * 2.5 * 0.2)] + [exact(north)] * 2
    assert found["unknown"] == ["energy.carbon"]
    found = energy(tmp_path, *overrides, where[1], 'energy.price={file="prices.csv"}')
    assert found["clients"]["cost"][3] is not None and found["clients"]["cost"][0] is None
    assert found["unknown"] == ["devices.region", "energy.carbon"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("region,hour,per_kwh\nnorth,1,0.1\n", "has no row of hour 0 for region north"),
        ("region,hour,per_kwh\nnorth,0,0.1\nnorth,0,0.2\n", "hour = 0: must be a whole number, once"),
        ("region,hour,per_kwh\nwest,0,0.1\n", "has no such region, only west"),
        ("region,hour,price\nnorth,0,0.1\n", "per_kwh"),
    ],
)
def test_a_wrong_table_of_prices_is_refused(tmp_path: Path, rows: str, problem: str) -> None:
    (tmp_path / "prices.csv").write_text(rows)
    with pytest.raises(UserError, match=re.escape(problem)):
        run(tmp_path, QUADRATIC, POWER, "devices.region=north", 'energy.price={file="prices.csv"}')


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["gossip", "dpsgd", "fedavg", "local"]),
    st.integers(0, 99),
    st.sampled_from(["0 s", "30 ms", "400 ms"]),
    st.lists(st.tuples(st.integers(1, 7), st.integers(0, 5)), max_size=3, unique_by=lambda each: each[1]),
    st.booleans(),
)
def test_energy_is_that_of_the_raw_tables(
    tmp_path: Path, method: str, seed: int, latency: str, crashes: list[tuple[int, int]], is_datagram: bool
) -> None:
    """An own function over intervals and events agrees, to 1e-9."""
    churn = ", ".join(f'{{at="{at} s", event="crash", clients=[{client}]}}' for at, client in crashes)
    power = 'devices.power={busy={kind="uniform", low="3 W", high="9 W"}, idle="1 W"}'
    links = ('network.link="datagram"', "network.loss=0.1", "network.duplicate=0.2") if is_datagram else ()
    overrides = (f"run.seed={seed}", f"protocol.name={method}", f"network.latency={latency}", *links)
    server = ('server.power={busy="9 W", idle="5 W"}',) if method == "fedavg" else ()
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    result = run(folder, QUADRATIC, *overrides, f"churn=[{churn}]", power, PER_BYTE, *server)
    assert result.directory is not None
    directory = load_checked(result.directory)
    rows = directory.scan("energy").collect()
    busy_w = dict(
        zip(
            result.summary["client_names"],
            [
                (row["joules"] / row["seconds"]) if row["seconds"] else 0.0
                for row in rows.filter(part="busy").iter_rows(named=True)
            ],
            strict=False,
        )
    )
    assert all(3 <= watts <= 9 for watts in busy_w.values() if watts)
    total = from_tables(
        directory.scan("intervals").collect(),
        directory.scan("events").collect(),
        result.summary["client_names"],
        result.summary["virtual_seconds"],
        busy_w,
    )
    total += 5 * result.summary["virtual_seconds"] * (method == "fedavg")
    assert result.summary["energy"]["joules"] == exact(total)
    joules = directory.scan("metrics").filter(actor="all", name="joules").collect()["value"]
    assert joules[-1] == exact(total) and joules.is_sorted()


def from_tables(
    intervals: pl.DataFrame, events: pl.DataFrame, clients: list[str], end_s: float, busy_w: dict[str, float]
) -> float:
    total = 0.0
    for name in clients:
        own = intervals.filter(actor=name).with_columns(s=pl.col("end") - pl.col("start"))
        busy_s, down_s = (own.filter(state=state)["s"].sum() for state in ("busy", "down"))
        total += busy_w[name] * busy_s + 1.0 * (end_s - down_s - busy_s)
    sent = events.filter(pl.col("event") == "sent", ~pl.col("detail").eq_missing("duplicate"))
    delivered = events.filter(pl.col("event") == "delivered")
    return float(total + 3e-3 * sent["bytes"].sum() + 1e-3 * delivered["bytes"].sum())


def test_power_by_class_share_and_override(tmp_path: Path) -> None:
    """A class by clients, a class that every other client has, an override of one of them, and a draw."""
    classes = (
        'devices.class=[{name="a", clients=[0, 1], power={busy="1 W", idle="0 W"}}, '
        '{name="b", share=1, power={busy={kind="uniform", low="4 W", high="5 W"}, idle="0 W"}}]'
    )
    override = 'devices.override=[{clients=[1], power={busy="3 W", idle="0 W"}}]'
    found = energy(tmp_path, POWER, classes, override)["clients"]["joules"]
    assert found[:2] == [exact(10.0), exact(30.0)]
    assert all(40 <= joules <= 50 for joules in found[2:]) and len(set(found[2:])) == 4


@pytest.mark.long
@pytest.mark.report
def test_the_report_shows_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    page = page_of(run(tmp_path, QUADRATIC, POWER, PER_BYTE, "protocol.name=gossip", "energy.price=0.3"))
    assert "Energy, cost and CO2" in page and "CO2 unknown (not set: energy.carbon)" in page
    assert "The simulation itself used" in page
    assert "Energy, cost and CO2" not in page_of(run(tmp_path, QUADRATIC))


def page_of(result: RunResult) -> str:
    assert result.directory is not None
    return (result.directory / "report.html").read_text(encoding="utf-8")


def test_messages_of_a_table_have_the_energy_of_the_run(tmp_path: Path) -> None:
    """A live run has no hooks: its messages are counted from the table of its events."""
    overrides = (POWER, PER_BYTE, "protocol.name=gossip", "protocol.period=1 s", "network.loss=0.3")
    scenario = load(tmp_path, QUADRATIC, *overrides)
    constants = plan_run(scenario, DataFolder(tmp_path)).energy
    assert constants is not None
    with closing(build(scenario, device="cpu")) as built:
        during = EnergyMeter(constants)
        built.add_hook(during)
        built.run()
        afterwards = EnergyMeter(constants)
        afterwards.recount(cast("pl.DataFrame", pl.from_arrow(built.trace.to_table())))
        found = during.rows(built)
        assert {row.part for row in found} == {"busy", "idle", "sent", "received"}
        assert afterwards.rows(built) == found
