"""What the scenarios' headers say of their variations holds, on the shipped seeds and in full length."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from tests.simulation.test_scenarios import FOLDER, skip_without_data

Summary = dict[str, Any]


def graph(summary: Summary) -> tuple[float, float]:
    """Precision and recall of the edges at the end."""
    return summary["graph"]["edge_precision"], summary["graph"]["edge_recall"]


def accuracy(summary: Summary) -> float:
    """The mean over clients, in %."""
    return 100 * summary["accuracy"]["mean"]


def coalitions(summary: Summary) -> list[list[int]]:
    """The clients of each coalition at the end."""
    return [[int(name.removeprefix("client-")) for name in each] for each in summary["coalitions"]["members"]]


AUTHORS = ("protocol.learn_prior=false", "protocol.null_model=none")
FORTY = (
    'data.partition={kind="dirichlet", alpha=0.4, class_clusters=4, samples_per_client=40}',
    "run.evaluate_every=100 s",
)
TWO = (
    "protocol.name=mapl",
    'model.backbones=["small-mlp", "deep-mlp"]',
    "model.initialisation=independent",
)
OF_ONE: dict[str, tuple[str, tuple[str, ...], Callable[[Summary], bool]]] = {
    "SCooL finds the graph": ("scool_sbm", (), lambda found: graph(found) == (1, 1)),
    "two blocks of a fixed prior lack an eighth of the edges": (
        "scool_sbm",
        (*AUTHORS, "protocol.blocks=2"),
        lambda found: graph(found)[0] == 1 and 0.8 < graph(found)[1] < 0.95,
    ),
    "ten blocks of a fixed prior lack five sixths or all": (
        "scool_sbm",
        (*AUTHORS, "protocol.blocks=10"),
        lambda found: graph(found)[1] < 0.3,
    ),
    "SCooL with 30% lost has no wrong edge": (
        "scool_churn",
        ("network.loss=0.3",),
        lambda found: graph(found)[0] == 1 and 0.6 < graph(found)[1] < 0.85,
    ),
    "CoBo finds the graph": ("cobo_cross_silo", (), lambda found: graph(found) == (1, 1)),
    "FedeRiCo finds the graph": ("federico", (), lambda found: graph(found) == (1, 1)),
    "MAPL+ whose heads start alike drops nobody": (
        "mapl_few",
        ("model.initialisation=shared",),
        lambda found: graph(found) == (0.4, 1),
    ),
    "those who have the same sign find each other": (
        "l2c_synthetic",
        (),
        lambda found: coalitions(found) == [[0, 1, 2], [3, 4, 5]],
    ),
    "with many samples everybody is alone": (
        "l2c_synthetic",
        ("data.samples=20000", "data.rho=1.0"),
        lambda found: coalitions(found) == [[number] for number in range(6)],
    ),
}
"""By claim: a scenario, what is overridden, and whether its summary says so."""
OF_TWO: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], float, float]] = {
    "MAPL+ is three points above its own losses": ("mapl_few", (), ("protocol.alone=true",), 2, 4),
    "prototypes alone bring nothing": (
        "mapl_few",
        ("protocol.name=mapl",),
        ("protocol.name=mapl", "protocol.alone=true"),
        -1,
        1,
    ),
    "nor for different networks": ("mapl_few", TWO, (*TWO, "protocol.alone=true"), -1, 1),
    "where images are few FedeRiCo is above training alone": (
        "federico",
        FORTY,
        (*FORTY, "protocol.name=local"),
        0.5,
        8,
    ),
    "and above FedAvg+": ("federico", FORTY, (*FORTY, "protocol.name=fedavg-plus"), 0.5, 8),
    "FedPer helps who knows three classes": (
        "personalized",
        (),
        ("protocol.name=local",),
        1,
        3,
    ),
    "Per-FedAvg does not": (
        "personalized",
        ("protocol.name=per-fedavg", "protocol.adaptation_rate=0.05"),
        ("protocol.name=local",),
        -6,
        -2,
    ),
}
"""By claim: a scenario, two sets of overrides, and the least and the most points between them."""


def summary_of(name: str, overrides: tuple[str, ...], out: Path) -> Summary:
    skip_without_data(name)
    scenario = load_scenario(FOLDER / f"{name}.toml", [*overrides, "run.keep_messages=false"])
    return run_scenario(scenario, RunOptions(out=out, device="cpu")).summary


@pytest.mark.slow
@pytest.mark.parametrize("claim", OF_ONE)
def test_what_a_header_says_of_a_run(claim: str, tmp_path: Path) -> None:
    name, overrides, holds = OF_ONE[claim]
    assert holds(summary_of(name, overrides, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("claim", OF_TWO)
def test_what_a_header_says_of_two_runs(claim: str, tmp_path: Path) -> None:
    name, overrides, others, least, most = OF_TWO[claim]
    first, second = summary_of(name, overrides, tmp_path / "1"), summary_of(name, others, tmp_path / "2")
    assert least < accuracy(first) - accuracy(second) < most
