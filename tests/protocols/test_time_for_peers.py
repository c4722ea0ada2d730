"""How much of its device's time a client has for others, by how fast it is beside them."""

import math
from typing import cast

import pytest

from protocols.framework.client import Client
from protocols.shared.pace import BURST, PeerPace, TimeForPeers


class Alone:
    """As much of a client as its time for peers looks at: the time, its iterations and its peers."""

    iterations = 0
    peers = ("a", "b", "c", "d")

    def __init__(self, pace: float | None = None) -> None:
        self.now = 0.0
        self.time = TimeForPeers(cast(Client, self))
        self.time.session_started()
        if pace is not None:  # peers do an iteration a second
            self.now, self.iterations = 100.0, round(100.0 * pace) - 1
            for peer in self.peers:
                self.time.met(peer, 0.0, 0)
                self.time.met(peer, 100.0, 100)

    def _add_component(self, component: object) -> None:
        """Nothing happens to it."""

    def spent(self, iterations: int, steps: float, share: float, called_for: float = 1.75) -> int:
        """Gradients that are computed in so many iterations when more are asked for than there is time."""
        gradients = 0
        for _ in range(iterations):
            self.time.earn(steps, share, called_for)
            while self.time.suffices and gradients < 100_000:
                self.time.spend()
                gradients += 1
        return gradients


@pytest.mark.parametrize("pace", [0.05, 0.2, 0.49])
@pytest.mark.parametrize(("steps", "share"), [(1, 1 / 3), (5, 1 / 3), (5, 0.25), (40, 0.1), (5, 0.0)])
def test_a_client_that_is_behind_spends_its_share(pace: float, steps: int, share: float) -> None:
    gradients = Alone(pace).spent(1_000, steps, share)
    trained = 1_000 * steps
    allowed = share / (1 - share) * trained
    assert allowed - 1e-6 <= gradients <= allowed + BURST + 1
    assert gradients - BURST - 1 <= share * (gradients + trained)


@pytest.mark.parametrize("pace", [0.5, 0.9, 1.3])
def test_a_client_that_is_not_behind_has_no_limit(pace: float) -> None:
    client = Alone(pace)
    assert client.spent(1, 5, share=0.0) == 100_000
    assert not client.time.is_behind


def test_as_long_as_nothing_is_known_twice_what_is_called_for_is_computed() -> None:
    for called_for, gradients in [(0.75, 10 * 1.5 + BURST - 0.5), (11.0, 10 * 22 + 1)]:
        client = Alone()
        assert abs(client.spent(10, 5, 0.0, called_for) - gradients) < 1
        assert not client.time.is_behind


def test_a_client_that_falls_behind_has_a_limit_again() -> None:
    client = Alone(1.0)
    client.time.earn(5, 0.0, 1.75)
    client.time.spend(1_000.0)
    client.iterations = 10
    client.time.earn(5, 0.0, 1.75)
    assert client.time.left == BURST < math.inf


def test_what_was_not_used_goes_back() -> None:
    client = Alone()
    client.time.spend(BURST)
    assert not client.time.try_spend(1.0)
    client.time.refund()
    assert client.time.try_spend(1.5)  # the last may be on credit
    assert client.time.left == -0.5


def test_pace_is_that_beside_the_median_of_the_others() -> None:
    client = Alone()
    client.iterations = 2  # the third one ends now

    def own_pace(now: float, *rates: float) -> float | None:
        client.time.paces.clear()
        for peer, rate in zip(client.peers, rates, strict=False):
            client.time.met(peer, 1.0, 5)
            client.time.met(peer, 3.0, 5 + round(2 * rate))
        client.now = now
        return client.time.own_pace

    assert own_pace(3.0, 0.5) is None, "one more iteration tells nothing"
    assert own_pace(0.0, 2.0) is None
    assert own_pace(3.0, 0.0, 2.0, 4.0, 100.0) == 0.25


def test_a_client_is_certainly_behind_only_if_half_of_its_peers_are_faster() -> None:
    client = Alone()
    for count, now, far_behind in [
        (1, 3.0, False),
        (2, 3.0, False),
        (3, 3.0, True),
        (1, 9.0, False),
        (2, 9.0, True),
    ]:
        client.now = now  # in its first iteration
        client.time.paces.clear()
        for index, peer in enumerate(client.peers):
            client.time.met(peer, 1.0, 1)
            client.time.met(peer, 3.0, 3 if index < count else 2)
        assert client.time.own_pace is not None and client.time.own_pace < 0.5
        assert client.time.is_far_behind == far_behind


def test_pace_of_a_peer_that_begins_anew_is_that_of_its_new_life() -> None:
    pace = PeerPace()
    for time_s, iterations in [(1.0, 50), (11.0, 70), (10.5, 69), (20.0, 1), (24.0, 9)]:
        pace.met(time_s, iterations)
    assert pace.rate == 2.0
