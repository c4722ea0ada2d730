"""What arrivals and departures meant."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from sim.results.kaplan_meier import CensoredTimes, median_time
from sim.results.metrics import Series
from sim.results.population import (
    ClientPanelData,
    LifecycleEvent,
    Population,
    catch_up_time,
    dip_and_recovery,
    metric_panel,
    settled_summary,
)

NAN = np.nan


def series(*points: tuple[float, float]) -> Series:
    times, values = zip(*points, strict=True)
    return Series(np.array(times, dtype=float), np.array(values, dtype=float))


def test_catch_up_is_to_nine_tenths_of_the_incumbents_mean() -> None:
    incumbents = series((0, 0.25), (10, 0.75), (20, 0.75), (30, 0.8))
    assert catch_up_time(series((10, 0.25), (20, 0.5), (30, 0.75)), incumbents, 8.0) == 22.0
    assert catch_up_time(series((10, 0.25), (20, 0.68), (30, 0.75)), incumbents, 8.0) == 12.0
    assert catch_up_time(series((10, 0.25), (20, 0.67), (30, 0.71)), incumbents, 8.0) is None
    rejoined = series((0, 0.9), (30, 0.9))
    assert catch_up_time(rejoined, incumbents, 25.0) == 5.0, "its former life does not count"


def test_dip_and_recovery() -> None:
    survivors = series((0, 0.5), (10, 0.75), (20, 0.625), (30, 0.5), (40, 0.75), (50, 0.25))
    assert dip_and_recovery(survivors, 12.0) == (0.25, 28.0)  # the later fall to 0.25 is another story
    assert dip_and_recovery(survivors, 10.0) == (0.25, 30.0)
    assert dip_and_recovery(survivors, 0.0) == (0.0, 0.0)
    assert dip_and_recovery(survivors, 40.0) == (0.5, None)
    assert dip_and_recovery(survivors, 50.0) is None
    assert dip_and_recovery(survivors, -1.0) is None


def test_where_less_is_better_newcomers_come_from_above_and_dips_are_rises() -> None:
    incumbents = series((0, 20), (10, 9), (20, 9))
    newcomer = series((0, 30), (10, 11), (20, 10))
    assert catch_up_time(newcomer, incumbents, 0.0, higher_is_better=False) == 20.0
    assert catch_up_time(newcomer, incumbents, 0.0, 15.0, higher_is_better=False) is None
    survivors = series((0, 20), (10, 25), (20, 18))
    assert dip_and_recovery(survivors, 0.0, higher_is_better=False) == (5.0, 20.0)
    assert dip_and_recovery(survivors, 10.0, higher_is_better=False) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("reached", "watched", "half"),
    [
        ([1, 2, 3], [], 2),  # two thirds, one third
        ([10, 5], [], 5),
        ([2, 4], [1, 3, 5], 4),  # 3/4 of 4 at 2; half of the 2 that are still watched at 4: 3/8
        ([1, 2, 3], [10, 10, 10], 3),  # 5/6, 4/5 and 3/4 of that: exactly half
        ([2], [2], 2),  # watched until then, so at risk then
        ([1], [2, 2, 2], None),
        ([1], [0, 0, 0], 1),  # never watched: nothing is known of them
        ([], [1, 2], None),
        # Remission under 6-MP in weeks (Freireich et al. 1963), whose median is in every textbook.
        ([6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35], 23),
    ],
)
def test_the_time_to_half_counts_those_that_never_did(
    reached: list[float], watched: list[float], half: float | None
) -> None:
    times: list[float | None] = [*reached, *[None] * len(watched)]
    assert median_time(CensoredTimes.of(times, [*reached, *watched])) == half


def test_who_has_settled() -> None:
    accuracies = {"a": 0.9, "b": 0.8, "new": 0.1, "older": 0.7}
    iterations = {"a": 300, "b": 100, "new": 19, "older": 20}
    summary = settled_summary(accuracies, iterations, ["a", "b"])
    assert (summary["iterations"], summary["clients"]) == (20, 3), "a tenth of the median of a and b"
    assert summary["mean"] == pytest.approx(0.8)
    assert summary["worst_decile"] == 0.7
    assert settled_summary(accuracies, iterations, ["a", "b"], least=100)["clients"] == 2
    assert settled_summary(accuracies, iterations, [])["iterations"] == 6, "of all where nobody stayed"
    idle = settled_summary({"a": 0.1}, {"a": 0}, [])
    assert (idle["iterations"], idle["clients"], idle["mean"]) == (1, 0, None)
    assert settled_summary({}, {}, [])["clients"] == 0
    of_perplexity = settled_summary(accuracies, iterations, ["a", "b"], higher_is_better=False)
    assert of_perplexity["worst_decile"] == 0.9


# Clients 0 and 1 stay, 2 crashes at 12 s, 3 joins at 15 s and is never as good, 4 joins at 25 s.
PANEL = ClientPanelData(
    np.array([0.0, 10.0, 20.0, 30.0, 40.0]),
    np.array(
        [
            [0.25, 0.25, 0.25, NAN, NAN],
            [0.5, 0.75, 1.0, NAN, NAN],
            [0.5, 0.5, NAN, 0.0, NAN],
            [0.75, 0.5, NAN, 0.25, 0.5],
            [0.75, 0.75, NAN, 0.25, 0.75],
        ]
    ),
)
MOVES = [LifecycleEvent(12.0, 2, "crash"), LifecycleEvent(15.0, 3, "join"), LifecycleEvent(25.0, 4, "join")]


def test_summary_of_a_population() -> None:
    population = Population(PANEL, MOVES)
    assert population.catch_up(MOVES[1]) is None
    # Incumbents of client 4: 0, 1 and 3, with means 0.5 at 30 s and 0.583 at 40 s.
    assert population.catch_up(MOVES[2]) == 5.0
    assert population.dip(12.0) == (0.125, 18.0)  # from 0.625 to 0.5 at 20 s, and back at 30 s
    assert population.summary() == {
        "newcomers": 2,
        "came_back": 0,
        "caught_up": 1,
        "went_before": 0,
        "still_behind": 1,
        "catch_up_seconds": {"median": 5.0, "max": 5.0},
        "departures": 1,
        "recovered": 1,
        "recovery_seconds": {"median": 18.0, "max": 18.0},
        "deepest_dip": 0.125,
    }


def test_newcomers_that_never_catch_up_are_counted_for_as_long_as_they_were_watched() -> None:
    # Of four newcomers at 5 s one has caught up after 15 s; one goes at 22 s, two stay and never do.
    bad = [NAN, 0.1, 0.1, 0.1, 0.1]
    values = np.array([[0.9] * 5, [NAN, 0.1, 0.9, 0.9, 0.9], [NAN, 0.1, 0.1, NAN, NAN], bad, bad]).T
    moves = [LifecycleEvent(5.0, client, "join") for client in (1, 2, 3, 4)] + [
        LifecycleEvent(22.0, 2, "crash")
    ]
    population = Population(ClientPanelData(np.array([0.0, 10.0, 20.0, 30.0, 40.0]), values), moves)
    assert [population._watched(move) for move in moves[:4]] == [35.0, 15.0, 35.0, 35.0]
    assert population._watched(LifecycleEvent(41.0, 0, "join")) == 0.0
    summary = population.summary()
    assert (summary["caught_up"], summary["went_before"], summary["still_behind"]) == (1, 1, 2)
    assert summary["catch_up_seconds"] == {"median": None, "max": 15.0}, "it was 15 s without the others"


def test_a_life_that_ended_before_catching_up_never_did() -> None:
    values = np.array([[0.9, NAN], [0.9, 0.1], [0.9, NAN], [0.9, 0.9]])
    moves = [
        LifecycleEvent(5.0, 1, "join"),
        LifecycleEvent(15.0, 1, "crash"),
        LifecycleEvent(25.0, 1, "rejoin"),
    ]
    summary = Population(ClientPanelData(np.array([0.0, 10.0, 20.0, 30.0]), values), moves).summary()
    assert (summary["newcomers"], summary["caught_up"]) == (2, 1)
    assert (summary["went_before"], summary["still_behind"]) == (1, 0)
    assert summary["catch_up_seconds"] == {"median": 5.0, "max": 5.0}


def test_who_was_there_counts_until_it_goes_and_not_when_it_is_back() -> None:
    # Client 1 crashes at 15 s and is back afresh at 25 s; 2 joins at 5 s.
    values = np.array([[0.9, 0.9, NAN], [0.9, 0.9, 0.5], [0.9, NAN, 0.6], [0.9, 0.1, 0.6], [0.9, 0.2, 0.6]])
    back = LifecycleEvent(25.0, 1, "rejoin", "fresh")
    moves = [LifecycleEvent(5.0, 2, "join"), LifecycleEvent(15.0, 1, "crash"), back]
    population = Population(ClientPanelData(np.array([0.0, 10.0, 20.0, 30.0, 40.0]), values), moves)
    assert population.catch_up(moves[0]) is None, "its bar is 0.9; with client 1's second life it was 0.5"
    assert population.dip(2.0) == (0.0, 0.0), "nor is that life a dip of those who survived the first"
    # Gone and back within the two evaluations: it is not one of the survivors.
    quick = [LifecycleEvent(24.0, 1, "crash"), LifecycleEvent(26.0, 1, "rejoin", "fresh")]
    assert Population(ClientPanelData(np.array([20.0, 30.0]), np.array([[0.9, 0.9], [0.9, 0.1]])), quick).dip(
        24.0
    ) == (
        0.0,
        0.0,
    )


@pytest.mark.parametrize(("state", "newcomers"), [("keep", 0), ("stale", 0), ("fresh", 1)])
def test_who_brings_its_own_model_is_no_newcomer(state: str, newcomers: int) -> None:
    moves = [LifecycleEvent(12.0, 2, "crash"), LifecycleEvent(35.0, 2, "rejoin", state)]
    summary = Population(PANEL, moves).summary()
    assert (summary["newcomers"], summary["came_back"]) == (newcomers, newcomers)


def test_departures_between_two_evaluations_are_one() -> None:
    moves = [LifecycleEvent(12.0, 2, "crash"), LifecycleEvent(13.0, 4, "leave")]
    assert Population(PANEL, moves).summary()["departures"] == 1


def test_who_comes_back_is_not_its_own_incumbent() -> None:
    panel = ClientPanelData(np.array([0.0, 10.0]), np.array([[0.5, 1.0], [0.5, 0.5]]))
    back = LifecycleEvent(6.0, 1, "rejoin")
    population = Population(panel, [back])
    assert population.catch_up(back) == 4.0, "0.5 is as good as client 0; with its former self: 0.75"
    assert not population.has_incumbents(LifecycleEvent(-1.0, 1, "join")), "nobody was there before"
    alone = ClientPanelData(np.array([0.0, 10.0]), np.array([[0.5], [0.25]]))
    assert not Population(alone, []).has_incumbents(LifecycleEvent(6.0, 0, "rejoin"))


@pytest.mark.parametrize("moves", [[], [LifecycleEvent(45.0, 0, "crash")]])
def test_nothing_to_measure(moves: list[LifecycleEvent]) -> None:
    summary = Population(PANEL, moves).summary()
    nothing = {key: {"median": None, "max": None} for key in ("catch_up_seconds", "recovery_seconds")}
    assert summary == dict.fromkeys(summary, 0) | nothing | {"deepest_dip": None}


def test_panel_of_a_long_table() -> None:
    rows = [(0.0, "b", "accuracy", 0.5), (1.0, "a", "accuracy", 0.25), (1.0, "all", "accuracy", 9.0)]
    frame = pl.DataFrame(rows, schema=["time", "actor", "name", "value"], orient="row").lazy()
    panel = metric_panel(frame, "accuracy", ["a", "b"])
    assert panel is not None
    assert panel.times.tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(panel.values, [[NAN, 0.5], [0.25, NAN]])
    assert metric_panel(frame, "loss", ["a", "b"]) is None


def test_a_departure_at_an_evaluation_belongs_to_the_next_interval() -> None:
    times = np.array([0.0, 10.0, 20.0, 30.0])
    end = [[0.3, 0.3, NAN, NAN], [0.5, 0.5, NAN, NAN]]

    def dips(at: tuple[float, float], third: float) -> list[tuple[float, Any]]:
        panel = ClientPanelData(times, np.array([[0.5] * 4, [0.5, 0.5, third, 0.5], *end]))
        return Population(panel, [LifecycleEvent(s, 2 + i, "crash") for i, s in enumerate(at)]).dips()

    assert dips((10.0, 12.0), 0.5) == [(10.0, (pytest.approx(0.2), 20.0))], "one interval, one dip"
    assert dips((5.0, 10.0), NAN) == [(5.0, (0.0, 0.0)), (10.0, (pytest.approx(0.2), 20.0))]
    back = [LifecycleEvent(20.0, 1, "crash"), LifecycleEvent(26.0, 1, "rejoin", "fresh")]
    panel = ClientPanelData(np.array([20.0, 30.0]), np.array([[0.9, 0.9], [0.9, 0.1]]))
    assert Population(panel, back).dip(20.0) == (0.0, 0.0), "gone and back: not one of the survivors"
