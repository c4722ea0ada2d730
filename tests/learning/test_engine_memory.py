"""Memory that runs out: calls are cut into smaller ones, and what can't be cut is refused and explained."""

import errno
import mmap
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from sim.errors import UserError
from sim.learning.engine import Engine, Optimizer
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.graph.samples import Subset
from sim.learning.engine.memory import does_not_fit_error, is_out_of_memory
from sim.learning.engine.snapshot import collect_garbage
from sim.learning.engine.vector_pool import VectorPool
from sim.learning.models.kinds import MODELS
from sim.learning.objectives import next_token
from tests.learning.engines import Jobs, client_data, new_engine

CLIENTS = 7
CUDA_SAYS = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
CPU_SAYS = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")
NO_MEMORY = [CUDA_SAYS, CPU_SAYS]


def train_twice(backend: str = "auto") -> tuple[Engine, np.ndarray]:
    """Steps of unequal number, a merge, a pull, an optimizer with a state, gradients and losses."""
    engine = new_engine(client_data([6] * CLIENTS), backend=backend)
    jobs = Jobs(engine, optimizer=Optimizer("sgd", momentum=0.5))
    first = [jobs.train(client, jobs.initial(client), 1 + client % 3) for client in range(CLIENTS)]
    results = []
    for client, (params, state) in enumerate(first):
        other = first[client - 1][0]
        start, done = 0.5 * params + 0.5 * other, 1 + client % 3
        trained, _ = jobs.train(client, start, 2, done=done, state=state, pulls=[(0.5, other)])
        results += [trained, jobs.gradient(client, trained), jobs.loss(client, trained) * params]
    del first, params, state, other, start, trained
    return engine, engine.rows(results).cpu().numpy()


def failing_above(limit: int, error: RuntimeError, calls: list[int]) -> Callable[..., Any]:
    """`training_gradients` of at most `limit` clients; fails in its second step, when work has been done."""
    working, steps = ModelKernel.training_gradients, [0]

    def gradients(self: ModelKernel, flat: Tensor, *batch: Any) -> tuple[Tensor, Tensor | None]:
        if flat.is_meta:  # what a call takes is counted, for a GPU
            return working(self, flat, *batch)
        calls.append(len(flat))
        steps[0] += 1
        if len(flat) > limit and steps[0] > 1:
            raise type(error)(*error.args)
        return working(self, flat, *batch)

    return gradients


@pytest.mark.parametrize("error", NO_MEMORY, ids=["cuda", "cpu"])
@pytest.mark.parametrize("limit", [1, 3])
def test_what_does_not_fit_is_cut(error: RuntimeError, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed, expected = train_twice()
    calls: list[int] = []
    monkeypatch.setattr(ModelKernel, "training_gradients", failing_above(limit, error, calls))
    engine, got = train_twice()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert max(calls) == CLIENTS
    assert engine.statistics.jobs == undisturbed.statistics.jobs
    assert engine.statistics.updates == undisturbed.statistics.updates
    assert engine.statistics.batches > undisturbed.statistics.batches
    assert engine.rows_held == undisturbed.rows_held, "no row was lost"


def test_the_smaller_limit_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(ModelKernel, "training_gradients", failing_above(3, CPU_SAYS, calls))
    engine = new_engine(client_data([6] * CLIENTS))
    jobs = Jobs(engine, optimizer=Optimizer("adam"))
    for _ in range(3):
        engine.rows([jobs.train(client, jobs.initial(client), 2)[0] for client in range(CLIENTS)])
    # The first step of all went well, the second one did not; three and three and one do.
    assert calls == [7, 7] + 3 * [3, 3, 3, 3, 1, 1]


@pytest.mark.parametrize("error", NO_MEMORY, ids=["cuda", "cpu"])
def test_a_job_that_does_not_fit_alone_is_refused(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelKernel, "training_gradients", failing_above(0, error, []))
    engine = new_engine(client_data([6] * CLIENTS))
    jobs = Jobs(engine, optimizer=Optimizer("adam"))
    trained = [jobs.train(client, jobs.initial(client), 3)[0] for client in range(CLIENTS)]
    says = (
        rf"out of memory on {engine.device}: no room for a training step of logistic-regression.*, 15 "
        r"numbers per vector, on 4 samples(; .* are free)?; use a smaller model, .*batch_size, "
        r".*engine\.micro_batch.*clients\.count.*engine\.pending_limit"
    )
    for vector in trained[:2]:  # whoever reads, whenever
        with pytest.raises(UserError, match=says):
            vector.numpy()


def test_other_errors_are_not_taken_for_missing_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        ModelKernel, "training_gradients", failing_above(0, RuntimeError("expected scalar type"), calls)
    )
    with pytest.raises(RuntimeError, match="expected scalar type"):
        train_twice()
    assert len(calls) == 2, "it is not tried again"
    assert all(map(is_out_of_memory, NO_MEMORY))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 5 B"))


def test_every_operation_says_what_it_is() -> None:
    engine = new_engine()
    jobs = Jobs(engine)
    a, b = jobs.initial(0), jobs.initial(1)
    handles = [engine.dot(a, b), jobs.loss(0, a), a + 2 * b, jobs.train(0, a)[0], jobs.gradient(0, a)]
    slots = [handle.slot() for handle in handles]
    subjects = [slot.node.group.subject for slot in slots if slot.node is not None]
    model = f"{jobs.architecture.key}, 15 numbers per vector, on 4 samples"
    assert subjects == [
        "a call of Dot",
        f"a loss of {model}",
        "a sum of vectors of 15 numbers",
        f"a training step of {model}",
        f"a gradient of {model}",
    ]


# --- pools ---


def no_more_than(rows: int) -> Callable[..., Tensor]:
    allocate = torch.empty

    def empty(shape: tuple[int, ...], **options: Any) -> Tensor:
        if shape[0] > rows:
            raise type(CUDA_SAYS)(*CUDA_SAYS.args)
        return allocate(shape, **options)

    return empty


def test_a_pool_grows_by_a_quarter_and_gives_the_same_rows_as_a_large_one() -> None:
    small, large = [VectorPool(1, torch.device("cpu"), capacity=capacity) for capacity in (16, 1000)]
    taken = []
    for pool in (small, large):
        rows = pool.take(17)
        for row in (3, 11, 5):
            pool.give_back(row)
        taken.append([*rows, *pool.take(9)])
        assert pool.in_use == 23
    assert taken[0] == taken[1]
    assert [len(pool.data) for pool in (small, large)] == [25, 1000]


class Pages(mmap.mmap):
    """Main memory of which there are 576 bytes at most at a time: nine rows of a cache line each."""

    limit_bytes = 576
    made: ClassVar[list[int]] = []

    def __new__(cls, fileno: int, length: int, **options: Any) -> Self:
        if length > cls.limit_bytes:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        cls.made.append(length)
        return super().__new__(cls, fileno, length, **options)

    def resize(self, newsize: int) -> None:
        if newsize > self.limit_bytes:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        super().resize(newsize)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> type[Pages]:
    monkeypatch.setattr(mmap, "mmap", Pages)
    monkeypatch.setattr(Pages, "made", [])
    return Pages


def test_a_pool_grows_where_it_lies(pages: type[Pages]) -> None:
    pool, values = VectorPool(3, torch.device("cpu"), capacity=4), torch.arange(24.0).view(8, 3)
    rows = pool.store(values[:4])
    rows += pool.store(values[4:])
    assert pages.made == [256], "there never was a second matrix, to which the first one was copied"
    assert torch.equal(pool.gather(rows), values)


def test_what_somebody_looks_at_is_not_moved(pages: type[Pages]) -> None:
    pool, values = VectorPool(3, torch.device("cpu"), capacity=4), torch.arange(24.0).view(8, 3)
    rows = pool.store(values[:4])
    looked_at = pool.data
    before = looked_at.clone()
    rows += pool.store(values[4:])
    pool.data.add_(1)
    assert torch.equal(looked_at, before)
    assert torch.equal(pool.gather(rows), values + 1)


@pytest.mark.parametrize("error", [SystemError, AttributeError])
def test_a_pool_is_copied_where_a_system_lengthens_no_pages(
    error: type[Exception], pages: type[Pages], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resize(self: Pages, newsize: int) -> None:
        raise error("mmap: resizing not available")

    monkeypatch.setattr(pages, "resize", resize)
    pool, values = VectorPool(3, torch.device("cpu"), capacity=4), torch.arange(24.0).view(8, 3)
    rows = pool.store(values[:4])
    rows += pool.store(values[4:])
    assert pages.made == [256, 512]
    assert torch.equal(pool.gather(rows), values)


def test_a_pool_without_room_for_a_quarter_grows_by_what_is_needed(pages: type[Pages]) -> None:
    pool, values = VectorPool(3, torch.device("cpu"), capacity=8), torch.arange(30.0).view(10, 3)
    rows = pool.store(values[:8])
    rows += pool.store(values[8:9])  # ten rows would not fit
    assert pool.data.shape[0] == 9
    assert pages.made == [512], "nor was there a second matrix"
    with pytest.raises(UserError, match="no room for a store of 10 vectors of 3 numbers"):
        pool.store(values[9:])
    assert torch.equal(pool.gather(rows), values[:9]), "what there was is still there"


def none_of_them(values: Tensor) -> Tensor:
    return values[:0]


def test_vectors_without_numbers() -> None:
    """As a function may return them, and as a message may have them."""
    pool = VectorPool(0, torch.device("cpu"))
    rows = pool.store(torch.empty((20, 0)))
    assert pool.gather(rows).shape == (20, 0)
    engine = new_engine()
    empty = engine.apply(none_of_them, (engine.vector(torch.ones(3)),), {})
    assert empty.numpy().shape == engine.vector(torch.empty(0)).numpy().shape == (0,)


def test_a_pool_in_other_memory_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = VectorPool(3, torch.device("meta"), capacity=8)
    pool.take(8)
    monkeypatch.setattr(torch, "empty", no_more_than(9))
    pool.take(1)
    assert pool.data.shape[0] == 9
    with pytest.raises(UserError, match="out of memory on meta: no room for a store of 10 vectors"):
        pool.take(1)


def test_a_new_pool_that_is_too_large(pages: type[Pages], monkeypatch: pytest.MonkeyPatch) -> None:
    assert VectorPool(3, torch.device("cpu"), capacity=10).data.shape[0] == 1
    monkeypatch.setattr(pages, "limit_bytes", 0)
    with pytest.raises(UserError, match="a store of 1 vectors of 3 numbers"):
        VectorPool(3, torch.device("cpu"))


# --- devices ---


def test_on_cuda_the_device_and_what_it_holds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (500_000_000, 80_000_000_000))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 79_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU")
    assert str(does_not_fit_error("a sum", torch.device("cuda"))).startswith(
        "out of memory on cuda: no room for a sum; GPU has 80.0 GB; the tensors of this run take 79.0 "
        "GB and 0.5 GB are free; use a smaller model"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_that_is_full() -> None:
    engine = new_engine(client_data(device="cuda"), device="cuda")
    with pytest.raises(UserError, match=r"out of memory on cuda: .* GB are free"):
        VectorPool(1_000, engine.device).take(10**9)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_rows_of_cyclic_garbage_are_taken_again_in_one_order(order: tuple[int, ...]) -> None:
    """In which order the members of cycles end is a matter of what the process has done before."""
    engine = new_engine(client_data([4]))
    vectors = [engine.vector(torch.full((3,), float(number))) for number in range(3)]
    first = vectors[0].slot().row
    engine.vector(torch.zeros(3))  # free at once, before the collection
    for number in order:
        cycle: list[object] = [vectors[number]]
        cycle.append(cycle)
    del cycle
    vectors.clear()
    collect_garbage(engine)
    assert engine.pool(3).take(3) == [first, first + 1, first + 2]


# --- data ---


@pytest.mark.parametrize("maps", [None, torch.tensor([[0, 1, 2], [2, 0, 1]])])
def test_samples_that_all_own_are_kept_once(maps: Tensor | None) -> None:
    """So they are, whether their rows are one array or equal ones, and nobody sees a difference."""
    x, y, rows = torch.arange(5.0)[:, None], torch.tensor([0, 1, 2, 1, 0]), np.array([1, 2, 4])
    shared = Subset(x, y, [rows, rows.copy()], maps)
    assert len(shared.rows) == 3
    apart = Subset(x, y, [rows, rows, rows[:1]], None if maps is None else maps[[0, 1, 1]])
    assert len(apart.rows) == 7
    assert np.array_equal(shared.class_counts(3), apart.class_counts(3)[:2])
    clients, positions = np.array([1, 0]), np.array([[2, 0], [0, 1]])
    for ours, theirs in zip(shared.gather(clients, positions), apart.gather(clients, positions), strict=True):
        assert torch.equal(ours, theirs)


def test_what_a_forward_pass_keeps_is_counted() -> None:
    model = MODELS["mlp"].model_validate({"name": "mlp", "hidden": [100]})
    assert model.architecture((1, 8, 8), 10).training_bytes_per_sample == 4 * 100, "no samples, no parameters"


def test_a_cpu_computes_as_many_clients_at_once_as_their_forward_passes_leave_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise memory would grow with the number of clients: samples of texts are small, and what is made
    of them is not."""
    section = MODELS["transformer"].model_validate({"name": "transformer", "width": 8, "depth": 1})
    architecture = section.architecture((16,), 11)
    tokens = torch.zeros((2, 16), dtype=torch.int64)
    sampler = BatchSampler(Subset(tokens, tokens, [np.arange(2)], None), 8, "replacement")
    whole, parts = [ModelKernel(architecture, next_token, "vmap", micro_batch=size) for size in (None, 2)]
    of_a_sample = architecture.training_bytes_per_sample
    for kept, at_once in ((24, 3), (23, 2), (7, 1)):  # in samples
        monkeypatch.setattr("sim.learning.engine.graph.sampler._KEPT_BYTES", kept * of_a_sample)
        assert sampler.rows_at_once(whole) == at_once
    monkeypatch.setattr("sim.learning.engine.graph.sampler._KEPT_BYTES", 24 * of_a_sample)
    assert sampler.rows_at_once(parts) == 12, "of micro-batches"
