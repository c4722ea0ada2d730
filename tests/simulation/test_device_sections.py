"""Devices as a scenario states them: classes, measured speeds, slow times, memory."""

import csv
import os
from pathlib import Path
from statistics import median

import pytest

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.scenario.scenario import Scenario, load_scenario
from sim.scenario.sections.devices import DevicesOfClients
from tests.simulation.worlds import DIGITS, QUADRATIC, simulation

FOLDER = os.environ.get("COTERIE_DATA")
CLASSES = """
[[devices.class]]
name = "phone"
share = 0.5
step_time = "1 s"

[[devices.class]]
name = "board"
share = 0.25
slowdown = 10

[[devices.class]]
name = "server"
clients = [0]
step_time = "10 ms"
"""


def loaded(folder: Path, text: str, *overrides: str) -> Scenario:
    path = folder / "world.toml"
    path.write_text(text)
    return load_scenario(path, overrides)


def devices_of(scenario: Scenario, data_dir: Path | None) -> DevicesOfClients:
    return scenario.devices.build(scenario.run.seed, DataFolder(data_dir), scenario.clients.count)


def test_classes_have_the_shares_that_they_state(tmp_path: Path) -> None:
    devices = devices_of(loaded(tmp_path, QUADRATIC + CLASSES, "clients.count=1000"), None)
    times = [devices.cost_model(client).step_time_s for client in range(1000)]
    factors = [devices.slowness(client).factor for client in range(1000)]
    assert times[0] == 0.01
    assert times.count(1.0) == pytest.approx(500, abs=50)
    assert factors.count(10.0) == pytest.approx(250, abs=45)
    assert not [k for k in range(1000) if times[k] == 1.0 and factors[k] == 10.0]


def test_a_client_keeps_its_class_when_others_come(tmp_path: Path) -> None:
    few = devices_of(loaded(tmp_path, QUADRATIC + CLASSES, "clients.count=50"), None)
    many = devices_of(loaded(tmp_path, QUADRATIC + CLASSES, "clients.count=51"), None)
    assert all(few.cost_model(k) == many.cost_model(k) for k in range(50))


def test_an_override_wins_over_a_class(tmp_path: Path) -> None:
    text = QUADRATIC + CLASSES + '\n[[devices.override]]\nclients = [0]\nstep_time = "3 s"\nslowdown = 2\n'
    devices = devices_of(loaded(tmp_path, text), None)
    assert (devices.cost_model(0).step_time_s, devices.slowness(0).factor) == (3.0, 2.0)


@pytest.mark.skipif(FOLDER is None, reason="COTERIE_DATA names no folder with the real traces")
def test_measured_speeds_are_scaled_to_their_median(tmp_path: Path) -> None:
    assert FOLDER is not None
    with (Path(FOLDER) / "device-traces" / "ai_benchmark_2020.csv").open(encoding="utf-8") as file:
        scores = [float(row["ai_score"]) for row in csv.DictReader(file)]
    speed = '{ kind = "trace", median = "20 GFLOP/s" }'
    text = QUADRATIC.replace('step_time = "125 ms"', f"speed = {speed}")
    devices = devices_of(loaded(tmp_path, text, "clients.count=400"), Path(FOLDER))
    drawn = [devices.cost_model(client).flops_per_s for client in range(400)]
    possible = {round(20e9 * score / median(scores)) for score in scores}
    assert {round(speed or 0.0) for speed in drawn} <= possible and len(set(drawn)) > 100
    slower = QUADRATIC.replace('"125 ms"', '{ kind = "trace", median = "100 ms" }')
    of_time = devices_of(loaded(tmp_path, slower, "clients.count=400"), Path(FOLDER))
    for client in range(400):
        time_s = of_time.cost_model(client).step_time_s
        assert time_s is not None
        assert time_s * (drawn[client] or 0.0) == pytest.approx(0.1 * 20e9), "the same phone"


def test_slow_times_of_a_file_and_of_a_period(tmp_path: Path) -> None:
    (tmp_path / "slow.csv").write_text("time_s,factor\n0,1\n2,4\n3,1\n")
    text = QUADRATIC + '\n[devices.measured]\nfile = "slow.csv"\noffset = "2 s"\n'
    assert devices_of(loaded(tmp_path, text), None).slowness(0).finish_s(0.0, 0.25) == 1.0
    text = QUADRATIC + '\n[devices.periodic]\nperiod = "10 s"\nshare = 0.5\nfactor = 2\nphase = "5 s"\n'
    assert devices_of(loaded(tmp_path, text), None).slowness(0).finish_s(0.0, 1.0) == 2.0
    text = text.replace('phase = "5 s"\n', "")
    devices = devices_of(loaded(tmp_path, text), None)
    assert len({round(devices.slowness(client).finish_s(0.0, 6.0), 6) for client in range(6)}) > 1


RECURRING = {
    "transient": ('every = "1 s"\nlength = "1 s"', "share"),
    "periodic": ('period = "10 s"\nshare = 0.5', "share_of_clients"),
    "measured": ('file = "slow.csv"', "share"),
}


@pytest.mark.parametrize("kind", RECURRING)
def test_recurring_slow_times_may_be_those_of_some(tmp_path: Path, kind: str) -> None:
    (tmp_path / "slow.csv").write_text("time_s,factor\n0,1\n2,4\n3,1\n")
    settings, share = RECURRING[kind]
    factor = "" if kind == "measured" else "factor = 3\n"

    def finish_s(whom: str) -> list[float]:
        """When a job of ten seconds that each client begins at once is done."""
        text = QUADRATIC + f"\n[devices.{kind}]\n{settings}\n{factor}{whom}"
        devices = devices_of(loaded(tmp_path, text, "clients.count=400"), None)
        return [devices.slowness(client).finish_s(0.0, 10.0) for client in range(400)]

    everybodys = finish_s("")
    assert min(everybodys) > 10.0
    assert finish_s("clients = [1, 3]") == [
        everybodys[k] if k in (1, 3) else 10.0 for k in range(400)
    ]  # and nobody's phase or spells have shifted
    of_some = finish_s(f"{share} = 0.25")
    concerned = [k for k in range(400) if of_some[k] != 10.0]
    assert len(concerned) == pytest.approx(100, abs=35)  # four deviations
    assert all(of_some[k] == everybodys[k] for k in concerned)


@pytest.mark.parametrize(
    ("end_s", "problem"),
    [
        ("0", "time_s = 0: must be larger than 0, the time_s of the previous row"),
        ("inf", "time_s = 'inf': must be a number from 0 to"),
        ("nan", "time_s = 'nan': must be a number from 0 to"),
    ],
)
def test_a_trace_of_slow_times_without_a_length_is_refused(tmp_path: Path, end_s: str, problem: str) -> None:
    (tmp_path / "slow.csv").write_text(f"time_s,factor\n0,1\n{end_s},2\n")
    devices = devices_of(loaded(tmp_path, QUADRATIC + '\n[devices.measured]\nfile = "slow.csv"\n'), None)
    with pytest.raises(UserError, match=rf"slow\.csv, line 3: {problem}"):
        devices.slowness(0)


SLOW = '\n[[devices.slowdown]]\nfactor = 1e6\nstart = "{}"\nend = "{}"\n'


def test_many_slow_times_one_after_the_other_are_no_product(tmp_path: Path) -> None:
    with simulation(tmp_path, QUADRATIC + "".join(SLOW.format(f"{n} ms", f"{n + 1} ms") for n in range(40))):
        pass


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    # Logistic regression on digits: 650 parameters, and as many gradients; a batch of 4 times 64 numbers.
    text = DIGITS.replace("[devices]", '[devices]\nmemory = "4 kB"')
    refused = pytest.raises(UserError, match=r"client 0 has 4,000 bytes, but .* takes at least [0-9,]+")
    with refused, simulation(tmp_path, text):
        pass
    with simulation(tmp_path, text.replace("4 kB", "1 MB")):
        pass


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ('\n[[devices.class]]\nname = "a"\nshare = 0.6\nslowdown = 2\n' * 2, "the shares add up to 1.2"),
        ('\n[[devices.class]]\nname = "a"\nshare = 0.6\nspeed = "1 GFLOP/s"\n', "sets 'step_time'"),
        ('\n[[devices.override]]\nclients = [3]\n', "override.0.slowdown: set 'slowdown', 'step_"),
        ('\n[[devices.class]]\nname = "a"\nshare = 1\n', "class.0.slowdown: set 'slowdown', 'step_"),
        ("\n[[devices.override]]\nclients = [3, 1]\nslowdown = 1e4\n" * 2, "client 3 multiply to 1e+08"),
        ("\n[[devices.override]]\nclients = [3]\nslowdown = 1e-4\n" * 2, "must be from 1e-06 to 1,000,000"),
        (SLOW.format("1 s", "2 s") * 17, "slowdown.16.factor = 1000000.0: the product of the factors of"),
        ('\n[[devices.class]]\nname = "a"\n', "set exactly one of 'share' or 'clients'"),
        ('\n[[devices.class]]\nname = "a"\nclients = [77]\nslowdown = 2\n', "there is no client 77"),
        (
            '\n[[devices.class]]\nname = "a"\nclients = [0, 1]\nslowdown = 2\n'
            '\n[[devices.class]]\nname = "b"\nclients = [1, 2]\nslowdown = 2\n',
            "class.1.clients = [1, 2]: client 1 is already in an earlier class",
        ),
        ('\n[devices.periodic]\nperiod = "1 s"\nshare = 0.5\nfactor = 2\nphase = "2 s"\n', "less than"),
        ('\n[devices.measured]\nfile = "nowhere.csv"\n', "nowhere.csv"),
        ('\n[devices.measured]\nfile = "slow.csv"\nclients = [77]\n', "devices.measured.clients = [77]: "),
        (
            '\n[devices.transient]\nevery = "1 s"\nlength = "1 s"\nfactor = 2\nclients = [1]\nshare = 1\n',
            "devices.transient.share = 1: set either 'clients' or 'share', not both",
        ),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, added: str, problem: str) -> None:
    with pytest.raises(UserError) as refusal, simulation(tmp_path, QUADRATIC + added):
        pass
    assert problem in str(refusal.value)
