"""How many gradients for others a client computes, by how fast it is beside them."""

from __future__ import annotations

import pytest

from protocols.shared.allowance import BURST, GradientAllowance


def spent(pace: float | None, iterations: int, called_for: float = 1.75, share: float = 1.0) -> int:
    """Gradients that a client computes in so many iterations when asked for more than it can."""
    allowance, gradients = GradientAllowance(share), 0
    for _ in range(iterations):
        allowance.earn(pace, called_for)
        while allowance.suffices and gradients < 100_000:
            allowance.spend()
            gradients += 1
    return gradients


@pytest.mark.parametrize(
    ("pace", "called_for"), [(0.05, 1.75), (0.1, 1.75), (0.5, 1.75), (0.75, 1.75), (0.5, 39.0)]
)
def test_a_slow_client_computes_its_share(pace: float, called_for: float) -> None:
    earned = 1_000 * called_for * pace / (1.0 - pace)
    assert earned <= spent(pace, 1_000, called_for) <= earned + BURST + 1


@pytest.mark.parametrize("pace", [1.0, 1.3])
def test_a_client_that_is_not_slower_has_no_limit(pace: float) -> None:
    assert spent(pace, 1) == 100_000


def test_as_long_as_nothing_is_known_twice_what_is_called_for_is_computed() -> None:
    assert spent(None, 10, called_for=0.5) == 10 * BURST + 1
    assert spent(None, 10, called_for=11.0) == 10 * 22 + 1


def test_who_finds_its_peers_late_earns_by_those_it_has_then() -> None:
    allowance = GradientAllowance(1.0)
    allowance.earn(0.5, 0.0)
    allowance.spend(2.0)
    allowance.earn(0.5, 1.5)
    assert allowance.left == 1.5


def test_a_client_that_falls_behind_has_a_limit_again() -> None:
    allowance = GradientAllowance(1.0)
    allowance.earn(2.0, 1.0)
    allowance.spend(1_000.0)
    allowance.earn(0.05, 1.0)
    assert allowance.left == BURST


def test_what_was_not_used_goes_back() -> None:
    allowance = GradientAllowance(0.0)
    allowance.spend(BURST)
    assert not allowance.suffices
    allowance.spend(-1.0)
    assert allowance.suffices
