"""How many gradients for others a client computes, by how fast it is beside them."""

from typing import cast

import pytest

from protocols.framework.client import Client
from protocols.shared.pace import BURST, HelpBudget, PeerPace


class Alone:
    """As much of a client as a budget looks at: the time, its iterations and its peers."""

    now = 0.0
    iterations = 0
    peers = ("a", "b", "c", "d")

    def _add_component(self, component: object) -> None:
        """Nothing happens to it."""


CLIENT = Alone()


def budget_of(share: float, client: Alone = CLIENT) -> HelpBudget:
    return HelpBudget(cast(Client, client), share)


def spent(pace: float | None, iterations: int, called_for: float = 1.75, share: float = 1.0) -> int:
    """Gradients that a client computes in so many iterations when asked for more than it can."""
    budget, gradients = budget_of(share), 0
    for _ in range(iterations):
        budget.earn_at(pace, called_for)
        while budget.suffices and gradients < 100_000:
            budget.spend()
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
    budget = budget_of(1.0)
    budget.earn_at(0.5, 0.0)
    budget.spend(2.0)
    budget.earn_at(0.5, 1.5)
    assert budget.left == 1.5


def test_a_client_that_falls_behind_has_a_limit_again() -> None:
    budget = budget_of(1.0)
    budget.earn_at(2.0, 1.0)
    budget.spend(1_000.0)
    budget.earn_at(0.05, 1.0)
    assert budget.left == BURST


def test_what_was_not_used_goes_back() -> None:
    budget = budget_of(0.0)
    budget.spend(BURST)
    assert not budget.suffices
    budget.spend(-1.0)
    assert budget.suffices


def test_pace_is_that_beside_the_median_of_the_others() -> None:
    client = Alone()
    budget = budget_of(1.0, client)
    budget.life_began()
    client.iterations = 2  # the third one ends now

    def own_pace(now: float, *rates: float) -> float | None:
        budget.paces.clear()
        for peer, rate in zip(client.peers, rates, strict=False):
            budget.met(peer, 1.0, 5)
            budget.met(peer, 3.0, 5 + round(2 * rate))
        client.now = now
        return budget.own_pace

    assert own_pace(3.0, 0.5) is None, "one more iteration tells nothing"
    assert own_pace(0.0, 2.0) is None
    assert own_pace(3.0, 0.0, 2.0, 4.0, 100.0) == 0.25


def test_pace_of_a_peer_that_begins_anew_is_that_of_its_new_life() -> None:
    pace = PeerPace()
    for time_s, iterations in [(1.0, 50), (11.0, 70), (10.5, 69), (20.0, 1), (24.0, 9)]:
        pace.met(time_s, iterations)
    assert pace.rate == 2.0
