"""docs/papers.md: current, complete, and with commands that coterie takes."""

import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.build import papers
from docs.build.claims import VERDICTS, judge, overall, read_claim, read_side
from docs.build.papers import (
    DOCS,
    INDEX_PAGE,
    NUMBER,
    ROOT,
    STUDIES,
    cases,
    claims,
    command,
    digest,
    index_page,
    is_met,
    page,
    verdict,
)
from sim.scenario.reading import find_scenario
from sim.studies.cells import plan
from sim.studies.index import WAITING, IndexedCell, SweepHead, SweepIndex

ROWS = {"CoBo": 27, "MAPL": 27, "SCooL": 29, "Learning to Collaborate": 20, "FedeRiCo": 14}


def rows() -> list[dict[str, Any]]:
    return [row for paper in papers.papers().values() for row in paper["rows"]]


def test_the_page_is_current_and_has_every_row() -> None:
    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    assert text == page(), "run `make papers`"
    assert INDEX_PAGE.read_text(encoding="utf-8") == index_page(), "run `make papers`"
    found = {name: len(paper["rows"]) for name, paper in papers.papers().items()}
    assert found == ROWS | {"Baselines of the papers": 11} and sum(found.values()) == 128
    for name, paper in papers.papers().items():
        assert f"## {name}\n" in text and (DOCS / "fidelity" / paper["page"]).is_file()


def test_a_row_has_a_result_or_says_what_it_would_take() -> None:
    for row in rows():
        assert ("study" in row) + ("agrees" in row) + ("needs" in row) == 1, row["what"]
        assert "needs" in row or (command(row) and ("study" in row or row["ours"])), row["what"]
        if "study" in row:
            assert ("case" in row) != ("cases" in row) and {*cases(row)} <= names(row["study"]), row["what"]


def test_a_verdict_is_one_of_three_words_and_computed_from_claims_about_cases_of_the_study() -> None:
    for row in rows():
        assert verdict(row) == "-" if "needs" in row else verdict(row) in VERDICTS, row["what"]
        assert row.get("agrees", "yes") in VERDICTS and ("agrees" not in row or row["because"]), row["what"]
        assert ("study" in row) == bool(claims(row)), row["what"]
        for claim in claims(row).values():
            left, right = (read_side(side, "")[0] for side in (claim.left, claim.right))
            assert left in names(row["study"]), row["what"]
            assert right in names(row["study"]) or NUMBER.fullmatch(right), row["what"]


def names(study: str) -> set[str]:
    contents = tomllib.loads((STUDIES / f"{study}.toml").read_text(encoding="utf-8"))
    return {case["name"] for case in contents["sweep"]["case"]}


def test_the_counts_of_the_page_are_those_of_its_rows() -> None:
    words = [verdict(row) for row in rows()]
    numbers = " | ".join(str(words.count(word)) for word in (*VERDICTS, "-"))
    assert f"| all | {len(words)} | {numbers} |" in page()


@pytest.mark.parametrize(
    ("claim", "right", "expected"),
    [
        ("a > b", (0.6, 0.6, 0.6), "yes"),
        ("a < b", (0.6, 0.6, 0.6), "no"),
        ("a > b", (0.6, 0.6, 0.75), "in part"),  # the mean agrees, one seed does not
        ("a > b", (0.69, 0.6, 0.1), "yes"),  # wide interval, all three seeds agree
        ("a > b", (0.6, 0.7), "in part"),  # two seeds, and one is a tie
        ("a > b", (0.6,), "in part"),  # one seed has no interval
        ("a > b", (0.7, 0.7, 0.7), "no"),
        ("a = b within 0.05", (0.8, 0.6, 0.72), "yes"),
        ("a = b within 0.05", (0.8, 0.8, 0.8), "no"),
        ("a = b within 0.1", (0.8, 0.8, 0.8), "yes"),  # 0.8 - 0.7 > 0.1 in floating point
        ("a = 1.0 within 0.05", (1.0, 1.0, 1.0), "no"),
    ],
)
def test_a_claim_is_judged_by_its_paired_seeds(claim: str, right: tuple[float, ...], expected: str) -> None:
    left = dict.fromkeys((1, 2, 3, 4), 0.7)  # seed 4 has no pair
    assert judge(read_claim(claim), left, dict(enumerate(right, start=1))) == expected


def test_claims_that_cannot_be_judged_name_their_form() -> None:
    for text in ("a", "a > ", "a = b", "a > b within 0.1", "a >= b"):
        with pytest.raises(ValueError, match="write 'A > B'"):
            read_claim(text)
    with pytest.raises(ValueError, match="no seed in common"):
        judge(read_claim("a > b"), {1: 0.5}, {2: 0.4})
    assert read_claim("graph.edge_recall: CoBo, x < MAPL+") == (
        "graph.edge_recall",
        "CoBo, x",
        "<",
        "MAPL+",
        None,
    )
    assert read_side("SPO @ accuracy_of_full", "accuracy") == ("SPO", "accuracy_of_full")
    assert read_side("SPO", "accuracy") == ("SPO", "accuracy")
    assert overall(["yes", "yes"]) == "yes" and overall(["no"]) == "no"
    assert overall(["in part", "no"]) == overall(["yes", "no"]) == overall(["yes", "in part"]) == "in part"


@pytest.mark.long
@pytest.mark.parametrize("words", sorted({command(row) for row in rows()} - {""}))
def test_commands_are_ones_that_coterie_takes(words: str) -> None:
    program, verb, *rest = shlex.split(words)
    if program == "python":
        assert not rest and (ROOT / verb).is_file()
        return
    scenario, *options = rest
    assert program == "coterie" and verb in ("run", "sweep", "check") and find_scenario(scenario).is_file()
    full = "--full" in options
    options = [option for option in options if option != "--full"]
    given: dict[str, list[str]] = {"--set": [], "--unset": [], "--only": [], "--seeds": []}
    for flag, value in zip(options[::2], options[1::2], strict=True):
        given[flag].append(value)
    assert plan(scenario, given["--set"], unset=given["--unset"], only=given["--only"], full=full).cells


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(papers, "KEPT", tmp_path)
    papers._table.cache_clear()
    yield tmp_path
    papers._table.cache_clear()


def test_what_is_below_local_is_untuned_and_what_ran_before_a_change_is_old(results: Path) -> None:
    text = "case,seed,metric,value\nlocal,1,accuracy,0.7\nlocal,2,accuracy,0.8\nDitto,1,accuracy,0.6\n"
    ditto = {
        "what": "x",
        "study": "cobo_table2",
        "case": "Ditto",
        "claims": ["Ditto > local"],
        "because": "weak",
    }
    assert not is_met(ditto) and verdict(ditto) == "-" and "yet to run" in papers._why(ditto, "local")
    papers._table.cache_clear()
    current = results / f"cobo_table2-{digest('cobo_table2')}.csv"
    current.write_text(text, encoding="utf-8")
    assert is_met(ditto) and verdict(ditto) == "no"
    assert papers._why(ditto, "local") == "*untuned*; weak; no: `Ditto > local`"
    local = ditto | {"case": "local"}
    assert papers._ours(ditto) == "60.0 (1 seed)" and papers._ours(local) == "75.0 ± 63.5 (2 seeds)"
    assert papers._why(local, "local") == "weak; no: `Ditto > local`"
    both = {"what": "x", "study": "cobo_table2", "cases": ["local", "Ditto"], "claims": ["Ditto < local"]}
    assert papers._ours(both) == "local: 75.0 ± 63.5 (2 seeds); Ditto: 60.0 (1 seed)"
    assert papers._why(both, "local") == "in part: `Ditto < local`"
    assert not is_met(both | {"cases": ["local", "FC"]}) and not is_met(both | {"claims": ["FC < local"]})
    papers._table.cache_clear()
    current.rename(results / "cobo_table2-00000000.csv")
    assert papers._why(local, "local") == "*old*; weak; no: `Ditto > local`"


def test_a_verdict_follows_the_stored_results(results: Path) -> None:
    stored = results / f"cobo_table2-{digest('cobo_table2')}.csv"
    row = {"what": "x", "study": "cobo_table2", "case": "FC", "claims": ["FC < local", "FC = 0.5 within 0.1"]}

    def verdict_with(*values: float) -> str:
        lines = [
            f"FC,{seed},accuracy,{value}\nlocal,{seed},accuracy,0.7" for seed, value in enumerate(values)
        ]
        stored.write_text("\n".join(["case,seed,metric,value", *lines, ""]), encoding="utf-8")
        papers._table.cache_clear()
        return verdict(row)

    assert verdict_with(0.5, 0.6, 0.55) == "yes"
    assert verdict_with(0.8, 0.9, 0.85) == "no"
    assert verdict_with(0.65, 0.66, 0.69) == "in part"  # below local, but not near 0.5
    assert verdict_with(0.5, 0.71, 0.55) == "in part"
    row["differs"] = "another data set"
    assert verdict_with(0.5, 0.6, 0.55) == "in part" and "experiment: another data set" in papers._why(
        row, None
    )
    assert verdict_with(0.8, 0.9, 0.85) == "no"


def test_a_reversed_order_changes_the_verdict_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table = papers._table
    for row in rows():
        monkeypatch.setattr(papers, "_table", table)
        orders = [claim for claim in claims(row).values() if claim.margin is None]
        if not orders or verdict(row) != "yes":
            continue
        stored, is_current = table(row["study"])
        claim, metric = orders[0], orders[0].metric or papers._metric(row)
        reverse = {"value": "-1000" if claim.sign == ">" else "1000"}
        changed = tuple(
            each | reverse if (each["case"], each["metric"]) == read_side(claim.left, metric) else each
            for each in stored
        )
        monkeypatch.setattr(papers, "_table", lambda study, found=(changed, is_current): found)
        assert verdict(row) != "yes", row["what"]


@pytest.mark.long
def test_a_study_that_still_runs_is_left_as_it_is(results: Path, tmp_path: Path) -> None:
    planned = plan(STUDIES / "cobo_table1.toml")
    cells = [
        IndexedCell(values=cell.values, seed=cell.seed, state=WAITING, directory=None, error=None)
        for cell in planned.cells
    ]
    head = {key: getattr(planned, key) for key in SweepHead.model_fields}
    index = SweepIndex(**head, cells=tuple(cells))
    folder = tmp_path / "runs" / f"{planned.name}-sweep-00000000"
    folder.mkdir(parents=True)
    index.write(folder)
    papers.copy_results(tmp_path / "runs")
    assert not [*results.glob("*.csv")]


def test_settings_that_tuning_selected_are_marked() -> None:
    row = {"what": "x", "study": "l2c_table3_tuned", "case": "pFedMe", "agrees": "no"}
    assert papers._marks(row, "local") == ["*tuned*"]
    assert papers._marks(row | {"study": "l2c_table3"}, "local") == ["*untuned*"]
