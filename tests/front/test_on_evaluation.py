"""What a function is told of each evaluation: the record, in order, and nothing of it alters the run."""

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie import Evaluation, Run, UserError
from tests.front.test_runs import CONTENTS
from tests.front.test_runs import here as here


def told_of(**more: Any) -> tuple[Run, list[Evaluation]]:
    told: list[Evaluation] = []
    return coterie.run(CONTENTS, quiet=True, on_evaluation=told.append, **more), told


def only_results() -> Run:
    [folder] = Path("runs").iterdir()
    return coterie.load(folder)


def test_each_evaluation_is_told_as_the_results_have_it(here: Path) -> None:
    run, told = told_of()
    assert told == run.evaluations
    assert [each.time for each in told] == [0.0, 4.0, 8.0]
    last = told[-1]
    assert set(last.measured["distance"]) == {f"client-{number}" for number in range(4)}
    assert sum(last.measured["training_steps"].values()) == last.totals["steps_taken"] > 0
    assert last.totals["bytes_sent"] == run.summary["messages"]["bytes"]
    rows = {(name, who): value for name, by in last.measured.items() for who, value in by.items()}
    rows |= {(name, "all"): value for name, value in last.totals.items()}
    table = run.metrics.filter(time=8.0)
    assert rows == dict(zip(zip(table["name"], table["actor"], strict=True), table["value"], strict=True))


def test_what_a_run_finds_alone_is_told_at_its_end(here: Path) -> None:
    run, told = told_of(set={"run.compare_alone": True})
    assert "distance_alone" in told[-1].measured and told == run.evaluations


def test_a_run_that_ends_at_an_evaluation_tells_it_again_when_all_is_known(here: Path) -> None:
    run, told = told_of(set={"run.converged": {"patience": "4 s", "tolerance": 1e6}})
    assert told[-2].time == told[-1].time == run.evaluations[-1].time
    assert told[-1] == run.evaluations[-1] and "training_steps" not in told[-2].measured


def test_scalars_are_of_finite_values() -> None:
    rows = [("client-0", "loss", 1.0), ("client-1", "loss", 4.0), ("client-2", "loss", np.nan)]
    evaluation = Evaluation.of(2.0, [*rows, ("client-0", "accuracy", np.nan), ("all", "alive", 3.0)])
    assert evaluation.scalars() == {"loss/mean": 2.5, "loss/min": 1.0, "loss/max": 4.0, "all/alive": 3.0}


def test_whatever_the_function_does_the_run_is_the_same(here: Path) -> None:
    def meddles(evaluation: Evaluation) -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        evaluation.totals.clear()  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        asyncio.run(asyncio.sleep(0))

    quiet = coterie.run(CONTENTS, quiet=True, out="quiet")
    told = coterie.run(CONTENTS, quiet=True, on_evaluation=meddles)
    assert told.summary["trace_hash"] == quiet.summary["trace_hash"]
    assert told.metrics.equals(quiet.metrics)


class Stop(Exception):
    """What a search raises where a run is not worth its time."""


@pytest.mark.parametrize("error", [Stop("enough"), SystemExit(3)])
def test_what_the_function_raises_ends_the_run_whose_results_stay(here: Path, error: BaseException) -> None:
    def stops(evaluation: Evaluation) -> None:
        if evaluation.time == 4.0:
            raise error

    with pytest.raises(type(error)) as raised:
        coterie.run(CONTENTS, quiet=True, on_evaluation=stops)
    assert raised.value is error
    run = only_results()
    assert error.__notes__ == [f"the results so far are in {run.directory}"]
    assert run.summary["finished"] is False and run.summary["virtual_seconds"] == 4.0
    assert run.summary["ended_by"].startswith(f"on_evaluation raised {type(error).__name__}")
    assert set(run.metrics["time"]) == {0.0, 4.0}


def test_what_it_raises_at_the_end_costs_no_results(here: Path) -> None:
    def stops(evaluation: Evaluation) -> None:
        if evaluation.time == 8.0:
            raise Stop

    with pytest.raises(Stop) as raised:
        coterie.run(CONTENTS, quiet=True, on_evaluation=stops)
    run = only_results()
    assert run.summary["finished"] is True and raised.value.__notes__[0].endswith(str(run.directory))


@pytest.mark.long
def test_what_it_raises_before_anything_was_measured_leaves_nothing(here: Path) -> None:
    def stops(evaluation: Evaluation) -> None:
        raise Stop

    with pytest.raises(Stop):
        coterie.run(CONTENTS, quiet=True, on_evaluation=stops)
    assert list((here / "runs").iterdir()) == []


def test_a_run_that_goes_on_tells_all_from_its_beginning(here: Path) -> None:
    run, first = told_of()
    told: list[Evaluation] = []
    longer = coterie.resume(run, until=12, quiet=True, on_evaluation=told.append)
    assert told == longer.evaluations and [each.time for each in told] == [0.0, 4.0, 8.0, 12.0]
    assert told[:2] == first[:2]
    told.clear()
    fork = coterie.fork(run, 5.0, {"network.loss": 0.5}, quiet=True, on_evaluation=told.append)
    assert told == fork.evaluations


async def waits(evaluation: Evaluation) -> None:
    """Which nobody would await."""


@pytest.mark.parametrize("function", [3, waits])
def test_what_is_no_function_is_refused(here: Path, function: Any) -> None:
    with pytest.raises(UserError, match=r"on_evaluation = .*: must be a function that takes an Evaluation"):
        coterie.run(CONTENTS, quiet=True, on_evaluation=function)
    assert not (here / "runs").exists()
