"""A virtual loop for each test that asks for one, Ray, what hypothesis draws, what the collector looks at."""

import gc
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch

from sim.kernel.clock import VirtualLoop
from sim.learning.engine.backends.precision import allowing_tf32
from sim.results.measures import MEASURES, OF_COTERIE
from tests import draws
from tests.device import DEVICE

draws.register()

_RUNS_BETWEEN = 25
_runs, _unfreeze = count(1), gc.unfreeze


def _unfreeze_seldom() -> None:
    """What was frozen stays so, except at every so many runs: only then is all that runs have left let go.

    Else each run would first look through the whole process again, for longer than it takes itself.
    """
    if next(_runs) % _RUNS_BETWEEN == 0:
        _unfreeze()
        gc.collect()
        gc.freeze()


def pytest_configure() -> None:
    """A shell has commands in the background ignore Ctrl-C, which tests send."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules and tests last as long as the process: no run's collections need look at them."""
    gc.collect()
    gc.freeze()
    gc.unfreeze = _unfreeze_seldom


@pytest.fixture(autouse=True)
def reports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that look at tables alone have an empty report: the page takes a third of a short run's time.

    In the others plotly checks all pictures of each page.
    """
    if "results" not in request.path.parts and request.node.get_closest_marker("report") is None:
        monkeypatch.setattr("sim.run.save.saving.write_report", lambda directory: directory.write_report(""))
    else:
        from tests.results.report.plotly_classes import checked_json

        monkeypatch.setattr("sim.results.report.figure.Figure.to_json", checked_json)


@pytest.fixture(autouse=DEVICE != "cpu")
def computes_on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every run of this process computes there, whatever a test says for the sake of speed.

    Engines without a run find what a run sets for them: torch alone would round convolutions to TF32.
    """
    monkeypatch.setattr("sim.run.setup.builder.choose_device", lambda name: torch.device(DEVICE))
    with allowing_tf32("float32"):
        yield


@pytest.fixture
def loop():
    """A fresh loop, shut down afterwards unless the test did."""
    loop = VirtualLoop()
    yield loop
    if not loop.is_closed():
        loop.shutdown()


@pytest.fixture
def no_garbage_collector():
    """As in a run: what is not freed by reference counting alone is not freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A cluster of two nodes on this machine, each with room for one run."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.second = cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(autouse=True)
def _only_measures_of_coterie() -> Iterator[None]:
    """Remove the measures of users' functions that a test's runs or results have added to the process."""
    yield
    if len(MEASURES) > len(OF_COTERIE):
        MEASURES[:] = [measure for measure in MEASURES if measure.name in OF_COTERIE]
