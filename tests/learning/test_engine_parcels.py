"""Parts of a flush that are computed from what was sent are what they are here, bit for bit."""

import pickle
from typing import Any

import pytest

from sim.learning.engine import Engine, Optimizer
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph import sampler
from sim.learning.engine.graph.samples import ClientData
from sim.learning.engine.parcels import Parcel, ParcelPickler, ParcelUnpickler, compute_parcel
from sim.learning.engine.workers import Workers
from sim.learning.models.kinds import MODELS
from tests.learning.engines import SHAPES, Jobs, client_data, course, new_engine


def sent(parcel: Parcel) -> Parcel:
    """What is on the other side of a wire: bytes, and arrays that nobody can write to."""
    copied: Parcel = pickle.loads(pickle.dumps(parcel))
    for array in copied.arrays:
        array.flags.writeable = False
    return copied


class Elsewhere(Workers):
    """Computes with nothing but what was sent, as another process would."""

    def __init__(self, data: ClientData) -> None:
        super().__init__(1)
        self.data = data
        self.there = Engine(ParcelUnpickler(sent(ParcelPickler().pack(data))).load(), seed=0)
        self.kernels: list[ModelKernel] = []
        self.kernels_there: list[ModelKernel] = []
        self.calls = 0

    def call(self, function: Any, *arguments: Any) -> Any:
        self.calls += 1
        packer = ParcelPickler(self.data, self.kernels)
        parcel = packer.pack((function, arguments))
        for kernel in self.kernels[len(self.kernels_there) :]:
            self.kernels_there.append(ParcelUnpickler(sent(ParcelPickler().pack(kernel))).load())
        held = self.there.rows_held
        reply = compute_parcel(sent(parcel), self.there, self.kernels_there)
        assert self.there.rows_held == held  # it keeps none
        return ParcelUnpickler(sent(reply), rows=packer.rows).load()


CLIENTS = 5
LR = {"name": "logistic-regression"}
OPTIMIZERS = {"plain": Optimizer(), "momentum": Optimizer("sgd", momentum=0.9), "adam": Optimizer("adam")}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("model", "backend"), [("mlp", "dense"), ("decoupled", "vmap"), ("cnn", "loop"), ("resnet9", "loop")]
)
@pytest.mark.parametrize("at_once", [1, 2])
def test_numbers_and_rows_are_those_of_here(
    model: str, backend: str, optimizer: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "clients_at_once", lambda *arguments: at_once)
    found = []
    for kind in (None, Elsewhere):
        data = client_data([8] * CLIENTS, shape=SHAPES[model], label_maps=[[0, 2, 1]] * CLIENTS, device="cpu")
        workers = Workers() if kind is None else kind(data)
        engine = new_engine(data, backend=backend, workers=workers)
        jobs = Jobs(engine, model, OPTIMIZERS[optimizer])
        found.append(course(data, engine, jobs, 3, workers))
        assert kind is None or workers.calls > CLIENTS  # type: ignore[attr-defined]
    here, there = found
    here.require_equal(there)


def test_rows_lie_there_as_they_do_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 650 numbers not all begin where a cache line does, and a product of few samples is then another."""
    monkeypatch.setattr(sampler, "clients_at_once", lambda *arguments: 1)
    architecture, found = MODELS["logistic-regression"].model_validate(LR).architecture((64,), 10), []
    for kind in (Workers, Elsewhere):
        data = client_data([8] * CLIENTS, shape=(64,), device="cpu")
        engine = new_engine(data, workers=kind(data) if kind is Elsewhere else kind())
        jobs = Jobs(engine, architecture)
        params = [jobs.initial(client) for client in range(CLIENTS)]
        for done in range(3):
            params = [jobs.train(client, params[client], 2, done=done)[0] for client in range(CLIENTS)]
        found.append(engine.rows(params))
    assert found[0].equal(found[1])
