"""Why the worst client is the worst: in worlds where that is known, the page's first row has the reason."""

from pathlib import Path

import pytest

from sim.results.report.blocks import Paragraph, Table
from sim.results.report.page import write_report
from sim.results.report.tables import worst_client
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from tests.protocols.worlds import DIGITS, churn
from tests.results.synthetic import write_run
from tests.simulation.worlds import run

FEW = """
def few(rng, labels, clients):
    order = rng.permutation(len(labels))
    return [order[60 * place : 60 * place + (4 if place == 2 else 60)] for place in range(clients)]
"""
LINKS = "0 1\n0 2\n1 2\n3 4\n5 0\n5 1\n"  # clusters are 0-2 and 3-5: client 5 is with the wrong ones
AWAY = churn("crash", 2, "2 s") + churn("rejoin", 2, "17 s", "fresh")
LONGER = ("run.duration=20 s", "data.partition.samples_per_client=60", "run.compare_alone=true")


@pytest.mark.parametrize(
    ("worst", "reason", "shown", "more", "options"),
    [
        (
            2,
            "device time per step",
            "10\N{NO-BREAK SPACE}s",
            "",
            ["devices.override=[{clients=[2], slowdown=20}]"],
        ),
        (2, "training samples", "4", "", ["data.partition={kind='few.py:few'}", "training.batch_size=2"]),
        (2, "time up", "5\N{NO-BREAK SPACE}s", AWAY, []),
        (
            2,
            "messages to it that were lost",
            "92.3%",
            "",
            [
                "network.partition=[{start='1 s', end='20 s', groups=[[2], [0, 1, 3, 4, 5]]}]",
                "protocol.name=gossip",
                "data.partition={kind='iid', samples_per_client=60}",
            ],
        ),
        (
            0,
            "others in its true cluster",
            "0",
            "",
            [
                "data.partition={kind='permuted-clusters', sizes=[1, 5], samples_per_client=60}",
                "protocol.name=dpsgd",
            ],
        ),
        (
            5,
            "messages to it from its true cluster",
            "0.0%",
            "",
            ["clients.topology={kind='edge-list', file='links.txt'}", "protocol.name=dpsgd"],
        ),
    ],
)
def test_the_known_reason_comes_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worst: int,
    reason: str,
    shown: str,
    more: str,
    options: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few.py").write_text(FEW, encoding="utf-8")
    Path("links.txt").write_text(LINKS, encoding="utf-8")
    result = run(tmp_path, DIGITS + more, *LONGER, *options)
    assert result.directory is not None
    view = RunView(RunDirectory.load(result.directory))
    assert view.worst_first[0] == worst
    _, lead, table = worst_client(view)
    assert isinstance(lead, Paragraph) and isinstance(table, Table)
    assert lead.text.startswith(f"client-{worst} fared worst: test accuracy ")
    assert lead.text.endswith(f"Above all: {reason}.")
    first = table.rows[0]
    assert first[0] == reason
    assert first[1].shown == shown  # type: ignore[union-attr]
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "Why the worst client is the worst" in page and lead.text in page


def test_where_nobody_is_apart_nothing_is_blamed(tmp_path: Path) -> None:
    result = run(tmp_path, DIGITS, *LONGER)
    assert result.directory is not None
    _, lead, _ = worst_client(RunView(RunDirectory.load(result.directory)))
    assert isinstance(lead, Paragraph) and lead.text.endswith("Nothing that is recorded sets it apart.")


def test_a_budget_that_was_spent_early_is_a_reason(tmp_path: Path) -> None:
    run_of = write_run(tmp_path, evaluations=5, steps=20, churn=False, devices=False, staleness=False)
    spent: list[float | None] = [500.0] * 12
    worst = RunView(run_of).worst_first[0]
    spent[worst] = 30.0
    run_of.write_summary({**run_of.summary(), "budget": {"time": 30, "finished": 12, "spent_seconds": spent}})
    steps = [row[0] for row in worst_client(RunView(run_of))[2].rows]  # type: ignore[attr-defined]
    assert steps[0] == "time until its budget was spent"
    assert "Above all: time until its budget was spent." in write_report(run_of).read_text(encoding="utf-8")
