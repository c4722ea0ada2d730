"""Estimates of round trips against RFC 6298's formulas, and the limits that follow from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.delivery.round_trips import INITIAL_S, RoundTrip, RoundTrips


class Ping: ...


class Work: ...


def test_the_first_measurement_and_the_second_as_the_rfc_says() -> None:
    trip = RoundTrip()
    trip.measured(0.8)
    assert (trip.smoothed_s, trip.deviation_s) == (0.8, 0.4)
    assert trip.limit_s == pytest.approx(0.8 + 4 * 0.4)
    trip.measured(1.6)
    # RTTVAR first, with the old SRTT: 3/4 * .4 + 1/4 * .8; then SRTT: 7/8 * .8 + 1/8 * 1.6
    assert (trip.deviation_s, trip.smoothed_s) == (pytest.approx(0.5), pytest.approx(0.9))
    assert trip.limit_s == pytest.approx(0.9 + 4 * 0.5)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30))
def test_any_measurements_as_the_rfc_says(seconds: list[float]) -> None:
    trip = RoundTrip()
    srtt, rttvar = seconds[0], seconds[0] / 2
    trip.measured(seconds[0])
    for r in seconds[1:]:
        rttvar = 0.75 * rttvar + 0.25 * abs(srtt - r)
        srtt = 0.875 * srtt + 0.125 * r
        trip.measured(r)
    assert trip.smoothed_s == pytest.approx(srtt, rel=1e-12, abs=1e-9)
    assert trip.limit_s == pytest.approx(srtt + max(0.001, 4 * rttvar), rel=1e-12, abs=1e-9)


def test_a_limit_doubles_with_each_failure_until_something_is_measured() -> None:
    trips = RoundTrips()
    trips.of("bob", Ping).measured(0.1)
    limits = [trips.limit_s("bob", Ping)]
    for _ in range(3):
        trips.of("bob", Ping).failed()
        limits.append(trips.limit_s("bob", Ping))
    assert limits == pytest.approx([0.3, 0.6, 1.2, 2.4])
    trips.of("bob", Ping).measured(0.1)
    assert trips.limit_s("bob", Ping) < 0.3


def test_a_limit_doubles_up_to_a_minute_and_one_that_is_longer_by_itself_stays() -> None:
    trips = RoundTrips()
    for peer, seconds in (("near", 0.1), ("far", 100.0)):
        trips.of(peer, Ping).measured(seconds)
        for _ in range(2_000):
            trips.of(peer, Ping).failed()
    assert trips.limit_s("near", Ping) == 60.0
    assert trips.limit_s("far", Ping) == trips.of("far", Ping).limit_s == 300.0


def test_an_unknown_peer_has_three_times_the_median_of_the_others() -> None:
    trips = RoundTrips()
    assert trips.limit_s("eve", Ping) == INITIAL_S
    for peer, seconds in (("ann", 0.1), ("bob", 0.2), ("joe", 5.0)):
        trips.of(peer, Ping).measured(seconds)
    assert trips.limit_s("eve", Ping) == pytest.approx(0.6)
    assert trips.limit_s("eve", Work) == INITIAL_S  # another kind of question, perhaps of hours
    trips.of("eve", Ping).failed()
    assert trips.limit_s("eve", Ping) == pytest.approx(1.2)
