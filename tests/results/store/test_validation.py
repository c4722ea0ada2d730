"""`coterie report` of results that are damaged: refused in words, and the old report stays as it was."""

import math
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sim.results.report.page
from sim.cli.commands import app
from sim.results.store.manifest import Manifest
from sim.results.store.output_dir import MANIFEST
from tests.results.synthetic import write_run

SMALL = {"clients": 6, "clusters": 2, "evaluations": 3, "steps": 4}
TABLES = ("metrics", "graph", "events", "intervals")
ANOTHER = "does not match checksums.json: it is damaged, was changed, or belongs to another run"


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


FORGED = {
    "no keys": ("summary.json", lambda file: file.write_text("{}")),
    "a text for a number": (
        "summary.json",
        lambda file: file.write_text(file.read_text().replace('"mean": 0', '"mean": "x", "x": 0', 1)),
    ),
    "a column less": (
        "metrics.parquet",
        lambda file: pq.write_table(pq.read_table(file).drop_columns(["value"]), file),
    ),
    "numbers for names": (
        "intervals.parquet",
        lambda file: pq.write_table(pa.table({name: [1.0] for name in pq.read_schema(file).names}), file),
    ),
    "no table": ("graph.parquet", lambda file: file.write_bytes(b"PAR1" * 9)),
}


@pytest.mark.parametrize("how", FORGED)
def test_what_coterie_never_wrote_is_refused_though_its_checksums_are_right(results: Path, how: str) -> None:
    name, change = FORGED[how]
    change(results / name)
    (results / MANIFEST).unlink()
    Manifest.of(results, [file.name for file in results.iterdir() if file.suffix != ".html"]).write()
    assert f"{results / name}" in refused(results)


def test_whole_results_get_their_report(results):
    result = CliRunner().invoke(app, ["report", str(results)])
    assert (result.exit_code, result.stdout) == (0, f"{results / 'report.html'}\n")
    assert (results / "report.html").stat().st_size > 1_000_000


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), ANOTHER),
        (lambda file: file.write_bytes(bytes(range(256)) * 20), ANOTHER),
        (lambda file: file.unlink(), "is missing; these results are incomplete"),
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
    assert refused(results) == f"{file} {ANOTHER}\n"


@pytest.mark.parametrize("table", TABLES)
def test_numbers_that_are_none_are_noticed_in_a_table_that_is_otherwise_whole(results, table):
    """Rewritten with all that it had beside its rows, as by who edits it."""
    file = results / f"{table}.parquet"
    content = pq.read_table(file)
    times = content.column_names.index("start" if table == "intervals" else "time")
    nothing = pa.array([math.nan] * len(content))
    pq.write_table(content.set_column(times, content.schema[times], nothing), file)
    assert refused(results) == f"{file} {ANOTHER}\n"


def test_swapped_tables(results):
    shutil.copy(results / "metrics.parquet", results / "graph.parquet")
    assert refused(results) == f"{results / 'graph.parquet'} {ANOTHER}\n"


@pytest.fixture(scope="module")
def another(tmp_path_factory) -> Path:
    """Results in which nothing but their origin is different."""
    return write_run(tmp_path_factory.mktemp("another"), **SMALL, seed=2).finalise()


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_another_run_with_as_many_clients(results, another, table):
    file = results / f"{table}.parquet"
    shutil.copy(another / file.name, file)
    assert refused(results) == f"{file} {ANOTHER}\n"


@pytest.mark.parametrize("name", ["summary.json", "scenario.toml", "provenance.json"])
def test_a_text_of_another_run(results, another, name):
    file = results / name
    shutil.copy(another / name, file)
    file.write_text(file.read_text() + "\n")  # what says when they were run may be the same
    assert refused(results) == f"{file} {ANOTHER}\n"


def test_the_checksums_of_another_run(results, another):
    shutil.copy(another / "checksums.json", results / "checksums.json")
    assert refused(results) == f"{results / 'summary.json'} {ANOTHER}\n"


@pytest.mark.parametrize("name", ["summary.json", "scenario.toml", "provenance.json"])
@pytest.mark.parametrize(
    "content", [b"", b'{"scenario": "demo"', b'{"scenario": "d\xe9mo"}', b"[1, 2]", b"{}"]
)
def test_damaged_texts(results, name: str, content: bytes):
    file = results / name
    file.write_bytes(content)
    assert refused(results) == f"{file} {ANOTHER}\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"{", "is not a list of checksums, or is damaged: Invalid JSON"),
        (b"[1, 2]", "is not a list of checksums, or is damaged: Input should be an object"),
        (b'{"summary.json": [-1, "00"]}', "is not a list of checksums, or is damaged: summary.json.0: "),
    ],
)
def test_damaged_checksums(results, content: bytes, said: str):
    file = results / "checksums.json"
    file.write_bytes(content)
    assert refused(results).startswith(f"{file}: {said}")


@pytest.mark.parametrize("name", ["checksums.json", "summary.json", "scenario.toml", "metrics.parquet"])
@pytest.mark.parametrize("how", ["gone", "a pipe", "a folder", "a terabyte"])
def test_what_is_no_file_of_ours(results, name: str, how: str):
    """Nothing waits for a pipe, and nothing of a terabyte is read."""
    file = results / name
    file.unlink()
    if how == "a pipe":
        os.mkfifo(file)
    elif how == "a folder":
        file.mkdir()
    elif how == "a terabyte":
        file.touch()
        os.truncate(file, 1 << 40)
    assert name in refused(results)


def test_a_fault_of_the_report_is_not_called_damage(results, monkeypatch):
    """Only what is found by looking at the files themselves."""

    def faulty(*parts, **_):
        raise ValueError("of coterie's own")

    monkeypatch.setattr(sim.results.report.page, "document", faulty)
    result = CliRunner().invoke(app, ["report", str(results)])
    assert isinstance(result.exception, ValueError)


def test_a_report_that_is_broken_off_leaves_the_old_one(results, monkeypatch):
    document = sim.results.report.page.document

    def interrupted(*parts, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return document(*parts, **more)

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
