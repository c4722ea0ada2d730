"""What users write by mistake with vectors, and ranks of certain outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from sim.learning.metrics import area_under_curve
from tests.learning.engines import client_data, new_engine


@pytest.mark.parametrize("columns", [0, slice(0, 2), slice(None)])
def test_vectors_are_immutable_and_say_what_to_write(columns: Any) -> None:
    vector = new_engine(client_data([2])).vector(torch.ones(4))
    with pytest.raises(TypeError, match=r"vectors are immutable.*self\.params = self\.vector\(values\)"):
        vector[columns] = 0
    with pytest.raises(TypeError, match="vectors are immutable"):
        del vector[columns]
    assert vector.numpy().tolist() == [1.0] * 4


async def train() -> None:
    """A verb that nobody has awaited."""


@pytest.mark.parametrize(
    "use",
    [
        lambda vector, other: vector + other,
        lambda vector, other: vector - other,
        lambda vector, other: vector * other,
        lambda vector, other: vector / other,
        lambda vector, other: other + vector,
        lambda vector, other: other - vector,
    ],
)
def test_a_verb_that_is_not_awaited_is_named(use: Callable[[Any, Any], Any]) -> None:
    vector = new_engine(client_data([2])).vector(torch.ones(4))
    with pytest.raises(TypeError, match=r"train\(\) has not been awaited: write `await self\.train"):
        use(vector, train())


def test_vectors_are_divided_number_by_number() -> None:
    engine = new_engine(client_data([2]))
    one, other = engine.vector(torch.tensor([1.0, 2.0, 0.0])), engine.vector(torch.tensor([4.0, -1.0, 0.5]))
    assert (one / other).numpy().tolist() == [0.25, -2.0, 0.0]


@pytest.mark.parametrize(
    ("outputs", "classes", "area"),
    [
        ([[0, 40], [0, 45]], [0, 1], 1.0),
        ([[0, 45], [0, 40]], [0, 1], 0.0),
        ([[60, 0, 0], [50, 0, 0], [0, 0, 50]], [0, 1, 2], (1.0 + 0.75 + 1.0) / 3),
        ([[1000.0, 0], [2000.0, 0]], [1, 0], 1.0),
    ],
)
def test_certain_outputs_rank_as_they_are(
    outputs: list[list[float]], classes: list[int], area: float
) -> None:
    found = area_under_curve(np.array(outputs, dtype=np.float32), np.array(classes))
    assert found == pytest.approx(area)


def test_areas_of_many_classes_rank_by_the_odds_of_each() -> None:
    draws = np.random.default_rng(0)
    outputs, classes = draws.normal(size=(400, 30)) * 20, draws.integers(30, size=400)
    areas = []
    for each in range(30):
        odds = outputs[:, each] - logsumexp(np.delete(outputs, each, axis=1), axis=1)
        own, others = odds[classes == each], odds[classes != each]
        areas.append((own[:, None] > others).mean())
    assert area_under_curve(outputs, classes) == pytest.approx(np.mean(areas))
