"""Numbers that nobody can mean: refused with key, value and what does not fit, before any allocation."""

import math
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.errors import UserError
from sim.files import machine
from sim.learning import vision
from sim.run.setup.checking import check
from sim.scenario.scenario import load_scenario
from tests.scenario.texts import SMALL
from tests.simulation.worlds import QUADRATIC, load, write

POISSON = '{{ kind = "poisson", every = "{every}", session = {session} }}'
HOUR = '{ kind = "exponential", mean = "1 h" }'


def poisson(every: str = "1 s", session: str = HOUR) -> str:
    return f"churn_process=[{POISSON.format(every=every, session=session)}]"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("engine.threads=1000000000000", "must be a whole number from 1 to 1,024"),
        ("training.batch_size=9007199254740992", "must be at most 1,000,000: no data set has more samples"),
        ("training.learning_rate=1e300", "must be at most 1,000,000"),
        ("training.learning_rate=1e-300", "must be at least 1e-30"),
        ("clients.count=1000000000", "must be at most 1,000,000: more would not fit in memory"),
        ("run.iterations=1000000000000", "must be at most 1,000,000,000"),
        ("run.duration=1e-30 s", "must be from 0.001 us to 36500 day"),
        (f"run.evaluate_every={'9' * 4000} iterations", "must be at most 999,999,999 iterations"),
        ("network.uplink=1e-30 bit/s", "must be from 1 bit/s to 1e6 Gbit/s"),
        ("network.uplink_queue=1e30 GB", "must be from 1 B to 1e6 GB"),
        ("devices={speed='1e30 FLOP/s'}", "must be from 1 FLOP/s to 1e9 TFLOP/s"),
        ("model.hidden=[1000000000]", "must be at most 1,000,000"),
        (f"model.hidden={[1] * 101}", "must have at most 100 items"),
        ("model={name='resnet9', width=1000000, groups=1}", "must be at most 10,000"),
        ('network.latency={kind="lognormal", median="1 s", sigma=1000}', "must be at most 20"),
        ("devices.override=[{clients=[0], slowdown=1e300}]", "must be at most 1,000,000"),
        (
            poisson(session='{ kind = "weibull", scale = "1 s", shape = 0.002 }'),
            "session.shape = 0.002 (from --set): must be at least 0.1",
        ),
        (
            poisson(session='{ kind = "lognormal", median = "1 s", sigma = 1000 }'),
            "session.sigma = 1000 (from --set): must be at most 20",
        ),
        (
            'churn_process=[{kind="trace", source="p2_2020-11-20", speedup=1e300}]',
            "speedup = 1e+300 (from --set): must be at most 1,000,000",
        ),
        ('data.partition={kind="dirichlet", alpha=1e-300}', "must be at least 0.001"),
        (
            'data.partition={kind="permuted-clusters", clusters=2, shift=999999999999999999}',
            "must be at most 1,000,000",
        ),
        ("data={name='quadratic', clusters=2, dimension=1000000}", "must be at most 100,000"),
    ],
)
def test_single_numbers(tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        load_scenario(write(tmp_path, SMALL), [override])
    assert problem in str(refusal.value)
    assert override.partition("=")[0].split(".")[0] in str(refusal.value)
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            [poisson("1 us")],
            'churn_process.0.every = "1 us" (from --set): makes about 6e+07 arrivals of clients in the run; '
            "must be at most 1,000,000",
        ),
        (
            # Arrivals are drawn up to the stated duration, however soon the iterations are done.
            ["run.duration=10 day", "run.iterations=1", "run.evaluate_every=1 day", poisson("100 ms")],
            "makes about 8.6e+06 arrivals",
        ),
        (
            ["run.evaluate_every=0.01 us"],
            'run.evaluate_every = "0.01 us" (from --set): makes about 6e+09 evaluations in the run; must be '
            "at most 100,000,000",
        ),
        (['devices.periodic={period="0.01 us", share=0.5, factor=2}'], "makes about 6e+09 cycles in the run"),
        (['network.loss={kind="gilbert-elliott", good="0.01 us", bad="0.01 us"}'], "network.loss.good = "),
    ],
)
def test_what_would_happen_too_often(tmp_path: Path, overrides: list[str], problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        load_scenario(write(tmp_path, SMALL), overrides)
    assert problem in str(refusal.value)


def test_quadratic_data_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"data\.dimension = 100000.*: with this value, 6 clients have 600,006,000"
    ):
        load(tmp_path, QUADRATIC, "data.dimension=100000", "data.samples=1000")


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "overrides", "problem"),
    [
        (
            SMALL,
            ["model.hidden=[1000000, 1000000]"],
            "a training step takes at least 8,000.6 GB, for a model",
        ),
        (SMALL, ["training.batch_size=1000000", "engine.threads=1"], "a training step takes at least 0.3 GB"),
        (
            SMALL,
            ['protocol={name="pfedhn", hidden=[1000000, 1000000]}'],
            "the method keeps 4,002.5 GB besides the clients' models",
        ),
        (
            QUADRATIC,
            ["clients.count=20000"],
            'topology.kind = "complete": 20,000 clients have 199,990,000 links',
        ),
        (
            QUADRATIC,
            ["clients.count=20000", 'clients.topology={kind="k-regular", degree=18000}'],
            'topology.kind = "k-regular": 20,000 clients have 180,000,000 links',
        ),
        (
            QUADRATIC,
            [
                "clients.count=20000",
                "data.samples=2",
                'clients.topology={kind="erdos-renyi", probability=1e-9}',
            ],
            "topology.probability = 1e-09: on average, 20,000 of the 20000 clients have no neighbor",
        ),
        (
            QUADRATIC,
            ["clients.count=20000", 'clients.topology={kind="clusters", count=2}'],
            'topology.kind = "clusters": 20,000 clients have 99,990,000 links',
        ),
        (
            SMALL,
            ['data.partition={kind="dirichlet", alpha=1, min_samples=1000000}'],
            "data.partition.min_samples = 1000000: 4 clients share 1438 training samples",
        ),
    ],
)
def test_what_is_too_much_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, overrides: list[str], problem: str
) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2 * 10**8)
    with pytest.raises(UserError) as refusal:
        check(load(tmp_path, text, *overrides))
    assert problem in str(refusal.value)


def test_the_models_of_all_clients_must_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """650 numbers in each of four models, twice with momentum, 4 bytes each: 20,800 bytes."""
    scenario = load(tmp_path, SMALL, "model={name='logistic-regression'}", "training.momentum=0.9")
    monkeypatch.setattr(machine, "room_bytes", lambda: math.inf)  # the data have their own
    monkeypatch.setattr(machine, "memory_bytes", lambda: 20_800)
    check(scenario)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 20_799)
    with pytest.raises(UserError, match=r"clients\.count = 4: the models of 4 clients and their optimizers"):
        check(scenario)


def test_the_machine_has_memory() -> None:
    assert 2**20 < machine.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_check_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, folder: Path) -> None:
        raise AssertionError("check downloads")

    monkeypatch.setattr(vision, "download", download)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, SMALL)
    result = CliRunner().invoke(app, ["check", str(path), "--set", "data.name=mnist"])
    assert result.exit_code == 2
    assert "this command does not download (coterie run downloads it)" in result.stderr
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["check", "run"])
def test_an_empty_data_dir_is_not_the_current_folder(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(app, [command, str(write(tmp_path, SMALL)), "--data-dir", ""])
    assert result.exit_code == 2
    assert "must name a folder, but is empty" in " ".join(result.stderr.replace("│", " ").split())


def test_an_empty_data_variable_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_DATA", "")
    with pytest.raises(UserError, match="COTERIE_DATA is empty; name an existing folder, or unset it"):
        check(load(tmp_path, SMALL, "data.name=mnist"))
