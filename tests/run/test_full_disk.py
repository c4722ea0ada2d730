"""A disk that is full, a report that fails, a folder of an odd name: what can be kept is kept."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from sim.cli.commands import app
from sim.results.store.output_dir import MARK
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.trace import EVENTS_SCHEMA
from tests.simulation.worlds import QUADRATIC, write

pytestmark = pytest.mark.report

LIMITED = """\
import resource
from protocols.decentralized.local import Local

class Own(Local):
    async def step(self):
        await super().step()
        if self.now > 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
"""


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    file = write(tmp_path, QUADRATIC)
    arguments = ["run", str(file), "--quiet", "--out", str(tmp_path / "runs")]
    return lambda *options: CliRunner().invoke(app, [*arguments, *options])


def full(*arguments: Any, **options: Any) -> None:
    raise OSError(28, "No space left on device")


def check_said(result: Result, kept: str, *unwritten: str) -> None:
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    assert "trace hash" in result.stdout, "the outcome is shown all the same"
    assert "verified" not in result.output
    assert result.stderr.splitlines()[-2 - len(unwritten) :] == [
        "not all results could be written:",
        *unwritten,
        kept,
    ]


def test_a_table_that_does_not_fit(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke().exit_code == 0
    [first] = (tmp_path / "runs").iterdir()
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    monkeypatch.setattr(RunDirectory, "write_events", full)
    result = invoke("--overwrite", "--verify")
    there = first.with_name(f"{first.name}-2")
    lines = result.stderr.splitlines()[-4:]
    assert lines[:2] == ["not all results could be written:", "events.parquet: No space left on device"]
    assert re.fullmatch(r"report\.html: .*events\.parquet is missing; these results are incomplete", lines[2])
    assert lines[3] == f"the others are in {there}"
    assert result.exit_code == 1
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before, "finished results stay"
    assert {path.name for path in there.iterdir()} == {
        "scenario.toml",
        "provenance.json",
        "summary.json",
        "metrics.parquet",
        "graph.parquet",
        "intervals.parquet",
        "reads.log",
        "checkpoint.pt",
        "checksums.json",
    }


@pytest.mark.long
def test_a_trace_for_which_there_is_no_room_while_it_comes(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes room for the numbers; one that has room is written meanwhile, in row groups."""
    monkeypatch.setattr("sim.results.trace.ROWS", 5)
    assert invoke().exit_code == 0
    [whole] = (tmp_path / "runs").iterdir()
    assert pq.ParquetFile(whole / "events.parquet").num_row_groups > 2
    write_table, written = pq.ParquetWriter.write_table, []

    def full_later(writer: pq.ParquetWriter, table: pa.Table, **options: Any) -> None:
        is_of_trace = table.schema.names == EVENTS_SCHEMA.names
        written.extend([table] if is_of_trace else [])
        (full if is_of_trace and len(written) == 2 else write_table)(writer, table, **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full_later)
    result = invoke()
    assert len(written) == 2
    directory = whole.with_name(f"{whole.name}-2")
    _, events, report, last = result.stderr.splitlines()[-4:]
    assert events == "events.parquet: No space left on device"
    assert report.startswith("report.html: ") and last == f"the others are in {directory}"
    assert not (directory / "events.parquet").exists()
    for table in ("metrics", "graph", "intervals"):
        frames = [RunDirectory.load(path).scan(table).collect() for path in (whole, directory)]
        assert frames[0].equals(frames[1])


def test_where_not_even_the_summary_fits_all_goes_elsewhere(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_summary = RunDirectory.write_summary

    def full_there(directory: RunDirectory, summary: dict[str, Any]) -> None:
        (full if tmp_path / "runs" in directory.path.parents else write_summary)(directory, summary)

    monkeypatch.setattr(RunDirectory, "write_summary", full_there)
    result = invoke()
    [elsewhere] = (tmp_path / "temporary").glob("coterie-*/world-1-*")
    check_said(result, f"the others are in {elsewhere}", "summary.json: No space left on device")
    assert load_checked(elsewhere).summary()["finished"] is True
    assert list((tmp_path / "runs").iterdir()) == []


def test_where_nothing_can_be_moved_to_its_place_all_goes_elsewhere(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def read_only(path: Path, target: Path) -> Path:
        return full() if tmp_path / "runs" in target.parents else rename(path, target)  # type: ignore[func-returns-value, return-value]

    monkeypatch.setattr(Path, "rename", read_only)
    result = invoke()
    [elsewhere] = (tmp_path / "temporary").glob("coterie-*/world-1-*")
    assert result.exit_code == 1
    assert load_checked(elsewhere).summary()["finished"] is True
    assert list((tmp_path / "runs").iterdir()) == []


def test_where_nothing_fits_anywhere_the_outcome_is_shown(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunDirectory, "write_summary", full)
    again = "summary.json: No space left on device"
    check_said(invoke("--verify"), "no result could be saved", again, again)
    assert list((tmp_path / "runs").iterdir()) == list((tmp_path / "temporary").iterdir()) == []


POLARS = pl.exceptions


@pytest.mark.parametrize(
    "error", [KeyError("accuracy"), POLARS.ComputeError("no"), MemoryError(), POLARS.PanicException("no")]
)
def test_a_report_that_fails_in_any_way_loses_no_number(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(directory: RunDirectory) -> None:
        raise error

    monkeypatch.setattr("sim.run.save.saving.write_report", fail)
    result = invoke()
    [directory] = (tmp_path / "runs").iterdir()
    first, why, last = result.stderr.splitlines()
    assert (first, last) == ("not all results could be written:", f"the others are in {directory}")
    assert re.fullmatch(rf"report\.html: {type(error).__name__}: .*\(test_full_disk\.py, line \d+\)", why)
    assert result.exit_code == 1
    assert load_checked(directory).summary()["finished"] is True


@pytest.mark.parametrize("name", ["results [a]", "~", "s3:bucket", "a*?{b}", "%41"])
def test_a_folder_of_any_name(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("--out", name, "--trace")
    assert result.exit_code == 0, result.output
    [directory] = (tmp_path / name).iterdir()
    assert (directory / "report.html").is_file() and (directory / "trace.pftrace").is_file()
    report = CliRunner().invoke(app, ["report", str(Path(name) / directory.name)])
    assert report.exit_code == 0, report.output


def test_half_a_table_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path, "demo", 0, "0")

    def half(table: object, file: BinaryIO, **options: object) -> None:
        file.write(b"PAR1")
        full()

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(OSError, match="No space left"):
        run.write_intervals([])
    assert [file.name for file in run.path.iterdir()] == [MARK]


@pytest.mark.long
def test_a_limit_of_the_system(tmp_path: Path) -> None:
    """The report does not fit; in a process of its own, since its files stay limited."""
    (tmp_path / "own.py").write_text(LIMITED.format(limit=64 << 10))
    file = write(tmp_path, QUADRATIC.replace('name = "local"', 'name = "own.py:Own"'))
    done = subprocess.run(
        [sys.executable, "-m", "sim", "run", str(file), "--quiet", "--out", str(tmp_path / "runs")],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    [directory] = (tmp_path / "runs").iterdir()
    assert done.stderr.splitlines() == [
        "not all results could be written:",
        "report.html: File too large",
        f"the others are in {directory}",
    ]
    assert RunDirectory.load(directory).summary()["finished"] is True
