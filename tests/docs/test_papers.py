"""docs/papers.md: current, complete, and with commands that coterie takes."""

import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.build import papers
from docs.build.papers import DOCS, ROOT, STUDIES, cases, command, digest, is_met, page
from sim.scenario.reading import find_scenario
from sim.studies.cells import plan
from sim.studies.index import WAITING, IndexedCell, SweepHead, SweepIndex

ROWS = {"CoBo": 27, "MAPL": 27, "SCooL": 29, "Learning to Collaborate": 20, "FedeRiCo": 14}


def rows() -> list[dict[str, Any]]:
    return [row for paper in papers.papers().values() for row in paper["rows"]]


def test_the_page_is_current_and_has_every_row() -> None:
    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    assert text == page(), "run `make papers`"
    found = {name: len(paper["rows"]) for name, paper in papers.papers().items()}
    assert found == ROWS | {"Baselines of the papers": 11} and sum(found.values()) == 128
    for name, paper in papers.papers().items():
        assert f"## {name}\n" in text and (DOCS / "fidelity" / paper["page"]).is_file()


def test_a_row_has_a_result_or_says_what_it_would_take() -> None:
    for row in rows():
        assert ("agrees" in row) != ("needs" in row), row["what"]
        assert "agrees" not in row or (command(row) and ("study" in row or row["ours"])), row["what"]
        if "study" in row:
            contents = tomllib.loads((STUDIES / f"{row['study']}.toml").read_text(encoding="utf-8"))
            names = [case["name"] for case in contents["sweep"]["case"]]
            assert ("case" in row) != ("cases" in row) and {*cases(row)} <= {*names}, row["what"]


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
    given: dict[str, list[str]] = {"--set": [], "--unset": [], "--only": []}
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
    ditto = {"what": "x", "study": "cobo_table2", "case": "Ditto", "agrees": "no"}
    assert not is_met(ditto) and "yet to run" in papers._verdict(ditto, "local")
    papers._table.cache_clear()
    current = results / f"cobo_table2-{digest('cobo_table2')}.csv"
    current.write_text(text, encoding="utf-8")
    assert papers._verdict(ditto, "local") == "no; untuned" and is_met(ditto)
    local = ditto | {"case": "local"}
    assert papers._ours(ditto) == "60.0 (1 seed)" and papers._ours(local) == "75.0 ± 63.5 (2 seeds)"
    assert papers._verdict(local, "local") == "no"
    both = {"what": "x", "study": "cobo_table2", "cases": ["local", "Ditto"], "agrees": "yes"}
    assert papers._ours(both) == "local: 75.0 ± 63.5 (2 seeds); Ditto: 60.0 (1 seed)"
    assert papers._verdict(both, "local") == "yes" and not is_met(both | {"cases": ["local", "FC"]})
    papers._table.cache_clear()
    current.rename(results / "cobo_table2-00000000.csv")
    assert papers._verdict(local, "local") == "no; old"


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
