"""Energy, cost and CO2: by hand for small runs, unknown where a constant is, equal after a resume."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sim.errors import UserError
from sim.results.store.run_directory import load_checked
from tests.simulation.worlds import QUADRATIC, run

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
        ("run.duration", "a power of 0 W may never use this budget; also set run.duration"),
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
