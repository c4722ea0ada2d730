"""What a summary says, in words."""

from typing import Any

import pytest

from sim.results.outcome import (
    catching_up,
    clients_text,
    interrupted,
    main_problems,
    move_counts_text,
    result_sentence,
    why_failed,
)

CLIENTS = {"client_names": ["client-0", "client-1", "client-2"], "clients": {"alive": 3}}
FIRST = {"actor": "client-1", "seconds": 12.5, "error": "TypeError: no"}


def failed(*stopped: str, restarts: int = 0, errors: int = 1, error: str = "TypeError: no") -> dict[str, Any]:
    first = FIRST | {"error": error}
    return CLIENTS | {"failed": {"stopped": stopped, "restarts": restarts, "errors": errors, "first": first}}


def diverged(*at_end: str) -> dict[str, Any]:
    first = {"client": "client-2", "seconds": 20.0, "found": "loss"}
    return CLIENTS | {"non_finite": first | {"at_end": list(at_end)}}


def plain(line: str | None) -> str | None:
    return None if line is None else line.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"interrupted": True, "virtual_seconds": 30.0, "planned_seconds": 240.0}, "after 30 s of 4 min"),
        ({"interrupted": True, "virtual_seconds": 30.0, "planned_seconds": None}, "after 30 s"),
        ({"interrupted": True, "virtual_seconds": 30.0}, "after 30 s"),
        ({"interrupted": False, "virtual_seconds": 30.0, "planned_seconds": 240.0}, None),
    ],
)
def test_a_run_that_was_interrupted_says_after_how_much_of_it(summary, said):
    assert plain(interrupted(summary)) == said


def test_comings_and_goings_add_up_and_what_nobody_did_is_left_out():
    counts = {"initial": 6, "joined": 39, "left": 0, "crashed": 1174, "rejoined": 1140, "alive": 11}
    assert move_counts_text({"clients": counts}) == ["39 joined", "1,140 rejoined", "1,174 crashed"]
    restarts = {"initial": 5, "rejoined": 1, "left": 2, "failed": 3, "restarted": 2, "alive": 3}
    assert move_counts_text({"clients": restarts}) == ["1 rejoined", "2 restarted", "2 left", "3 failed"]


@pytest.mark.parametrize(
    ("came_back", "who"), [(0, "of 5"), (3, "of 5 (2 joined, 3 rejoined without state)")]
)
def test_newcomers_are_those_that_joined_and_those_that_came_back_fresh(came_back, who):
    population = {"newcomers": 5, "caught_up": 4, "went_before": 0, "still_behind": 1}
    population |= {"catch_up_seconds": {"median": 5.0}, "came_back": came_back}
    said = plain(catching_up(population))
    assert (
        said
        == f"4 {who} reached 90% of the other clients' accuracy, 1 still behind; median 5 s (Kaplan-Meier)"
    )


@pytest.mark.parametrize(
    ("better", "gain", "said"),
    [
        (1.0, 0.057, "all 4 do better than alone, with a mean difference of +5.7 points"),
        (
            0.5,
            -0.01,
            "50.0% of the clients do better than alone, with a mean difference of \N{MINUS SIGN}1.0 points",
        ),
        (0.0, 0.0, "no client does better than alone, with a mean difference of +0.0 points"),
    ],
)
def test_the_answer_tells_how_many_are_helped_and_the_mean_of_all(
    better: float, gain: float, said: str
) -> None:
    summary = {
        "accuracy": {"clients": 4, "mean": 0.9},
        "better_than_alone": better,
        "help": {"better": int(4 * better), "mean_gain": gain},
        "population": {"newcomers": 1, "caught_up": 1, "departures": 3, "recovered": 2},
    }
    assert plain(result_sentence(summary)) == (
        f"The clients that are up reach a mean accuracy of 90.0%; {said}; the newcomer caught up with the "
        "other clients; after 2 of 3 departures, the other clients recovered fully."
    )


def test_gains_of_measures_of_which_less_is_better_are_improvements() -> None:
    summary = {
        "measure": "distance",
        "distance": {"clients": 4, "mean": 1.5},
        "better_than_alone": 1.0,
        "help": {"better": 4, "mean_gain": 0.25},
    }
    assert "better than alone, with a mean improvement of +0.25" in plain(result_sentence(summary))


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (failed("client-1"), "1 of 3 clients failed: TypeError: no (first: client-1 at 12.5 s)"),
        (
            failed("client-1", "server", errors=2),
            "1 of 3 clients and server failed: TypeError: no, and other errors (first: client-1 at 12.5 s)",
        ),
        (failed("server"), "server failed: TypeError: no (first: client-1 at 12.5 s)"),
        (
            failed("client-1", error="Own: first line\nsecond line"),
            "1 of 3 clients failed: Own: first line\N{HORIZONTAL ELLIPSIS} (first: client-1 at 12.5 s)",
        ),
        (
            failed("client-1", error="x" * 1000),
            f"1 of 3 clients failed: {'x' * 200}\N{HORIZONTAL ELLIPSIS} (first: client-1 at 12.5 s)",
        ),
    ],
)
def test_who_failed_of_how_many_and_of_what(summary: dict[str, Any], line: str) -> None:
    assert [plain(said) for said in main_problems(summary)] == [line]
    assert plain(why_failed(summary)) == line


def test_failures_that_restarts_answered_fail_no_run() -> None:
    assert main_problems(failed(restarts=2)) == ["2 failures were followed by a restart"]
    assert why_failed(failed(restarts=2)) is None
    assert len(main_problems(failed("client-1", restarts=2))) == 2


@pytest.mark.parametrize(
    ("at_end", "fails"), [([], False), (["client-2"], False), (["client-0", "client-1", "client-2"], True)]
)
def test_models_that_are_no_numbers_fail_a_run_if_there_is_no_other(at_end: list[str], fails: bool) -> None:
    [line] = main_problems(diverged(*at_end))
    count = len(at_end)
    said = f"diverged: {count} of 3 models are not finite at the end (first: loss of client-2 at 20 s)"
    assert plain(line) == said
    assert plain(why_failed(diverged(*at_end))) == (said if fails else None)


def test_nothing_is_said_where_nothing_went_wrong() -> None:
    assert main_problems(CLIENTS | {"failed": None, "non_finite": None}) == []
    assert why_failed(CLIENTS) is None


def test_of_whom_the_accuracy_is() -> None:
    assert clients_text(CLIENTS | {"accuracy": {"clients": 3}}) == "3 clients"
    assert clients_text(CLIENTS | {"accuracy": {"clients": 1}}) == "1 of 3 clients"
