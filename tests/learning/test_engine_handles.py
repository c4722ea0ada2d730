"""Handles: exact, immutable, independent of when numbers are made; and work that is never done."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sim.learning.engine import Engine, Scalar, Vector
from sim.learning.engine.replay_log import ReadLog
from tests.draws import examples
from tests.learning.engines import Jobs, new_engine, numbers

WIDTH = 4
pytestmark = pytest.mark.usefixtures("no_garbage_collector")


# --- arithmetic against numpy ---


@dataclass
class Value:
    """A handle, the same in float64, and the sum of the absolute values that went in."""

    handle: Any
    exact: Any
    size: Any

    def check(self, got: Any) -> None:
        assert np.all(np.abs(np.asarray(got, np.float64) - self.exact) <= 3e-6 * self.size + 1e-30)


NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 0.0, 1.0, 2, True]),
    st.floats(-2, 2, width=32).filter(lambda number: number == 0 or abs(number) > 1e-3),
    st.floats(-2, 2, width=32)
    .filter(lambda n: abs(n) > 1e-3)
    .flatmap(lambda n: st.sampled_from([np.float64(n), np.float32(n)])),
    st.integers(-3, 3).map(np.int64),
)
OPERATIONS = [
    "add", "subtract", "negate", "scale", "scale from the left", "divide", "weigh", "weigh from the left",
    "sum", "dot", "scalar", "scalar add", "scalar subtract", "scalar scale", "scalar times scalar", "clip",
    "plus number", "number minus", "flush", "read", "read scalar", "drop", "known",
]  # fmt: skip


class Program:
    """Random arithmetic on a growing set of vectors and scalars, in handles and in float64 side by side."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.vectors = [self.known(numbers(seed)) for seed in range(3)]
        self.scalars = [self.constant(0.5)]

    def known(self, values: torch.Tensor) -> Value:
        exact = values.double().numpy()
        return Value(self.engine.vector(values), exact, np.abs(exact))

    def constant(self, value: float) -> Value:
        return Value(self.engine.scalar(value), value, abs(value))

    def run(self, what: str, i: int, j: int, number: Any) -> None:
        a, b = self.vectors[i % len(self.vectors)], self.vectors[j % len(self.vectors)]
        s, t = self.scalars[i % len(self.scalars)], self.scalars[j % len(self.scalars)]
        c, size = float(number), abs(float(number))
        match what:
            case "add":
                self.vector(a.handle + b.handle, a.exact + b.exact, a.size + b.size)
            case "subtract":
                self.vector(a.handle - b.handle, a.exact - b.exact, a.size + b.size)
            case "negate":
                self.vector(-a.handle, -a.exact, a.size)
            case "scale":
                self.vector(a.handle * number, a.exact * c, a.size * size)
            case "scale from the left":
                self.vector(number * a.handle, a.exact * c, a.size * size)
            case "divide" if c:
                self.vector(a.handle / number, a.exact / c, a.size / size)
            case "weigh":
                self.vector(a.handle * s.handle, a.exact * s.exact, a.size * s.size)
            case "weigh from the left":
                self.vector(s.handle * a.handle, a.exact * s.exact, a.size * s.size)
            case "sum":
                some = self.vectors[-3:]
                exact, sizes = sum(v.exact for v in some), sum(v.size for v in some)
                self.vector(sum(v.handle for v in some), exact, sizes)
            case "dot":
                self.scalar(self.engine.dot(a.handle, b.handle), a.exact @ b.exact, a.size @ b.size)
            case "scalar":
                self.scalar(self.engine.scalar(c), c, size)
            case "scalar add":
                self.scalar(s.handle + t.handle, s.exact + t.exact, s.size + t.size)
            case "scalar subtract":
                self.scalar(s.handle - t.handle, s.exact - t.exact, s.size + t.size)
            case "scalar scale":
                self.scalar(number * s.handle, s.exact * c, s.size * size)
            case "scalar times scalar":
                self.scalar(s.handle * t.handle, s.exact * t.exact, s.size * t.size)
            case "plus number":
                self.scalar(number + s.handle, s.exact + c, s.size + size)
            case "number minus":
                self.scalar(number - s.handle, c - s.exact, s.size + size)
            case "clip":
                self.scalar(s.handle.clip(-size, 2 * size), np.clip(s.exact, -size, 2 * size), s.size + size)
            case "known":
                self.vectors.append(self.known(numbers(i)))
            case "flush":
                self.engine.flush()
            case "read":
                a.check(a.handle.numpy())
            case "read scalar":
                s.check(float(s.handle))
            case "drop" if len(self.vectors) > 1:
                self.vectors.pop(i % len(self.vectors))

    def vector(self, handle: Vector, exact: np.ndarray, size: np.ndarray) -> None:
        assert isinstance(handle, Vector)
        assert not isinstance(handle, Scalar)
        if size.max() < 1e6:
            self.vectors.append(Value(handle, exact, size))

    def scalar(self, handle: Scalar, exact: float, size: float) -> None:
        assert isinstance(handle, Scalar)
        if size < 1e6:
            self.scalars.append(Value(handle, exact, size))

    def results(self) -> list[np.ndarray]:
        return [value.handle.numpy() for value in (*self.vectors, *self.scalars)]


STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 99), st.integers(0, 99), NUMBERS), max_size=60
)


@pytest.mark.long
@given(steps=STEPS)
@examples(250)
def test_arithmetic_equals_numpy_whenever_numbers_are_made(steps: list[tuple[str, int, int, Any]]) -> None:
    deferred, immediate = Program(new_engine()), Program(new_engine(deferred=False))
    for step in steps:
        deferred.run(*step)
        immediate.run(*step)
    for program in (deferred, immediate):
        for value, got in zip((*program.vectors, *program.scalars), program.results(), strict=True):
            value.check(got)


@given(steps=STEPS)
@examples(100)
def test_dropping_everything_frees_every_row(steps: list[tuple[str, int, int, Any]]) -> None:
    engine = new_engine()
    before = engine.rows_held
    program = Program(engine)
    for step in steps:
        program.run(*step)
    program.results()
    del program
    assert engine.rows_held == before


def test_what_was_trained_is_exact_after_adding_the_update() -> None:
    engine = new_engine()
    jobs = Jobs(engine)
    p = jobs.initial(0)
    t, _ = jobs.train(0, p)
    update = t - p
    assert (p + update).numpy().tobytes() == t.numpy().tobytes()
    merged = p + jobs.initial(1) * 0.5
    assert (merged + update - merged + p).numpy().tobytes() == t.numpy().tobytes()


@pytest.mark.parametrize("flush", [False, True])
def test_cancellation(flush: bool) -> None:
    engine = new_engine()
    x, y = engine.vector(numbers(0)), engine.vector(numbers(1))
    s = engine.dot(x, y)
    if flush:
        engine.flush()
    for zero in (x - x, 0 * x, x * engine.scalar(0), s * x - s * x, (x + y) - (y + x), 2 * x - x - x):
        assert zero.slot().node is not None, "a zero is symbolic until it is read"
        assert zero.numpy().tolist() == [0.0] * WIDTH
    assert float(s - s) == 0.0
    assert ((x + y) - y).slot() is x.slot()


@pytest.mark.filterwarnings("error")
def test_factors_beyond_float32_are_infinite() -> None:
    engine = new_engine()
    ones, two = engine.vector(torch.ones(WIDTH)), engine.scalar(2.0)
    assert (1e300 * ones).numpy().tolist() == [np.inf] * WIDTH
    assert (ones * (-1e300 * two)).numpy().tolist() == [-np.inf] * WIDTH


def test_factors_that_cannot_be_added_symbolically() -> None:
    engine = new_engine()
    x, y = engine.vector(numbers(0)), engine.vector(numbers(1))
    s, t = engine.dot(x, y), engine.dot(y, y)
    u, v = float(s), float(t)
    expected = x.numpy() * (u + v - 2)
    np.testing.assert_allclose((s * x + t * x - 2 * x).numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose((x - s * x).numpy(), x.numpy() * (1 - u), rtol=1e-5)
    np.testing.assert_allclose((s * x - x + y).numpy(), x.numpy() * (u - 1) + y.numpy(), rtol=1e-5)


@pytest.mark.parametrize("count", [31, 32, 33, 34, 100])
def test_many_terms(count: int) -> None:
    engine = new_engine()
    vectors = [engine.vector(numbers(seed)) for seed in range(count)]
    exact = sum(numbers(seed).double().numpy() * (seed + 1) for seed in range(count))
    total = sum((seed + 1) * vector for seed, vector in enumerate(vectors))
    assert f"{total!r}".startswith(
        f"<Vector of {WIDTH} numbers, {count if count <= 32 else (count - 33) % 32 + 1} terms"
    )
    np.testing.assert_allclose(total.numpy(), exact, atol=1e-5 * count)


def test_a_long_chain_of_differences_that_nobody_reads() -> None:
    engine = new_engine()
    x, y, z = [engine.vector(numbers(seed)) for seed in range(3)]
    first, second = x, x
    for _ in range(5000):
        first, second = first - y, z - second
    np.testing.assert_allclose(first.numpy(), x.numpy() - 5000 * y.numpy(), rtol=1e-3, atol=1e-3)
    assert second.numpy().tobytes() == x.numpy().tobytes()


# --- what a handle is ---


def test_handles_are_immutable() -> None:
    engine = new_engine()
    source = numbers(0)
    x = engine.vector(source)
    y, s = x + x, engine.dot(x, x)
    source.zero_()
    x.tensor().zero_()
    x.numpy()[:] = 0
    np.asarray(y)[:] = 0
    s.tensor().zero_()
    alias = x
    alias = alias + y
    alias *= 2
    assert x.numpy().tolist() == numbers(0).tolist()
    assert y.numpy().tolist() == (2 * numbers(0)).tolist()
    assert float(s) == pytest.approx(float(numbers(0) @ numbers(0)))


def test_numbers_of_a_handle() -> None:
    engine = new_engine()
    x = engine.vector(numbers(0))
    s = engine.dot(x, x)
    assert (x.shape, x.dtype, s.shape, s.dtype) == ((WIDTH,), "float32", (), "float32")
    for handle in (x, x + x, s, 2 * s + 1, engine.scalar(3), x - x):
        assert (
            handle.numpy().shape == tuple(handle.tensor().shape) == np.asarray(handle).shape == handle.shape
        )
        assert handle.numpy().dtype == np.asarray(handle).dtype == np.float32
        assert handle.tensor().dtype == torch.float32
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.mean([x, x], axis=0).tolist() == x.numpy().tolist()
    assert float(engine.scalar(0.25)) == 0.25
    with pytest.raises(TypeError):
        float(x)  # type: ignore[arg-type]


def test_comparisons_of_scalars() -> None:
    engine = new_engine()
    x = engine.vector(torch.ones(WIDTH))
    four = engine.dot(x, x)
    for other in (
        4,
        4.0,
        np.float64(4),
        np.float32(4),
        np.int64(4),
        engine.scalar(4),
        2 * engine.dot(x, x) - 4,
    ):
        assert four == other
        assert other == four
        assert four <= other <= four
        assert four >= other >= four
        assert (four != other) is False
        assert not four < other
        assert not other > four
    assert four != 3
    assert four > np.float64(3)
    assert np.float64(3) < four
    assert bool(four)
    assert not four - 4
    assert four != "4"
    with pytest.raises(TypeError):
        hash(four)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x, s: x + 1,
        lambda x, s: 1 + x,
        lambda x, s: x + s,
        lambda x, s: s + x,
        lambda x, s: x * "2",
        lambda x, s: x * numbers(1),
        lambda x, s: numbers(1) * x,
        lambda x, s: x + numbers(1).numpy(),
        lambda x, s: numbers(1).numpy() * x,
        lambda x, s: x - None,
        lambda x, s: s < "1",
    ],
)
def test_meaningless_arithmetic_is_refused(mistake: Callable[[Vector, Scalar], object]) -> None:
    engine = new_engine()
    x = engine.vector(numbers(0))
    with pytest.raises((TypeError, ValueError)):
        mistake(x, engine.dot(x, x))


def test_vectors_of_different_widths_are_refused() -> None:
    engine = new_engine()
    x, y = engine.vector(numbers(0)), engine.vector(numbers(0, 5))
    for mistake in (operator.add, operator.sub, engine.dot, lambda x, y: engine.rows([x, y])):
        with pytest.raises(ValueError, match=r"4.*5|5.*4"):
            mistake(x, y)


def test_vectors_of_two_engines_are_refused() -> None:
    one, other = new_engine(), new_engine()
    x, y = one.vector(numbers(0)), other.vector(numbers(0))
    s = other.dot(y, y)
    for mistake in (
        lambda: x + y,
        lambda: x - y,
        lambda: x * s,
        lambda: s * x,
        lambda: one.scalar(1) + s,
        lambda: one.dot(x, y),
        lambda: other.dot(x, y),
        lambda: one.rows([x, y]),
    ):
        with pytest.raises(ValueError, match="engine"):
            mistake()


class CountedReads(ReadLog):
    count = 0

    def row(self, find: Callable[[], Tensor], device: torch.device) -> Tensor:
        self.count += 1
        return find()


def test_a_short_vector_is_read_once() -> None:
    engine = new_engine()
    log = engine.read_log = CountedReads()
    short, long = engine.vector(torch.arange(4.0)), engine.vector(torch.zeros(5000))
    other = short.numpy()
    other[:] = -1.0
    assert short.numpy().tolist() == [0.0, 1.0, 2.0, 3.0], "each reader has its own copy"
    assert float(2 * short.norm()) == float(2 * short.norm())  # a new number each time
    assert log.count == 3
    short.tensor().fill_(-1.0)
    assert short.tensor().tolist() == [0.0, 1.0, 2.0, 3.0] and log.count == 3
    assert [long.numpy().sum(), long.numpy().sum()] == [0.0, 0.0] and log.count == 5
