"""Workers on several devices: parts of a batch on each, with the results of one."""

from typing import Any

import pytest
import torch

from sim.learning.engine import Optimizer
from sim.learning.engine import devices as devices_of
from sim.learning.engine.devices import DeviceWorkers
from sim.learning.engine.graph import sampler
from sim.learning.engine.vector_pool import VectorPool
from sim.learning.engine.workers import Workers
from sim.learning.models.kinds import MODELS as MODELS_OF
from tests.device import DEVICE
from tests.learning.engines import SHAPES, Jobs, client_data, course, new_engine

CLIENTS = 6
MODELS = [("mlp", "dense"), ("decoupled", "vmap"), ("cnn", "loop"), ("normed", "loop")]
NORMED = MODELS_OF["cnn"].model_validate({"name": "cnn", "norm": "batch"}).architecture(SHAPES["cnn"], 3)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices of the parts that are not computed on the first."""
    found, real = [], devices_of.compute_parcel

    def computed(parcel: Any, engine: Any, *others: Any) -> Any:
        found.append(engine.device)
        assert all(array.device.type == engine.device.type for array in parcel.arrays)
        held = engine.rows_held
        reply = real(parcel, engine, *others)
        assert engine.rows_held == held, "it keeps none"
        return reply

    monkeypatch.setattr(devices_of, "compute_parcel", computed)
    return found


@pytest.mark.long
@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("optimizer", [Optimizer(), Optimizer("adam")], ids=["plain", "adam"])
@pytest.mark.parametrize(("model", "backend"), MODELS)
def test_results_and_rows_are_those_of_one(
    model: str,
    backend: str,
    optimizer: Optimizer,
    at_once: int,
    elsewhere: list[torch.device],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows, too: a run that goes on with more devices must find what it has left."""
    monkeypatch.setattr(sampler, "clients_at_once", lambda *arguments: at_once)
    found = []
    for count in (1, 2, 3):
        shape = NORMED.input_shape if model == "normed" else SHAPES[model]
        device = "cpu" if backend == "loop" else DEVICE  # cuDNN does not always add in the same order
        data = client_data([8] * CLIENTS, shape=shape, label_maps=[[0, 2, 1]] * CLIENTS, device=device)
        by = DeviceWorkers([data.train.x.device] * count, data) if count > 1 else Workers()
        engine = new_engine(data, backend=backend, workers=by)
        jobs = Jobs(engine, NORMED if model == "normed" else model, optimizer)
        found.append(course(data, engine, jobs, 2, by))
        assert bool(elsewhere) is (count > 1)
    one, *others = found
    for other in others:
        one.require_equal(other)


@pytest.mark.skipif(DEVICE == "cpu", reason="a CPU has done what it was given when the call returns")
def test_who_falls_behind_reads_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and memory that a part is done with are taken again, while its device has yet to read them."""
    real = VectorPool.gather

    def late(pool: VectorPool, rows: Any) -> torch.Tensor:
        torch.cuda._sleep(2_000_000)  # about a millisecond of the device's time
        return real(pool, rows)

    monkeypatch.setattr(sampler, "clients_at_once", lambda *arguments: 1)
    found = []
    for count in (1, 2, 3):
        data = client_data(
            [8] * CLIENTS, shape=SHAPES["mlp"], label_maps=[[0, 2, 1]] * CLIENTS, device=DEVICE
        )
        by = DeviceWorkers([data.train.x.device] * count, data) if count > 1 else Workers()
        engine = new_engine(data, backend="dense", workers=by)
        with monkeypatch.context() as patched:
            if count > 1:
                patched.setattr(VectorPool, "gather", late)
            found.append(course(data, engine, Jobs(engine, "mlp", Optimizer("adam")), 2, by))
    for other in found[1:]:
        found[0].require_equal(other)


def test_what_fails_elsewhere_fails_here_and_the_device_goes_on(elsewhere: list[torch.device]) -> None:
    device = torch.device(DEVICE)
    workers = DeviceWorkers([device, device], client_data())
    workers.call(int)  # on the first
    with pytest.raises(ZeroDivisionError):
        workers.call(divmod, 1, 0)
    assert [workers.call(divmod, 7, 2) for _ in range(4)] == [(3, 1)] * 4
    assert len(elsewhere) == 3


def test_who_is_alone_on_each_device_is_not_told_of_fewer_workers() -> None:
    device = torch.device(DEVICE)
    assert DeviceWorkers([device, device], client_data()).alone
    assert Workers(1).alone and not Workers(2).alone
