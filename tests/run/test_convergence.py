"""Early stopping: at the first evaluation at which nobody has become better for long enough."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.convergence import Plateau
from sim.core.rules import Convergence
from sim.results import outcome
from tests.simulation.worlds import DIGITS, QUADRATIC, run


def rule(patience: float, tolerance: float = 0.0) -> Convergence:
    return Convergence(patience=f"{patience} s", tolerance=tolerance)


def test_all_must_have_been_no_better_for_the_patience() -> None:
    plateau = Plateau(rule(2.0, 0.1), higher_is_better=True)
    looks = [
        (0.0, {"a": 0.1, "b": 0.1}),
        (1.0, {"a": 0.5, "b": 0.5}),
        (2.0, {"a": 0.55, "b": 0.7}),  # a is no better by more than 0.1
        (3.0, {"a": 0.4, "b": 0.7}),  # a has been for 2 s
        (3.9, {"a": 0.6, "b": 0.7}),
        (4.0, {"a": 0.6, "b": 0.75}),
        (4.5, {"a": 0.6, "c": 0.1}),  # one that comes begins now
        (6.5, {"a": 0.6, "c": 0.1}),
    ]
    assert [plateau.reached(time_s, measured) for time_s, measured in looks] == [
        False, False, False, False, False, True, False, True,
    ]  # fmt: skip


@given(values=st.lists(st.floats(0, 1), min_size=2, max_size=20), higher=st.booleans())
def test_against_a_look_at_all_that_was(values: list[float], higher: bool) -> None:
    plateau = Plateau(rule(3.0), higher_is_better=higher)
    signed = [value if higher else -value for value in values]
    for now in range(len(values)):
        since = signed.index(max(signed[: now + 1]))
        assert plateau.reached(float(now), {"a": values[now]}) is (now - since >= 3)


def test_numbers_that_are_none_are_no_better() -> None:
    plateau = Plateau(rule(1.0), higher_is_better=True)
    assert [plateau.reached(float(t), {"a": float("nan")}) for t in range(2)] == [False, True]


@pytest.mark.parametrize("duration", ["30 s", "3 s"])
@pytest.mark.parametrize("text", [DIGITS, QUADRATIC])
def test_a_run_ends_where_it_has_converged_and_says_so(tmp_path: Path, text: str, duration: str) -> None:
    """With a step size of nothing nobody gets better after the first look; the last one may tell so."""
    options = ("run.converged.patience=3 s", f"run.duration={duration}", "run.evaluate_every=1 s")
    result = run(tmp_path, text, *options, "training.learning_rate=1e-30", "protocol.name=local")
    assert result.summary["virtual_seconds"] == 3.0 == result.summary["converged_seconds"]
    assert outcome.main_problems(result.summary) == []
    assert outcome.convergence(result.summary) == "training had converged at 3\N{NO-BREAK SPACE}s"
    assert "training had converged at 3" in outcome.result_sentence(result.summary)
    assert result.summary["finished"] and outcome.why_failed(result.summary) is None


def test_a_run_that_goes_on_getting_better_has_its_time(tmp_path: Path) -> None:
    options = ("run.converged.patience=3 s", "run.converged.tolerance=0")
    result = run(tmp_path, QUADRATIC, *options, "run.evaluate_every=1 s", "training.learning_rate=0.001")
    assert result.summary["virtual_seconds"] == 10.0 and result.summary["converged_seconds"] is None


def test_who_began_with_no_number_gets_better_by_any() -> None:
    plateau = Plateau(rule(10.0), higher_is_better=False)
    losses = {0.0: float("nan"), 5.0: 3.0, 10.0: 2.0, 15.0: 1.0, 25.0: 1.0}
    assert [plateau.reached(t, {"a": loss}) for t, loss in losses.items()] == [False] * 4 + [True]
