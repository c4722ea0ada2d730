"""When the engine computes, and what it frees, recycles and never computes."""

import weakref

import numpy as np
import pytest
import torch

from actors import codec
from sim.learning.engine import Optimizer
from tests.learning.engines import Jobs, client_data, new_engine, numbers

WIDTH = 4
pytestmark = pytest.mark.usefixtures("no_garbage_collector")


# --- when ---


def test_arithmetic_computes_nothing() -> None:
    engine = new_engine()
    x, y = engine.vector(numbers(0)), engine.vector(numbers(1))
    s = engine.dot(x, y).clip(0, 1)
    z = 0.5 * (s * x + y)
    assert s.pending
    assert z.pending
    assert (s * x).pending
    assert not (x + y).pending
    assert engine.statistics.jobs == 0
    z.numpy()
    assert not (s * x).pending
    assert engine.statistics.jobs == 3  # inner product, clip, and one mix


def test_size_of_a_handle_is_known_without_its_numbers() -> None:
    engine = new_engine()
    x = engine.vector(numbers(0))
    s = engine.dot(x, x)
    for handle in (x + x, s, s * x):
        alterable: list[object] = []
        size = codec.size(handle, alterable)
        assert alterable == []  # messages carry it as it is
        assert engine.statistics.jobs == 0
        assert size == codec.size(np.zeros(handle.shape, np.float32))
    encoded = codec.Codec().encode(s * x)
    assert engine.statistics.jobs > 0
    assert len(encoded) == codec.size(s * x)
    np.testing.assert_array_equal(codec.Codec().decode(encoded), (s * x).numpy())
    assert codec.Codec().decode(codec.Codec().encode(s)) == float(s)


def test_a_number_that_is_used_twice_is_computed_once() -> None:
    engine = new_engine()
    x = engine.vector(numbers(0))
    mixed = 2 * x
    for _ in range(3):
        mixed.numpy()
    engine.dot(mixed, mixed)
    engine.dot(mixed, x).tensor()
    assert engine.statistics.jobs == 2


def test_clips_of_different_limits_are_one_call() -> None:
    engine = new_engine()
    values = [engine.scalar(value) for value in (0.5, -3, 7, np.nan)]
    [value.tensor() for value in values]
    before = engine.statistics.batches
    clipped = [value.clip(-1, high) for value, high in zip(values, (1, 2, 3, 4), strict=True)]
    assert [float(value) for value in clipped] == pytest.approx([0.5, -1, 3, np.nan], nan_ok=True)
    assert engine.statistics.batches == before + 1


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_one_clients_divergence_does_not_reach_another(poison: float) -> None:
    """Mixes of different lengths are computed together; nothing may leak from the one into the other."""
    engine = new_engine()
    diverged = engine.vector(torch.full((WIDTH,), poison))
    x, y = engine.vector(numbers(0)), engine.vector(numbers(1))
    bad, zero, one, long = diverged * 0.5, x - x, 2 * x, x + y + 2 * y + x * engine.scalar(0.5)
    only_inf = diverged + 0 * x
    results = engine.rows([bad, zero, one, long, only_inf]).cpu()
    assert not results[0].isfinite().any()
    assert results[1].tolist() == [0.0] * WIDTH
    assert results[2].tolist() == (2 * numbers(0)).tolist()
    assert results[3].isfinite().all()
    np.testing.assert_array_equal(results[4], np.full(WIDTH, np.float32(poison)))


# --- memory, and work that is never done ---


def test_dropped_training_is_never_done() -> None:
    engine = new_engine()
    jobs = Jobs(engine)
    start = jobs.initial(0)
    before = engine.rows_held
    kept, _ = jobs.train(0, start, steps=2)
    dropped, _ = jobs.train(1, start, steps=2)
    chained, _ = jobs.train(2, dropped + kept)
    loss = jobs.loss(1, chained)
    del dropped, chained, loss
    kept.numpy()
    assert engine.statistics.jobs == 1
    assert engine.rows_held == before + 1
    del kept
    assert engine.rows_held == before


def test_an_input_lives_as_long_as_the_work_that_needs_it() -> None:
    engine = new_engine()
    x = engine.vector(numbers(0))
    held = engine.rows_held
    s = engine.dot(3 * x, x)
    del x
    assert engine.rows_held == held
    assert float(s) == pytest.approx(3 * float(numbers(0) @ numbers(0)), rel=1e-5)
    assert engine.rows_held == held  # the product's row instead of the vector's


def test_an_optimizer_state_that_nobody_holds_gets_no_row() -> None:
    engine = new_engine()
    jobs = Jobs(engine, optimizer=Optimizer("adam"))
    start = jobs.initial(0)
    before = engine.rows_held + 1  # the zeros that fresh states begin with
    trained, state = jobs.train(0, start)
    other = jobs.train(1, start)[0]
    trained.numpy()
    assert engine.rows_held == before + 3
    del state, trained, other
    assert engine.rows_held == before


def test_an_engine_is_in_no_reference_cycle() -> None:
    engine = new_engine()
    jobs = Jobs(engine, optimizer=Optimizer("adam"))
    trained, _ = jobs.train(0, jobs.initial(0))
    engine.dot(trained, trained).tensor()
    engine.dot(trained, 2 * trained)
    alive = weakref.ref(engine)
    del engine, jobs, trained, _
    assert alive() is None


def test_rows_are_recycled() -> None:
    engine = new_engine(client_data([6] * 3))
    jobs = Jobs(engine)
    params = [jobs.initial(seed) for seed in range(3)]
    held = size = 0
    for round_number in range(30):
        updates = [
            jobs.train(client, params[client], done=round_number)[0] - params[client] for client in range(3)
        ]
        mean = sum(params) / 3
        params = [0.5 * mean + 0.5 * own + update for own, update in zip(params, updates, strict=True)]
        engine.rows(params)
        del updates, mean
        held, size = held or engine.rows_held, size or engine.bytes_held
        assert (engine.rows_held, engine.bytes_held) == (held, size)


@pytest.mark.parametrize("read", [True, False])
def test_a_long_pending_chain(read: bool) -> None:
    """Neither computing nor dropping what thousands of pending mixes depend on recurses."""
    engine = new_engine(pending_limit_bytes=float("inf"))
    x, y = engine.vector(torch.ones(WIDTH)), engine.vector(torch.zeros(WIDTH))
    before = engine.rows_held
    chained = y
    for _ in range(5_000):
        chained = 0.5 * chained + 0.5 * x
        chained.slot()
    weight = engine.dot(chained, x)
    for _ in range(5_000):
        weight = weight.clip(-1, 2)
    assert engine.statistics.jobs == 0
    if read:
        assert float(weight) == 2
        assert chained.numpy().tolist() == [1.0] * WIDTH
        assert engine.statistics.jobs == 10_001
    del chained, weight
    assert engine.rows_held == before
    engine.flush()
    assert engine.statistics.jobs == (10_001 if read else 0)


def test_pending_limit_computes_what_is_held() -> None:
    engine = new_engine(pending_limit_bytes=20_000)
    x = engine.vector(numbers(0))
    kept = []
    for _ in range(95):
        kept.append(engine.dot(x, x))
        engine.dot(x, x)  # dropped at once
    done = 95 - sum(product.pending for product in kept)
    assert 80 <= done < 95
    assert engine.statistics.jobs <= done + 10  # in each flush at most one that is dropped a moment later
    before = engine.statistics.batches
    assert [float(product) for product in kept] == [float(kept[0])] * 95
    assert engine.statistics.batches == before + 1


def test_after_a_failed_batch_no_number_is_made_up() -> None:
    """What was pending when a batch failed is lost; reading it must not return some other row."""

    def broken(*_: object) -> torch.Tensor:
        raise ArithmeticError("no memory, say")

    engine = new_engine()
    x = engine.vector(numbers(0))
    computed, bystander = engine.dot(x, x), 2 * x
    computed.tensor()
    jobs = Jobs(engine, objective=broken)
    loss = jobs.loss(0, jobs.initial(0))
    later = bystander + engine.vector(numbers(1))
    with pytest.raises(ArithmeticError):
        float(loss)
    for handle in (loss, later, bystander * loss):
        with pytest.raises(RuntimeError, match="earlier batch failed"):
            handle.tensor()
    assert float(computed) == pytest.approx(float(numbers(0) @ numbers(0)))
    assert x.numpy().tolist() == numbers(0).tolist()
