"""Why the worst client is the worst: in worlds where that is known, the page's first row has the reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.results import text
from sim.results.report.blocks import Paragraph, Table
from sim.results.report.page import write_report
from sim.results.report.tables import Reason, _candidate_reasons, worst_client
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
SMALL: dict[str, Any] = dict(
    evaluations=5, steps=20, churn=False, devices=False, staleness=False, graph=False
)
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
        (2, "time up", "4\N{NO-BREAK SPACE}s", churn("crash", 2, "4 s"), ["run.evaluate_every=2 s"]),
        (2, "time since its last join without state", "3\N{NO-BREAK SPACE}s", AWAY, []),
        (
            2,
            "share of messages to the client that were lost",
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
            "other clients in its true cluster",
            "0",
            "",
            [
                "data.partition={kind='permuted-clusters', sizes=[1, 5], samples_per_client=60}",
                "protocol.name=dpsgd",
            ],
        ),
        (
            5,
            "messages from its true cluster",
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
    assert lead.text.startswith(f"client-{worst} has the worst result: test accuracy ")
    assert lead.text.endswith(f"The main reason: {reason}.")
    first = table.rows[0]
    assert first[0] == reason
    assert first[1].shown == shown  # type: ignore[union-attr]
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "Reasons for the worst result" in page and lead.text in page


def test_where_nobody_is_apart_nothing_is_blamed(tmp_path: Path) -> None:
    result = run(tmp_path, DIGITS, *LONGER)
    assert result.directory is not None
    _, lead, _ = worst_client(RunView(RunDirectory.load(result.directory)))
    assert isinstance(lead, Paragraph)
    assert lead.text.endswith(" No single quantity stands out. The largest differences are:")


def test_a_budget_that_was_spent_early_is_a_reason(tmp_path: Path) -> None:
    run_of = write_run(tmp_path, **SMALL)
    spent: list[float | None] = [500.0] * 12
    worst = RunView(run_of).worst_first[0]
    spent[worst] = 30.0
    run_of.write_summary({**run_of.summary(), "budget": {"time": 30, "finished": 12, "spent_seconds": spent}})
    steps = [row[0] for row in worst_client(RunView(run_of))[2].rows]  # type: ignore[attr-defined]
    assert steps[0] == "time until its budget was exhausted"
    assert "The main reason: time until its budget was exhausted." in write_report(run_of).read_text(
        encoding="utf-8"
    )


ALIKE = DIGITS.replace("test_samples = 10\n", "")  # tested on the same samples
SERVED = ["protocol.name=fedavg", "protocol.local_steps=2", "protocol.broadcast=all"]
CONTRADICTING = [
    "data.partition={kind='permuted-clusters', sizes=[2, 4], samples_per_client=60}",
    *SERVED,
]


def blocks_of(view: RunView) -> tuple[str, Table]:
    _, lead, table = worst_client(view)
    assert isinstance(lead, Paragraph) and isinstance(table, Table)
    return lead.text, table


def shown(table: Table) -> dict[str, list[str]]:
    return {str(row[0]): [cell.shown for cell in row[1:]] for row in table.rows}  # type: ignore[union-attr]


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_those_that_fared_worst_alike_are_compared_as_one(tmp_path: Path, slow: int) -> None:
    device = f"devices.override=[{{clients=[{slow}], slowdown=4}}]"
    result = run(tmp_path, ALIKE, *LONGER, *CONTRADICTING, device)
    assert result.directory is not None
    view = RunView(RunDirectory.load(result.directory))
    last = view.last("accuracy")
    assert last is not None and last[0] == last[1] < last[2:].min()
    lead, table = blocks_of(view)
    reason = "test accuracy of other clients in its true cluster"
    assert lead.startswith("clients 0 and 1 have the same worst result: test accuracy ")
    assert lead.endswith(f"The main reason: {reason}.")
    assert table.heads == ["", "clients 0 and 1", "median of other clients"]
    assert shown(table)[reason] == [f"{100 * value:.1f}%" for value in (last[0], np.median(last[2:]))]
    assert not any("messages received" in row for row in shown(table))  # all are of the server


def test_where_all_fared_alike_nobody_is_the_worst(tmp_path: Path) -> None:
    result = run(tmp_path, ALIKE, "data.partition={kind='iid'}", *SERVED)
    assert result.directory is not None
    view = RunView(RunDirectory.load(result.directory))
    assert len(set(view.at_the_end.tolist())) == 1 and worst_client(view) == []


def test_whom_nobody_speaks_to_has_received_little(tmp_path: Path) -> None:
    Path(tmp_path / "links.txt").write_text("0 1\n1 0\n1 2\n2 1\n2 3\n3 4\n4 3\n3 2\n4 2\n2 4\n5 0\n0 5\n")
    options = [
        f"clients.topology={{kind='edge-list', file='{tmp_path / 'links.txt'}'}}",
        "protocol.name=gossip",
        "data.partition={kind='iid', samples_per_client=60}",
    ]
    result = run(tmp_path, DIGITS, *LONGER, *options)
    assert result.directory is not None
    view = RunView(RunDirectory.load(result.directory))
    rows = {row.what: row.values for row in _candidate_reasons(view, view.at_the_end)}
    events = RunDirectory.load(result.directory).scan("events")
    arrived = events.filter(event="delivered").group_by("peer").len().collect()
    counts = dict(arrived.iter_rows())
    assert rows["messages received"].tolist() == [counts.get(name, 0) for name in view.clients]


def test_messages_of_the_membership_are_no_reason(tmp_path: Path) -> None:
    result = run(tmp_path, DIGITS + AWAY, *LONGER)  # `local`: only hellos are sent
    assert result.directory is not None and result.summary["messages"]["sent"]
    assert result.summary["membership"]["types"] == ["Hello"]
    _, table = blocks_of(RunView(RunDirectory.load(result.directory)))
    assert not any("messages" in row for row in shown(table))


def test_the_number_of_classes_is_the_effective_one(tmp_path: Path) -> None:
    run_of = write_run(tmp_path, **SMALL)
    counts = [[30, 30, 30, 30]] * 12
    worst = RunView(run_of).worst_first[0]
    counts[worst] = [117, 1, 1, 1]
    run_of.write_summary({**run_of.summary(), "class_counts": counts})
    lead, table = blocks_of(RunView(run_of))
    assert shown(table)["effective number of classes"] == ["1.155", "4"]
    assert lead.endswith("The main reason: effective number of classes.")


def judged(values: list[float], **options: Any) -> float:
    """How bad a quantity is of client 0, which is at 20% where the others are at 60%."""
    worst = np.arange(len(values)) == 0
    return Reason("x", np.array(values), text.share, **options).badness(worst, ~worst, 0.4)


def test_what_explains_half_of_the_gap_is_a_reason_however_common() -> None:
    common = [0.1, 0.9, 0.1, 0.3, 0.1, 0.9, 0.9]
    assert judged(common) < 1
    assert judged([0.2, 0.39, 0.4, 0.1, 0.9], in_unit=True) < 1 <= judged(common, in_unit=True)


def test_what_explains_less_than_a_tenth_is_no_reason_however_rare() -> None:
    rare = [0.0, 0.03, 0.03, 0.03, 0.03]
    assert judged(rare) >= 1
    assert judged(rare, in_unit=True) < 0.2


def test_who_is_worst_at_one_instant_only_is_told_as_such(tmp_path: Path) -> None:
    run_of = write_run(tmp_path, **SMALL, clusters=None, alone=False)
    view = RunView(run_of)
    assert view.measure is not None
    view.measure[1].values[-1, 7] = 0.05
    assert view.worst_first[0] == 7
    lead, table = blocks_of(view)
    assert lead.startswith("client-7 has the worst result: test accuracy 5.0%, compared with a median of ")
    assert lead.endswith("The main reason: test accuracy lost since its best evaluation.")
    its, others = shown(table)["test accuracy lost since its best evaluation"]
    assert float(its[:-1]) > 50 > 5 > float(others[:-1])
