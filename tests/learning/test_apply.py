"""Functions of a protocol's own: the same numbers as one client after the other, in few calls, or refused."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from actors.codec import size
from protocols.framework.vectors import mix
from sim.learning.engine import Engine, Scalar, Vector
from sim.learning.engine.functions.encoded import TYPES
from tests.device import DEVICE
from tests.draws import examples
from tests.learning.engines import new_engine

WIDTH = 6
pytestmark = pytest.mark.usefixtures("no_garbage_collector")


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
    "static arguments of a function of torch": (torch.clamp, 1, {"min": -0.5, "max": 0.5}),
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
        plain = quantised(numbers(seed, width).to(DEVICE))  # a GPU divides in other last bits
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
    torch.testing.assert_close(
        z[0].tensor().cpu(), largest(torch.maximum(-numbers(1), torch.tensor(0.5)), 2)[0]
    )
    good = engine.apply(torch.neg, (engine.vector(-torch.eye(2).flatten()),), {})
    found = engine.apply(inverse, (good,), {}).tensor()  # of ones: none
    assert torch.equal(found.cpu(), torch.eye(2).flatten())


def test_a_call_is_bounded_by_its_results_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()
    for limit in ("_NUMBERS_AT_ONCE", "_NUMBERS_AT_ONCE_CPU"):
        monkeypatch.setattr(f"sim.learning.engine.functions.user_functions.{limit}", 2100)
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


def affine(x: Tensor, scalar: Tensor, number: Tensor, noise: Tensor, flags: Tensor) -> Tensor:
    return torch.where(flags > 0, x * scalar + number, noise)


def test_arguments_of_all_kinds() -> None:
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
            flags > 0, x.tensor().cpu() * scalar.tensor().cpu() + client, torch.from_numpy(noise).float()
        )
        torch.testing.assert_close(got.tensor().cpu(), expected)


def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


def test_calls_with_equal_static_arguments_are_computed_together() -> None:
    engine = new_engine()
    factors = [2.0 if client % 2 else 3.0 for client in range(12)]
    made = [
        engine.apply(scaled, (x,), {"factor": f}) for x, f in zip(vectors(engine, 12), factors, strict=True)
    ]
    for client, result in enumerate(made):
        torch.testing.assert_close(result.tensor().cpu(), numbers(client) * factors[client])
    assert engine.statistics.batches == 2


@pytest.mark.long
def test_a_number_that_differs_at_every_call_costs_no_memory() -> None:
    """Each is a function of its own: the results are right, and few are remembered."""
    engine = new_engine()
    x = engine.vector(torch.arange(4.0))
    made = [engine.apply(scaled, (x,), {"factor": 0.5 * number}) for number in range(600)]
    for number, result in enumerate(made):
        torch.testing.assert_close(result.tensor().cpu(), torch.arange(4.0) * 0.5 * number)
    assert len(engine.functions._known) <= 256


def kept(x: Tensor, value: object) -> Tensor:
    return x + (isinstance(value, bool) + 2 * isinstance(value, float))


def over(a: Tensor, z: tuple[float]) -> Tensor:
    return a.abs() / z[0]


def test_1_and_one_point_0_and_true_are_three_values() -> None:
    engine = new_engine()
    x = engine.vector(torch.zeros(1))
    found = [engine.apply(kept, (x,), {"value": value}) for value in (1, 1.0, True)]
    assert [float(each.numpy()[0]) for each in found] == [0, 2, 1]


def test_a_zero_below_zero_is_another_value() -> None:
    engine = new_engine()
    [x] = vectors(engine, 1)
    found = [engine.apply(over, (x,), {"z": (zero,)}) for zero in (0.0, -0.0)]
    assert [each.numpy().tolist() for each in found] == [[np.inf] * WIDTH, [-np.inf] * WIDTH]


def extremes(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype is torch.bool:
        return x > 0
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    low, high = (torch.full_like(x[0], limit, dtype=dtype) for limit in (limits.min, limits.max))
    return torch.stack([low, x[0].to(dtype), high])


@pytest.mark.parametrize("name", TYPES)
def test_numbers_of_few_bytes_are_exact(name: str) -> None:
    engine, dtype = new_engine(), TYPES[name]
    x = torch.tensor([77.0, 0.0, 0.5])
    values = engine.apply(extremes, (engine.vector(x),), {"dtype": dtype})
    wanted = extremes(x, dtype)
    assert values.tensor().dtype is dtype and torch.equal(values.tensor().cpu(), wanted)
    passed_on = engine.apply(torch.flip, (values,), {"dims": (0,)})
    assert torch.equal(passed_on.tensor().cpu(), wanted.flip(0))
    np.testing.assert_array_equal(values.numpy(), wanted.numpy(), strict=True)
    assert size(values) == size(wanted.numpy())  # in a message


def first_as(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return x[0].to(dtype), x


def twice(x: Tensor) -> Tensor:
    return 2 * x


@pytest.mark.parametrize("name", TYPES)
def test_scalars_of_few_bytes_become_float32_of_the_same_value(name: str) -> None:
    engine = new_engine()
    x = torch.tensor([3.0, -1.0])
    scalar, vector = engine.apply(first_as, (engine.vector(x),), {"dtype": TYPES[name]})
    value = 1.0 if name == "bool" else 3.0
    assert type(scalar) is Scalar and float(scalar) == value
    assert float(engine.apply(twice, (scalar,), {})) == 2 * value
    np.testing.assert_array_equal((vector * scalar).numpy(), value * x.numpy())


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
BATCHED = "many clients at once: do not branch on a value"
TOP = "apply needs a top-level function, but"


def branching(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def branching_in_torch_2_11(x: Tensor) -> Tensor:
    raise RuntimeError(
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't "
        "support that yet, please shout over at https://github.com/pytorch/functorch/issues/257 ."
    )


def taking_out(x: Tensor) -> Tensor:
    return x * x[0].item()


def drawing(x: Tensor) -> Tensor:
    return x + torch.randn(x.shape)


def misshapen(x: Tensor) -> Tensor:
    return x + torch.zeros(3)


def raising(x: Tensor) -> Tensor:
    raise KeyError("mine")


def costly(x: Tensor, steps: float) -> Tensor:
    return x * steps


def without_arguments() -> Tensor:
    return torch.zeros(1)


def histogram(x: Tensor) -> Tensor:
    return torch.histc(x, bins=2, min=0.0, max=4.0)


def matrix(x: Tensor) -> Tensor:
    return torch.outer(x, x)


def order(x: Tensor) -> Tensor:
    return x.argsort()


def complex_numbers(x: Tensor) -> Tensor:
    return torch.complex(x, x)


def number(x: Tensor) -> float:
    return 3.0


def nothing(x: Tensor) -> tuple[()]:
    return ()


def half_a_pair(x: Tensor) -> tuple[Tensor, None]:
    return x, None


class Holder:
    def method(self, x: Tensor) -> Tensor:
        return x


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a branch": (branching, ValueError, f"{LINE}: branching.. failed: RuntimeError: [^?]*flow; .*{BATCHED}"),
    "a branch, in torch 2.11": (
        branching_in_torch_2_11,
        ValueError,
        f"{LINE}: branching_in_torch_2_11.. failed: RuntimeError: [^?]*flow; .*{BATCHED}",
    ),
    "a number taken out": (taking_out, ValueError, f"{LINE}: taking_out.. failed: RuntimeError.*{BATCHED}"),
    "chance": (drawing, ValueError, f"{LINE}: drawing.. failed: .*pass random numbers as an argument"),
    "shapes that do not fit": (
        misshapen,
        ValueError,
        f"{LINE}: misshapen.. failed: RuntimeError: The size of",
    ),
    "an error inside": (raising, ValueError, f"{LINE}: raising.. failed: KeyError: 'mine'"),
    "leaving": (leaving, ValueError, f"{LINE}: leaving.. failed: SystemExit: 3"),
    "too many arguments": (
        without_arguments,
        ValueError,
        "failed: TypeError: .* takes 0 positional arguments",
    ),
    "a matrix": (
        matrix,
        ValueError,
        r"a tensor of shape \(6, 6\) and torch.float32; must be a tensor with no dimension",
    ),
    "whole numbers of 64 bits": (order, ValueError, r"of shape \(6,\) and torch.int64; must be"),
    "complex numbers": (complex_numbers, ValueError, "and torch.complex64; must be"),
    "no tensor": (number, ValueError, "failed|returns an object of type float; must be"),
    "nothing": (nothing, ValueError, "returns nothing"),
    "a part that is no tensor": (half_a_pair, ValueError, "failed|returns a NoneType"),
    "a method": (Holder().method, TypeError, f"{TOP} method is of type method: define it with `def`"),
    "a parameter that apply takes": (
        costly,
        ValueError,
        "apply uses the keyword steps= for the cost",
    ),
    "a module": (torch.nn.Linear(6, 6), TypeError, f"{TOP} Linear is of type Linear"),
    "no function": (3, TypeError, f"{TOP} int is of type int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_cannot_be_computed_for_all_at_once_are_refused(name: str) -> None:
    function, kind, message = REFUSED[name]
    engine = new_engine()
    x = engine.vector(numbers(1))
    with pytest.raises(kind, match=message):
        engine.apply(function, (x,), {})
    assert torch.equal(engine.apply(torch.neg, (x,), {}).tensor().cpu(), -numbers(1))  # and nothing is lost


def test_torch_does_not_ask_users_to_report_what_it_cannot_batch(recwarn: pytest.WarningsRecorder) -> None:
    engine = new_engine()
    counts = engine.apply(histogram, (engine.vector(torch.tensor([1.0, 3.0, 3.5])),), {}).tensor()
    assert counts.tolist() == [1.0, 2.0]
    assert [str(each.message) for each in recwarn] == []


def test_functions_without_a_name_of_their_own_are_refused() -> None:
    engine = new_engine()
    x, factor = engine.vector(numbers(1)), 2.0

    def inner(x: Tensor) -> Tensor:
        return x * factor

    for function in (lambda x: x + 1, inner, partial(torch.add, other=1)):
        with pytest.raises(TypeError, match=TOP):
            engine.apply(function, (x,), {})
    with pytest.raises(TypeError, match="gets min by keyword, of type ndarray, which may change before"):
        engine.apply(torch.clamp, (x,), {"min": np.ones(WIDTH)})


def test_arguments_that_are_none_are_refused() -> None:
    engine, other = new_engine(), new_engine()
    x = engine.vector(numbers(1))
    with pytest.raises(
        TypeError, match=r"argument 1 of torch|argument 1 of maximum\(\) is of type str; must be a vector"
    ):
        engine.apply(torch.maximum, (x, "x"), {})
    with pytest.raises(ValueError, match="another engine"):
        engine.apply(torch.maximum, (x, other.vector(numbers(1))), {})
    with pytest.raises(
        ValueError, match=r"in one dimension, not shape \(2, 3\) and type torch.float64; `flatten\(\)`"
    ):
        engine.apply(torch.maximum, (x, np.zeros((2, 3))), {})
    with pytest.raises(TypeError, match="is applied without arguments"):
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


@pytest.mark.long
@given(first=FLOATS, second=FLOATS, power=st.sampled_from([2, 3, 0.5, -1]))
@examples(40)
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


def halved(x: Tensor, times: int) -> Tensor:
    return x if times == 0 else halved(x / 2, times - 1)


def test_a_function_may_call_itself() -> None:
    engine = new_engine()
    [x] = vectors(engine, 1)
    torch.testing.assert_close(engine.apply(halved, (x,), {"times": 3}).tensor().cpu(), numbers(0) / 8)
