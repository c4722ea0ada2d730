"""Runs that went wrong say so: in the table, the summary, the report and the exit status."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results.store.run_directory import RunDirectory
from tests.protocols.worlds import ran as simulated
from tests.simulation.worlds import DIGITS, QUADRATIC, write

pytestmark = pytest.mark.report

BEGIN = """\
from protocols.decentralized.local import Local

class Own(Local):
    async def step(self):
        await super().step()
"""
FIVE_FAIL = (
    BEGIN
    + """\
        if self.name != "client-4" and self.now >= 1:
            raise TypeError("no good" if self.name != "client-2" else "worse")
"""
)
FAILS_ONCE = (
    BEGIN
    + """\
        if self.name == "client-2" and 1 <= self.now < 1.1:
            raise ValueError("only once")
"""
)
DIVERGES = (
    BEGIN
    + """\
        if self.name in {who} and self.now > 2.2:
            self.params = self.params * {factor}
"""
)


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., tuple[Result, dict[str, Any], str]]:
    """Runs a protocol in a world; gives the command's result, the summary and the report."""

    def run(text: str, protocol: str, *options: str) -> tuple[Result, dict[str, Any], str]:
        write(tmp_path, protocol, "own.py")
        command = ["run", str(write(tmp_path, text)), "--out", str(tmp_path / "runs"), "--quiet"]
        chosen = ["--set", "protocol={name='own.py:Own'}", *options]
        result = CliRunner().invoke(app, [*command, *chosen], env={"COLUMNS": "200"})
        [path] = (tmp_path / "runs").iterdir()
        return result, RunDirectory.load(path).summary(), (path / "report.html").read_text(encoding="utf-8")

    return run


def test_failed_clients_are_the_headline_and_fail_the_run(ran: Callable[..., Any]) -> None:
    result, summary, report = ran(DIGITS, FIVE_FAIL)
    first = summary["failed"]["first"]
    assert summary["failed"]["stopped"][0] == first["actor"]
    assert sorted(summary["failed"]["stopped"]) == [f"client-{k}" for k in (0, 1, 2, 3, 5)]
    assert (summary["failed"]["errors"], summary["failed"]["restarts"]) == (2, 0)
    line = f"5 of 6 clients failed: {first['error']}, and other errors (first: {first['actor']} at "
    assert result.exit_code == 1
    assert line in result.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert line in result.stderr
    assert line in report
    # The accuracy is not shown as if it were everybody's.
    assert summary["accuracy"]["clients"] == 1
    assert "(1 of 6 clients)" in result.stdout
    assert "over 1 of 6 clients" in report
    assert "5 failed" in result.stdout and "5 failed" in report


@pytest.mark.parametrize(("most", "code"), [(1, 0), (0, 1)])
def test_a_failure_is_asked_for_as_far_as_the_scenario_restarts(
    ran: Callable[..., Any], most: int, code: int
) -> None:
    restarts = f"supervision={{on_failure='restart', max_restarts={most}}}"
    result, summary, report = ran(QUADRATIC, FAILS_ONCE, "--set", restarts)
    assert result.exit_code == code
    assert summary["failed"]["stopped"] == ([] if most else ["client-2"])
    assert ("1 failure was followed by a restart" in result.stdout) is bool(most)
    assert ("1 failure was followed by a restart" in report) is bool(most)
    assert ("1 of 6 clients failed: ValueError: only once (first: client-2 at" in result.stderr) is not most


@pytest.mark.long
@pytest.mark.parametrize(("text", "end_s", "seen_s"), [(QUADRATIC, 10.0, 5.0), (DIGITS, 4.0, 4.0)])
@pytest.mark.parametrize("factor", ["float('nan')", "float('inf')"])
def test_the_first_model_that_is_not_finite_is_named(
    ran: Callable[..., Any], text: str, end_s: float, seen_s: float, factor: str
) -> None:
    result, summary, report = ran(text, DIVERGES.format(who=["client-3", "client-5"], factor=factor))
    who = ["client-3", "client-5"]
    first = {"client": "client-3", "seconds": seen_s, "found": "parameters", "at_end": who}
    assert (summary["virtual_seconds"], summary["non_finite"]) == (end_s, first)
    assert result.exit_code == 0, "what the others learned is a result"
    line = (
        f"diverged: 2 of 6 models are not finite at the end (first: parameters of client-3 at {seen_s:g} s)"
    )
    assert line in result.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert line[1:] in report.replace("\N{NO-BREAK SPACE}", " ")
    assert report.count("<td class=number>not finite</td>") == 2, "in the table of the clients"
    measured = summary["accuracy"] if text is DIGITS else summary["distance"]
    assert measured["clients"] == 4
    assert measured["mean"] is not None


@pytest.mark.long
def test_no_accuracy_of_models_that_are_no_numbers(ran: Callable[..., Any]) -> None:
    everybody = DIVERGES.format(who=[f"client-{k}" for k in range(6)], factor="float('nan')")
    result, summary, report = ran(DIGITS, everybody)
    assert result.exit_code == 1
    assert "the run failed: diverged: 6 of 6 models are not finite at the end" in result.stderr
    assert summary["accuracy"] == {"clients": 0, "mean": None, "std": None, "worst_decile": None}
    assert "\N{BOX DRAWINGS LIGHT VERTICAL} accuracy" not in result.stdout
    assert "Mean accuracy" not in report


@pytest.mark.long
def test_a_run_in_which_nothing_went_wrong(ran: Callable[..., Any]) -> None:
    result, summary, report = ran(QUADRATIC, BEGIN)
    assert (result.exit_code, summary["failed"], summary["non_finite"]) == (0, None, None)
    assert "went wrong" not in result.stdout
    assert 'class="warning"' not in report


@pytest.mark.long
def test_newcomers_of_the_last_moment_are_counted_apart(ran: Callable[..., Any]) -> None:
    """Everybody's accuracy, and that of those that are up for long enough."""
    late = "churn=[{at='1 s', event='join', clients=[4]}, {at='3.9 s', event='join', clients=[5]}]"
    _, summary, report = ran(DIGITS, BEGIN, "--set", late, "--set", "run.settled_iterations=10")
    everybody, settled = summary["accuracy"], summary["settled"]
    assert (everybody["clients"], settled["clients"], settled["iterations"]) == (6, 5, 10)
    assert settled["mean"] > everybody["mean"]
    assert settled["worst_decile"] > everybody["worst_decile"]
    assert "5 clients with at least 10 iterations" in report
    assert "Of the newcomers, 1 of 2 reached 90%" in report
    assert "accuracy, 1 still behind; " in report


@pytest.mark.long
def test_nobody_settles_where_nobody_comes(ran: Callable[..., Any]) -> None:
    _, summary, report = ran(DIGITS, BEGIN, "--set", "churn=[{at='1 s', event='crash', clients=[4]}]")
    assert summary["settled"] is None
    assert "of settled clients" not in report


FEDAVG = "from protocols.federated.fedavg import FedAvg\n\nclass Own(FedAvg):\n    pass\n"
DPSGD = "from protocols.decentralized.dpsgd import DPSGD\n\nclass Own(DPSGD):\n    pass\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        (FEDAVG, ["protocol.patience=1 s", "protocol.local_steps=10"]),  # a round's training takes 1.25 s
        (DPSGD, ["protocol.patience=10 ms", "network.latency=1 s"]),
    ],
)
def test_rounds_that_bring_nothing_are_the_headline(
    ran: Callable[..., Any], protocol: str, more: list[str]
) -> None:
    result, summary, report = ran(QUADRATIC, protocol, *[word for each in more for word in ("--set", each)])
    waits = summary["rounds"]["waits"]
    assert summary["rounds"]["in_vain"] == waits > 0
    line = f"{waits} of {waits} waits for a round's messages ended without a message"
    assert line in result.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert line.replace("'", "&#39;") in report
    assert result.exit_code == 0
    assert "a method must assign the trained model" not in result.stderr  # the method is not to blame


@pytest.mark.long
def test_rounds_that_bring_something_are_no_headline(ran: Callable[..., Any]) -> None:
    result, summary, _ = ran(QUADRATIC, FEDAVG, "--set", "protocol.local_steps=10")
    assert summary["rounds"]["waits"] > summary["rounds"]["in_vain"] == 0
    assert "in vain" not in result.stdout


@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_waits_of_all_lives_of_a_server_count(state: str) -> None:
    crash = f"server.crash=[{{at='4 s',back='4.5 s',state='{state}'}}]"
    with simulated(QUADRATIC, "protocol.name=fedavg", crash) as built:
        [server] = built.servers
        assert server.actor is not None
        of_both, in_vain = server.waits
        assert of_both >= 2 and in_vain == 0
        assert (server.actor._round_waits < of_both) == (state == "fresh")
