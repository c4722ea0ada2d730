"""How many gradients for others a client computes, by how fast it is beside them."""

from __future__ import annotations

import pytest

from protocols.shared.allowance import BURST, GradientAllowance


def spent(pace: float | None, iterations: int, share: float = 1.75) -> int:
    """Gradients that a client computes in so many iterations when asked for more than it can."""
    allowance, gradients = GradientAllowance(share), 0
    for _ in range(iterations):
        allowance.earn(pace)
        while allowance.suffices and gradients < 100_000:
            allowance.spend()
            gradients += 1
    return gradients


@pytest.mark.parametrize(
    ("pace", "share"), [(0.05, 1.75), (0.1, 1.75), (0.5, 1.75), (0.75, 1.75), (0.5, 39.0)]
)
def test_a_slow_client_computes_its_share(pace: float, share: float) -> None:
    earned = 1_000 * share * pace / (1.0 - pace)
    assert earned <= spent(pace, 1_000, share) <= earned + BURST + 1


@pytest.mark.parametrize("pace", [1.0, 1.3])
def test_a_client_that_is_not_slower_has_no_limit(pace: float) -> None:
    assert spent(pace, 1) == 100_000


def test_as_long_as_nothing_is_known_a_burst_is_computed_in_an_iteration() -> None:
    assert spent(None, 10) == 10 * BURST + 1


def test_a_client_that_falls_behind_has_a_limit_again() -> None:
    allowance = GradientAllowance(1.0)
    allowance.earn(2.0)
    allowance.spend(1_000.0)
    allowance.earn(0.05)
    assert allowance.left == BURST


def test_what_was_not_used_goes_back() -> None:
    allowance = GradientAllowance(0.0)
    allowance.spend(BURST)
    assert not allowance.suffices
    allowance.spend(-1.0)
    assert allowance.suffices
