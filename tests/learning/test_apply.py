"""Functions of a protocol's own: the same numbers as one client after the other, in few calls, or refused."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from actors.codec import size
from protocols.framework.vectors import mix
from sim.errors import Advice
from sim.learning.engine import Engine, Scalar, Vector
from sim.learning.engine.encoded import TYPES
from tests.learning.engines import new_engine

WIDTH = 6


@pytest.fixture(autouse=True)
def no_garbage_collector() -> Iterator[None]:
    """As in a run: what is not freed by reference counting alone is not freed."""
    gc.disable()
    yield
    gc.enable()


def numbers(seed: int, width: int = WIDTH) -> Tensor:
    return torch.randn(width, generator=torch.Generator().manual_seed(seed))


def vectors(engine: Engine, count: int, width: int = WIDTH) -> list[Vector]:
    return [engine.vector(numbers(seed, width)) for seed in range(count)]


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers as int8, and the size of 1."""
    scale = x.abs().max() / 127
    return (x / scale).round().to(torch.int8), scale


def restored(levels: Tensor, scale: Tensor) -> Tensor:
    return levels * scale


def largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k numbers farthest from 0, and their places."""
    places = x.abs().topk(k).indices
    return x[places], places.to(torch.int32)


def placed(values: Tensor, places: Tensor, width: int) -> Tensor:
    return torch.zeros(width).scatter(0, places.long(), values)


def median(*models: Tensor) -> Tensor:
    return torch.stack(models).median(dim=0).values


def loss_of_encoder(weights: Tensor, x: Tensor) -> Tensor:
    return (torch.tanh(weights.reshape(2, 3) @ x[:3]) ** 2).sum()


def slope(weights: Tensor, x: Tensor) -> Tensor:
    return torch.func.grad(loss_of_encoder)(weights, x)


CALLS: dict[str, tuple[Callable[..., Any], int, dict[str, Any]]] = {
    "several results of several types": (quantised, 1, {}),
    "results of another width": (largest, 1, {"k": 2}),
    "many arguments": (median, 5, {}),
    "a gradient inside": (slope, 2, {}),
    "a function of torch": (torch.maximum, 2, {}),
    "partial": (partial(torch.clamp, min=-0.5, max=0.5), 1, {}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("deferred", [True, False])
def test_all_at_once_is_one_client_after_the_other(name: str, deferred: bool) -> None:
    function, count, static = CALLS[name]
    engine = new_engine(deferred=deferred)
    arguments = [vectors(engine, 20)[n : n + count] for n in range(15)]
    made = [engine.apply(function, each, static) for each in arguments]
    for each, results in zip(arguments, made, strict=True):
        expected = function(*[vector.tensor() for vector in each], **static)
        if isinstance(expected, Tensor):
            results, expected = (results,), (expected,)
        for got, wanted in zip(results, expected, strict=True):
            assert got.shape == tuple(wanted.shape) and str(wanted.dtype) == f"torch.{got.dtype}"
            torch.testing.assert_close(got.tensor(), wanted, rtol=1e-6, atol=1e-7)
    if deferred:
        assert engine.statistics.batches == 1 and engine.statistics.jobs == 15


@pytest.mark.parametrize("width", [1, 2, 3, 4, 650])
def test_levels_and_what_becomes_of_them_are_bit_for_bit_those_of_one_client_after_the_other(
    width: int,
) -> None:
    deferred, alone = new_engine(), new_engine(deferred=False)
    found, expected = [], []
    for engine, results in ((deferred, found), (alone, expected)):
        for x in vectors(engine, 23, width):
            levels, size = engine.apply(quantised, (x,), {})
            results.append((levels, size, engine.apply(restored, (levels, size), {})))
    for together, after_each_other, seed in zip(found, expected, range(23), strict=True):
        plain = quantised(numbers(seed, width))
        for got, wanted, by_hand in zip(together, after_each_other, (*plain, restored(*plain)), strict=True):
            assert torch.equal(got.tensor(), wanted.tensor()) and torch.equal(got.tensor(), by_hand)
    assert deferred.statistics.batches == 2


def test_a_function_for_other_shapes_computes_nothing_that_is_pending() -> None:
    """Only its own trial; but what fails with made-up numbers is tried with its own."""
    engine = new_engine()
    x = engine.apply(torch.neg, (engine.vector(numbers(1)),), {})
    y = engine.apply(torch.maximum, (x, 0.5), {})
    z = engine.apply(largest, (y,), {"k": 2})
    assert engine.statistics.jobs == 0
    torch.testing.assert_close(z[0].tensor(), largest(torch.maximum(-numbers(1), torch.tensor(0.5)), 2)[0])
    good = engine.apply(torch.neg, (engine.vector(-torch.eye(2).flatten()),), {})
    assert torch.equal(engine.apply(inverse, (good,), {}).tensor(), torch.eye(2).flatten())  # of ones: none


def test_a_call_is_bounded_by_its_results_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()
    monkeypatch.setattr("sim.learning.engine.applied._NUMBERS_AT_ONCE_CPU", 2100)
    made = [engine.apply(wide, (n,), {"width": 1000}) for n in range(4)]
    engine.flush()
    assert engine.statistics.batches == 2  # 1 + 1,000 numbers each
    assert [float(each.numpy()[-1]) for each in made] == [0, 1, 2, 3]


def wide(x: Tensor, width: int) -> Tensor:
    return x.expand(width)


@pytest.mark.parametrize("number", [2**24 + 1, -(2**30), np.int64(2**40)])
def test_whole_numbers_that_float32_does_not_hold_are_refused(number: Any) -> None:
    engine = new_engine()
    [x] = vectors(engine, 1)
    with pytest.raises(ValueError, match=r"argument 1 of maximum\(\) is .*beyond 16,777,216 lose digits"):
        engine.apply(torch.maximum, (x, number), {})
    with pytest.raises(ValueError, match="beyond 16,777,216 lose digits"):
        engine.apply(torch.maximum, (x, np.full(WIDTH, number)), {})
    with pytest.raises(ValueError, match="beyond 16,777,216 lose digits"):
        x.like(int(number))
    assert float(engine.apply(torch.maximum, (x, 2**24), {}).numpy()[0]) == 2**24
    assert x.like([True, False]).numpy().tolist() == [1, 0]


def leaving(x: Tensor) -> Tensor:
    sys.exit(3)


def test_arguments_of_all_kinds() -> None:
    def affine(x: Tensor, scalar: Tensor, number: Tensor, noise: Tensor, flags: Tensor) -> Tensor:
        return torch.where(flags > 0, x * scalar + number, noise)

    engine = new_engine()
    flags = torch.tensor([1, 0, 1, 0, 1, 1])
    results = []
    for client, x in enumerate(vectors(engine, 4)):
        noise = np.random.default_rng(client).standard_normal(WIDTH)
        scalar = engine.dot(x, x)
        results.append(
            (engine.apply(affine, (x, scalar, client, noise, flags), {}), x, scalar, client, noise)
        )
    for got, x, scalar, client, noise in results:
        expected = torch.where(
            flags > 0, x.tensor() * scalar.tensor() + client, torch.from_numpy(noise).float()
        )
        torch.testing.assert_close(got.tensor(), expected)


def test_calls_of_equal_functions_are_computed_together() -> None:
    """However often one is made anew; with what it referred to then, and not where that differs."""
    engine = new_engine()
    made = []
    for client, x in enumerate(vectors(engine, 12)):
        factor = 2.0 if client % 2 else 3.0
        made.append((engine.apply(lambda x, factor=factor: x * factor, (x,), {}), x, factor))
        made.append((engine.apply(lambda x: x / factor, (x,), {}), x, 1 / factor))  # noqa: B023
    engine.flush()
    assert engine.statistics.batches == 4
    for got, x, factor in made:
        torch.testing.assert_close(got.tensor(), x.tensor() * factor)


@pytest.mark.parametrize("how", ["captured", "default", "keyword"])
def test_a_number_that_differs_at_every_call_costs_no_memory_and_is_advised_against(how: str) -> None:
    """Each is a function of its own: the results are right, few are remembered, and it is said once."""
    engine = new_engine()
    x = engine.vector(torch.arange(4.0))

    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * factor

    def times(factor: float) -> Any:
        if how == "captured":
            return engine.apply(lambda x: x * factor, (x,), {})
        if how == "default":
            return engine.apply(lambda x, factor=factor: x * factor, (x,), {})
        return engine.apply(scaled, (x,), {"factor": factor})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = [times(0.5 * number) for number in range(600)]
    for number, result in enumerate(made):
        torch.testing.assert_close(result.tensor(), torch.arange(4.0) * 0.5 * number)
    assert len(engine.functions._prepared) <= 256 and len(engine.functions._known) <= 256
    assert [each.category for each in caught] == [Advice]
    assert "32 different sets of values" in str(caught[0].message) and "test_apply.py:" in str(
        caught[0].message
    )
    before = engine.statistics.batches
    again = [times(0.25) for _ in range(20)]
    engine.flush()
    assert engine.statistics.batches == before + 1
    torch.testing.assert_close(again[7].tensor(), torch.arange(4.0) * 0.25)


def test_1_and_one_point_0_and_true_are_three_values() -> None:
    def kept(x: Tensor, value: object) -> Tensor:
        return x + (isinstance(value, bool) + 2 * isinstance(value, float))

    engine = new_engine()
    x = engine.vector(torch.zeros(1))
    assert [float(engine.apply(kept, (x,), {"value": value}).numpy()[0]) for value in (1, 1.0, True)] == [
        0,
        2,
        1,
    ]


def test_a_zero_below_zero_is_another_value() -> None:
    engine = new_engine()
    [x] = vectors(engine, 1)

    def over(a: Tensor, z: float) -> Tensor:
        return a.abs() / z

    found = [engine.apply(over, (x,), {"z": zero}) for zero in (0.0, -0.0)]
    assert [each.numpy().tolist() for each in found] == [[np.inf] * WIDTH, [-np.inf] * WIDTH]


def test_what_nobody_holds_is_not_computed() -> None:
    engine = new_engine()
    x, y = vectors(engine, 2)
    engine.apply(quantised, (x,), {})[0].numpy()
    levels, scale = engine.apply(quantised, (y,), {})
    before = engine.statistics.jobs
    del levels, scale
    engine.flush()
    assert engine.statistics.jobs == before
    rows = engine.rows_held
    del x
    assert engine.rows_held == rows - 1


def extremes(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype is torch.bool:
        return x > 0
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return torch.stack(
        [torch.full_like(x[0], limits.min, dtype=dtype), x[0].to(dtype), (0 * x[0] + limits.max).to(dtype)]
    )


@pytest.mark.parametrize("name", TYPES)
def test_numbers_of_few_bytes_are_exact(name: str) -> None:
    engine, dtype = new_engine(), TYPES[name]
    x = torch.tensor([77.0, 0.0, 0.5])
    values = engine.apply(extremes, (engine.vector(x),), {"dtype": dtype})
    wanted = extremes(x, dtype)
    assert values.tensor().dtype is dtype and torch.equal(values.tensor(), wanted)
    passed_on = engine.apply(torch.flip, (values,), {"dims": (0,)})
    assert torch.equal(passed_on.tensor(), wanted.flip(0))
    np.testing.assert_array_equal(values.numpy(), wanted.numpy(), strict=True)
    assert size(values) == size(wanted.numpy())  # in a message


def test_only_functions_calculate_with_numbers_of_few_bytes() -> None:
    engine = new_engine()
    x = engine.vector(numbers(1))
    levels, _ = engine.apply(quantised, (x,), {})
    forbidden: list[Callable[[], object]] = [
        lambda: levels + x,
        lambda: x + levels,
        lambda: x - levels,
        lambda: levels - levels,
        lambda: 2 * levels,
        lambda: x * levels,
        lambda: mix([(0.5, x), (0.5, levels)]),
        lambda: mix([(0.5, levels), (0.5, x)]),
        lambda: engine.dot(x, levels),
        lambda: levels[1:2],
    ]
    for calculation in forbidden:
        with pytest.raises(TypeError, match=r"int8|unsupported operand"):
            calculation()


LINE = "test_apply.py:[0-9]+"
BATCHED = "many clients at once: no branch may depend on a number"
OUTSIDE = "which may be another by the time it is computed; hand over numbers"


def branching(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def taking_out(x: Tensor) -> Tensor:
    return x * x[0].item()


def drawing(x: Tensor) -> Tensor:
    return x + torch.randn(x.shape)


def misshapen(x: Tensor) -> Tensor:
    return x + torch.zeros(3)


def raising(x: Tensor) -> Tensor:
    raise KeyError("mine")


class Holder:
    def method(self, x: Tensor) -> Tensor:
        return x


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a branch": (branching, ValueError, f"{LINE}: branching.. failed: RuntimeError.*{BATCHED}"),
    "a number taken out": (taking_out, ValueError, f"{LINE}: taking_out.. failed: RuntimeError.*{BATCHED}"),
    "chance": (
        drawing,
        ValueError,
        f"{LINE}: drawing.. failed: RuntimeError.*random numbers go in as an argument",
    ),
    "shapes that do not fit": (
        misshapen,
        ValueError,
        f"{LINE}: misshapen.. failed: RuntimeError: The size of tensor",
    ),
    "an error inside": (raising, ValueError, f"{LINE}: raising.. failed: KeyError: 'mine'"),
    "leaving": (leaving, ValueError, f"{LINE}: leaving.. failed: SystemExit: 3"),
    "too many arguments": (
        lambda: 1,
        ValueError,
        "failed: TypeError: .* takes 0 positional arguments but 1 was given",
    ),
    "a matrix": (
        lambda x: torch.outer(x, x),
        ValueError,
        r"a tensor of shape \(6, 6\) and float32; it must be a tensor "
        "without dimensions or with one",
    ),
    "whole numbers of 64 bits": (lambda x: x.argsort(), ValueError, r"of shape \(6,\) and int64; it must be"),
    "complex numbers": (lambda x: torch.complex(x, x), ValueError, "and complex64; it must be"),
    "no tensor": (lambda x: 3.0, ValueError, "failed|is a float; it must be"),
    "nothing": (lambda x: (), ValueError, "returns nothing"),
    "a part that is no tensor": (lambda x: (x, None), ValueError, "failed|result 1 of .* is a NoneType"),
    "a method": (Holder().method, TypeError, "not a method such as method; write it outside the class"),
    "a module": (torch.nn.Linear(6, 6), TypeError, "not a Linear such as Linear; write it outside the class"),
    "no function": (3, TypeError, "apply takes a function first, not a int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_cannot_be_computed_for_all_at_once_are_refused(name: str) -> None:
    function, kind, message = REFUSED[name]
    engine = new_engine()
    x = engine.vector(numbers(1))
    with pytest.raises(kind, match=message):
        engine.apply(function, (x,), {})
    assert torch.equal(engine.apply(torch.neg, (x,), {}).tensor(), -numbers(1))  # and nothing is lost


def test_what_may_change_until_it_is_computed_is_refused() -> None:
    engine = new_engine()
    x, array, holder = engine.vector(numbers(1)), np.ones(WIDTH), Holder()
    refused: list[Callable[[], object]] = [
        lambda: engine.apply(lambda x: x + array, (x,), {}),
        lambda: engine.apply(lambda x, a=array: x + a, (x,), {}),
        lambda: engine.apply(lambda x: holder.method(x), (x,), {}),
        lambda: engine.apply(torch.clamp, (x,), {"min": array}),
        lambda: engine.apply(partial(torch.add, array), (x,), {}),
        lambda: engine.apply(lambda x: (x, [array])[0] if array is None else x, (x,), {}),
    ]
    for call in refused:
        with pytest.raises(TypeError, match=OUTSIDE):
            call()


def test_arguments_that_are_none_are_refused() -> None:
    engine, other = new_engine(), new_engine()
    x = engine.vector(numbers(1))
    with pytest.raises(
        TypeError, match=r"argument 1 of torch|argument 1 of maximum\(\) is a str; it must be a vector"
    ):
        engine.apply(torch.maximum, (x, "x"), {})
    with pytest.raises(ValueError, match="another engine"):
        engine.apply(torch.maximum, (x, other.vector(numbers(1))), {})
    with pytest.raises(
        ValueError, match=r"in one dimension, not of shape \(2, 3\) and type float64; `flatten\(\)`"
    ):
        engine.apply(torch.maximum, (x, np.zeros((2, 3))), {})
    with pytest.raises(TypeError, match="is applied to nothing"):
        engine.apply(torch.maximum, (), {})


def test_a_failure_that_only_another_client_has_names_the_function() -> None:
    """What the first call cannot show: it ends the run, but says whose it is."""
    engine = new_engine()
    good, bad = engine.vector(torch.eye(2).flatten()), engine.vector(torch.zeros(4))
    engine.apply(inverse, (good,), {})
    pending = engine.apply(inverse, (bad,), {})
    with pytest.raises(ValueError, match=rf"{LINE}: inverse\(\) failed: .*singular"):
        pending.numpy()


def inverse(flat: Tensor) -> Tensor:
    return torch.linalg.inv(flat.reshape(2, 2)).flatten()


FLOATS = st.lists(st.floats(-4, 4, width=32).filter(lambda x: abs(x) > 1e-2), min_size=3, max_size=3)


@given(first=FLOATS, second=FLOATS, power=st.sampled_from([2, 3, 0.5, -1]))
@settings(max_examples=40)
def test_arithmetic_number_by_number(first: list[float], second: list[float], power: float) -> None:
    engine = new_engine()
    x, y = engine.vector(torch.tensor(first)), engine.vector(torch.tensor(second))
    a, b = np.array(first), np.array(second)
    positive = abs(x)
    for got, wanted in [
        (x * y, a * b),
        (x / y, a / b),
        (positive, np.abs(a)),
        (positive**power, np.abs(a) ** power),
        (x.norm(), np.linalg.norm(a)),
        (engine.dot(x, y) / y.norm(), a @ b / np.linalg.norm(b)),
        (x.norm() ** power, np.linalg.norm(a) ** power),
        (2 / x.norm(), 2 / np.linalg.norm(a)),
        (x / x.norm(), a / np.linalg.norm(a)),
        ((x + y) * (x - y), (a + b) * (a - b)),
        (x[1:], a[1:]),
        (x[-2:-1] * y[:1], a[-2:-1] * b[:1]),
    ]:
        np.testing.assert_allclose(got.numpy(), wanted, rtol=3e-5, atol=3e-5)
        assert isinstance(got, Scalar) is (np.ndim(wanted) == 0)


def test_slices_that_are_none_are_refused() -> None:
    x = new_engine().vector(numbers(1))
    for columns in (3, slice(0, 4, 2), slice(None, None, -1)):
        with pytest.raises(TypeError, match="slices such as"):
            x[columns]  # type: ignore[index]
    with pytest.raises(ValueError, match=r"slice \[4:4\] of a vector of 6 numbers is empty"):
        x[4:4]


RATE, TABLE, CONSTANT = 2.0, [1.0], torch.ones(WIDTH)


def doubled(x: Tensor) -> Tensor:
    return x * RATE


def by_helper(x: Tensor) -> Tensor:
    return doubled(x) + torch.nn.functional.relu(x)


def halved(x: Tensor, times: int) -> Tensor:
    return x if times == 0 else halved(x / 2, times - 1)


@pytest.mark.parametrize("function", [doubled, by_helper])
def test_globals_are_those_of_the_call(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are by the time it is computed."""
    engine = new_engine()
    made, wanted = [], []
    for client, x in enumerate(vectors(engine, 6)):
        monkeypatch.setattr(sys.modules[__name__], "RATE", 2.0 if client % 2 else 3.0)
        made.append(engine.apply(function, (x,), {}))
        wanted.append(function(numbers(client)))
    monkeypatch.setattr(sys.modules[__name__], "RATE", 100.0)
    for got, expected in zip(made, wanted, strict=True):
        torch.testing.assert_close(got.tensor(), expected)
    assert engine.statistics.batches == 2


def test_a_function_may_call_itself() -> None:
    engine = new_engine()
    [x] = vectors(engine, 1)
    torch.testing.assert_close(engine.apply(halved, (x,), {"times": 3}).tensor(), numbers(0) / 8)


def test_globals_that_may_change_are_refused() -> None:
    engine = new_engine()
    [x] = vectors(engine, 1)

    def counting(x: Tensor) -> Tensor:
        global RATE
        RATE += 1
        return x

    for function, message in [
        (lambda x: x * TABLE[0], f"uses TABLE, a list, {OUTSIDE}"),
        (lambda x: next(x + CONSTANT for _ in "a"), f"uses CONSTANT, a Tensor, {OUTSIDE}"),
        (counting, "changes RATE, which is not its own; what it finds is returned"),
    ]:
        with pytest.raises(TypeError, match=message):
            engine.apply(function, (x,), {})
