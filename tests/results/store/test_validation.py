"""`coterie report` of results that are damaged: refused in words, and the old report stays as it was."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sim.results.report.page
from sim.cli.commands import app
from tests.results.synthetic import write_run

SMALL = {"clients": 6, "clusters": 2, "evaluations": 3, "steps": 4}
TABLES = ("metrics", "graph", "events", "intervals")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    run = write_run(tmp_path_factory.mktemp("whole"), **SMALL)
    run.write_report("old page")
    return run.finalise()


@pytest.fixture
def results(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "results")


def refused(results: Path) -> str:
    """What the command says; it refuses, and the report stays as it was."""
    before = sorted(path.name for path in results.iterdir())
    result = CliRunner().invoke(app, ["report", str(results)])
    assert result.exit_code == 2, (result.output, result.exception)
    assert "Traceback" not in result.output
    assert (results / "report.html").read_text() == "old page"
    assert sorted(path.name for path in results.iterdir()) == before
    return result.stderr


def test_whole_results_get_their_report(results):
    result = CliRunner().invoke(app, ["report", str(results)])
    assert (result.exit_code, result.stdout) == (0, f"{results / 'report.html'}\n")
    assert (results / "report.html").stat().st_size > 1_000_000


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "is damaged, or no Parquet table"),
        (lambda file: file.write_bytes(bytes(range(256)) * 20), "is damaged, or no Parquet table"),
        (lambda file: file.unlink(), "is missing; these results are not complete"),
    ],
    ids=["truncated", "junk", "missing"],
)
def test_damaged_tables(results, table: str, damage: Callable[[Path], object], said: str):
    file = results / f"{table}.parquet"
    damage(file)
    assert refused(results).startswith(f"{file} {said}")


@pytest.mark.parametrize("table", TABLES)
def test_a_changed_byte_anywhere_is_noticed(results, table):
    """In the middle of a page, where nothing but its checksum can tell."""
    file = results / f"{table}.parquet"
    content = bytearray(file.read_bytes())
    page = pq.read_metadata(file).row_group(0).column(0)
    end = (page.dictionary_page_offset or page.data_page_offset) + page.total_compressed_size
    content[end - 1] ^= 0x40
    file.write_bytes(content)
    assert f"{file} is damaged" in refused(results)


def test_swapped_tables(results):
    shutil.copy(results / "metrics.parquet", results / "graph.parquet")
    said = refused(results)
    assert said.startswith(f"{results / 'graph.parquet'}: has time (double), actor (string), name (string)")
    assert "a table of graph has time (double), source (int32), target (int32), weight (double)" in said


@pytest.fixture(scope="module")
def another(tmp_path_factory) -> Path:
    """Results in which nothing but their origin is different."""
    return write_run(tmp_path_factory.mktemp("another"), **SMALL, seed=2).finalise()


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_another_run_with_as_many_clients(results, another, table):
    file = results / f"{table}.parquet"
    shutil.copy(another / file.name, file)
    here, there = (json.loads((run / "summary.json").read_text())["trace_hash"] for run in (results, another))
    assert refused(results) == (
        f"{file}: is of another run than summary.json: trace hash {there}, there {here}\n"
    )


def test_a_summary_of_another_run(results, another):
    summary, scenario = results / "summary.json", results / "scenario.toml"
    shutil.copy(another / summary.name, summary)
    assert refused(results).startswith(f"{scenario}: is not the one that summary.json is about")
    shutil.copy(another / scenario.name, scenario)
    assert refused(results).startswith(f"{results / 'metrics.parquet'}: is of another run than summary.json")


def test_a_scenario_that_was_changed(results):
    file = results / "scenario.toml"
    file.write_text(file.read_text().replace("10 min", "11 min"))
    assert refused(results) == (
        f"{file}: is not the one that summary.json is about: it was changed, or is of another run\n"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged: Expecting value"),
        (b'{"scenario": "demo"', "is damaged: Expecting ',' delimiter"),
        (b'{"scenario": "d\xe9mo"}', "cannot be read: 'utf-8' codec can't decode"),
        (b"[1, 2]", "is damaged: must be a table of keys and values"),
        (b"{}", "is damaged: it lacks scenario, protocol, seed, virtual_seconds, "),
    ],
)
def test_damaged_summaries(results, content: bytes, said: str):
    file = results / "summary.json"
    file.write_bytes(content)
    assert refused(results).startswith(f"{file} {said}")


def test_files_that_are_in_order_but_contradict_themselves(results):
    file = results / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"accuracy": {"mean": "high"}}))
    assert refused(results).startswith(f"{results}: the files are damaged or do not fit")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_scenario_that_is_missing_or_no_text(results, content: bytes | None):
    file = results / "scenario.toml"
    file.unlink() if content is None else file.write_bytes(content)
    assert refused(results).startswith(f"{file} ")


def test_a_report_that_is_broken_off_leaves_the_old_one(results, monkeypatch):
    document = sim.results.report.page.document

    def interrupted(*parts):
        os.kill(os.getpid(), signal.SIGTERM)
        return document(*parts)

    monkeypatch.setattr(sim.results.report.page, "document", interrupted)
    result = CliRunner().invoke(app, ["report", str(results)])
    assert result.exit_code == 143
    assert "Traceback" not in result.output
    assert (results / "report.html").read_text() == "old page"


def test_a_report_that_cannot_be_written_leaves_the_old_one(results, monkeypatch):
    def full(path, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = CliRunner().invoke(app, ["report", str(results)])
    assert result.exit_code == 1
    assert result.stderr == f"cannot write the report to {results}: No space left on device\n"
    assert (results / "report.html").read_text() == "old page"
    assert not list(results.glob(".*"))
