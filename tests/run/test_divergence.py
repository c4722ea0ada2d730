"""Which models are no numbers any more, as evaluations see them."""

import math

import numpy as np
import torch

from sim.core.divergence import Divergence, NonFinite
from sim.learning.evaluation import finite_rows

CLIENTS = ("a", "b", "c")
FINE = {"accuracy": np.array([0.5, 0.5, 0.5]), "loss": np.array([1.0, 1.0, 1.0])}
ALL = np.array([True, True, True])


def finite(*values: float) -> np.ndarray:
    """Which models of four such numbers are finite."""
    return finite_rows(torch.tensor(values)[:, None].expand(-1, 4))


def test_the_first_is_kept_and_the_present_follow() -> None:
    divergence = Divergence()
    divergence.check(0.0, CLIENTS, finite(1.0, 2.0, 3.0), FINE, ALL)
    assert (divergence.first, list(divergence.present)) == (None, [])
    divergence.check(5.0, CLIENTS, finite(1.0, math.nan, math.inf), FINE, ALL)
    assert divergence.first == NonFinite("b", 5.0, "parameters")
    assert list(divergence.present) == ["b", "c"]
    divergence.check(10.0, CLIENTS, finite(math.nan, 1.0, math.inf), FINE, ALL)
    assert divergence.first == NonFinite("b", 5.0, "parameters")
    assert list(divergence.present) == ["c", "a"]


def test_a_loss_may_be_infinite_though_the_model_is_not() -> None:
    divergence = Divergence()
    losses = {"accuracy": np.array([0.5, math.nan, 0.5]), "loss": np.array([1.0, math.inf, 1.0])}
    divergence.check(5.0, CLIENTS, finite(1.0, 2.0, 3.0), losses, ALL)
    assert divergence.first == NonFinite("b", 5.0, "loss")


def test_who_has_no_test_samples_has_not_diverged() -> None:
    divergence = Divergence()
    losses = {"loss": np.array([1.0, math.nan, 1.0])}
    divergence.check(5.0, CLIENTS, finite(1.0, 2.0, 3.0), losses, np.array([True, False, True]))
    assert (divergence.first, list(divergence.present)) == (None, [])
