"""engine.way = "fastest": what is measured, what is taken, and what is remembered."""

import pytest
import torch
from torch import Tensor

from sim.errors import UserError
from sim.learning.engine import Optimizer
from sim.learning.engine import autotune as choice
from sim.learning.engine.autotune import CLIENTS_MAX, TimedTrainingStep, fastest_threads, usable_cores
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.sampler import BatchSampler
from tests.learning.engines import MODELS_AND_WAYS, SHAPES, client_data, objective_of, small

TIMES = {"dense": 5.0, "vmap": 3.0, "loop": 4.0}
SLOW_AT_FIRST = {"vmap": 2.5}


class Stopwatch:
    """Stands in for time and for the kernels' work: a step takes what TIMES says, the first one more."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.unit_s = 1e-3
        self.fails: dict[str, Exception] = {}

    def perf_counter(self) -> float:
        return self.now

    def step(self, kernel: ModelKernel, flat: Tensor, x: Tensor, y: Tensor, *rate: Tensor) -> None:
        if kernel.backend in self.fails:
            raise self.fails[kernel.backend]
        first = kernel.backend not in [backend for backend, _ in self.calls]
        self.calls.append((kernel.backend, tuple(x.shape)))
        self.now += self.unit_s * (
            TIMES[kernel.backend] + (SLOW_AT_FIRST.get(kernel.backend, 0) if first else 0)
        )


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    stopwatch = Stopwatch()
    monkeypatch.setattr(choice, "_remembered", {})
    monkeypatch.setattr(choice, "time", stopwatch)
    for method in ("gradients", "descend"):
        monkeypatch.setattr(ModelKernel, method, lambda *arguments: stopwatch.step(*arguments))
    return stopwatch


def fastest(model: str = "mlp", clients: int = 3, batch_size: int = 4, precision: str = "float32") -> str:
    data = client_data([6] * clients, shape=SHAPES[model])
    sampler = BatchSampler(data.train, batch_size, "shuffled")
    return TimedTrainingStep(
        small(model), objective_of(model), Optimizer(), sampler, clients, precision
    ).fastest_backend()


def test_the_way_of_the_least_time_is_taken(watch: Stopwatch) -> None:
    assert fastest() == "vmap", "although its first call is the slowest of all"
    assert {backend for backend, _ in watch.calls} == {"dense", "vmap", "loop"}
    assert fastest("cnn") == "vmap"
    assert [backend for backend, _ in watch.calls].count("dense") == 4, "a CNN has no such way"


def test_the_batch_is_like_the_runs(watch: Stopwatch) -> None:
    fastest(clients=CLIENTS_MAX + 10, batch_size=20)  # more than a client has
    assert {shape for _, shape in watch.calls} == {(CLIENTS_MAX, 20, *SHAPES["mlp"])}


def test_a_choice_is_remembered_for_what_it_depends_on(watch: Stopwatch) -> None:
    def measures(**changed: object) -> bool:
        before = len(watch.calls)
        fastest(**changed)  # type: ignore[arg-type]
        return len(watch.calls) > before

    assert measures()
    assert not measures()
    assert all([measures(clients=2), measures(batch_size=5), measures(precision="bfloat16")])
    assert not measures()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert measures()
    finally:
        torch.set_num_threads(threads)
    assert not measures()


def test_what_takes_long_is_measured_once(watch: Stopwatch) -> None:
    watch.unit_s = 1.0
    assert fastest() == "loop"  # vmap pays for its first call
    assert [backend for backend, _ in watch.calls] == ["dense", "vmap", "loop"]


def test_a_way_without_room_is_not_taken(watch: Stopwatch) -> None:
    watch.fails = {"vmap": torch.OutOfMemoryError("CUDA out of memory")}
    assert fastest() == "loop"
    watch.fails |= dict.fromkeys(("loop", "dense"), RuntimeError("can't allocate memory"))
    with pytest.raises(UserError, match="no room for a training step of 2 clients with mlp"):
        fastest(clients=2)
    watch.fails = {"vmap": RuntimeError("expected scalar type")}
    with pytest.raises(RuntimeError, match="scalar type"):
        fastest(clients=2)


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.parametrize("optimizer", [Optimizer(), Optimizer("adam")], ids=str)
def test_measuring_every_model(model: str, optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For real; it leaves the global random numbers alone."""
    monkeypatch.setattr(choice, "_remembered", {})
    before = torch.random.get_rng_state()
    sampler = BatchSampler(client_data([6, 3], shape=SHAPES[model]).train, 4, "shuffled")
    backend = TimedTrainingStep(small(model), objective_of(model), optimizer, sampler, 2).fastest_backend()
    assert (model, backend) in MODELS_AND_WAYS
    assert torch.equal(torch.random.get_rng_state(), before)


def threads_taken(watch: Stopwatch, monkeypatch: pytest.MonkeyPatch, cores: int, *times: float) -> int:
    """What is taken where a step takes so long with 1, 2, 4, ... threads."""
    by_threads = {2**n: took for n, took in enumerate(times)}

    def step() -> None:
        watch.now += by_threads[torch.get_num_threads()]

    monkeypatch.setattr(choice, "usable_cores", lambda: cores)
    before = torch.get_num_threads()
    try:
        return fastest_threads([step, step], torch.device("cpu"))
    finally:
        assert torch.get_num_threads() == before


def test_threads_are_doubled_while_that_gains_a_tenth(
    watch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert threads_taken(watch, monkeypatch, 64, 8.0, 7.5) == 1, "a fifteenth less"
    assert threads_taken(watch, monkeypatch, 64, 8.0, 6.0, 3.0, 2.9) == 4
    assert threads_taken(watch, monkeypatch, 64, 8.0, 500.0) == 1


def test_no_more_threads_than_cores(watch: Stopwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads_taken(watch, monkeypatch, 1, 8.0) == 1
    assert threads_taken(watch, monkeypatch, 3, 8.0, 4.0) == 2
    assert usable_cores() >= 1
