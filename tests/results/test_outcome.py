"""What a summary says, in words."""

from typing import Any

import pytest

from sim.results.outcome import headlines, whom, why_failed

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
    assert [plain(said) for said in headlines(summary)] == [line]
    assert plain(why_failed(summary)) == line


def test_failures_that_restarts_answered_fail_no_run() -> None:
    assert headlines(failed(restarts=2)) == ["2 failures were followed by a restart"]
    assert why_failed(failed(restarts=2)) is None
    assert len(headlines(failed("client-1", restarts=2))) == 2


@pytest.mark.parametrize(
    ("at_end", "fails"), [([], False), (["client-2"], False), (["client-0", "client-1", "client-2"], True)]
)
def test_models_that_are_no_numbers_fail_a_run_if_there_is_no_other(at_end: list[str], fails: bool) -> None:
    [line] = headlines(diverged(*at_end))
    count = len(at_end)
    said = f"diverged: {count} of 3 models are not finite at the end (first: loss of client-2 at 20 s)"
    assert plain(line) == said
    assert plain(why_failed(diverged(*at_end))) == (said if fails else None)


def test_nothing_is_said_where_nothing_went_wrong() -> None:
    assert headlines(CLIENTS | {"failed": None, "non_finite": None}) == []
    assert headlines({"clients": {"alive": 3}}) == [], "as in the summaries of earlier versions"
    assert why_failed(CLIENTS) is None


def test_of_whom_the_accuracy_is() -> None:
    assert whom(CLIENTS | {"accuracy": {"clients": 3}}) == "3 clients"
    assert whom(CLIENTS | {"accuracy": {"clients": 1}}) == "1 of 3 clients"
    assert whom(CLIENTS | {"accuracy": {"mean": 0.5}}) == "clients"
