"""Results with other columns and keys than those of today, and results of a later format."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_series_equal

import coterie as front
from sim.cli.watch import state
from sim.errors import UserError
from sim.results.store.formats import FORMAT
from sim.results.store.manifest import Manifest
from sim.results.store.output_dir import MANIFEST
from sim.results.store.run_directory import RunDirectory
from sim.results.store.summary_file import _DEFAULTS, SUMMARY_KEYS, parse_summary
from sim.results.store.tables import TABLES
from sim.studies.comparison import Comparison
from sim.studies.study import load_study
from sim.studies.tables import tables_to_show
from tests.results.store.test_releases import EXPLAIN, FORK, NEWEST, copied, coterie, states_in


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where `compare` writes
    return copied(NEWEST, tmp_path)


def rewrite(results: Path, name: str, change: Callable[[Path], object]) -> None:
    """Change a file of results as another version of coterie might have written it."""
    change(results / name)
    listed = json.loads((results / MANIFEST).read_text())
    Manifest.of(results, listed).write()


def with_table(results: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    rewrite(
        results,
        f"{table}.parquet",
        lambda file: pq.write_table(change(pq.read_table(file)), file, write_page_checksum=True),
    )


def with_json(results: Path, name: str, **changes: object) -> None:
    rewrite(results, name, lambda file: file.write_text(json.dumps(json.loads(file.read_text()) | changes)))


def column_more(table: pa.Table) -> pa.Table:
    """One more in front, so that no position is right any more, and one of lists behind."""
    more = table.add_column(0, "priority", pa.array([7] * len(table)))
    return more.append_column("route", pa.array([["a", "b"]] * len(table)))


def require_open_everywhere(results: Path) -> None:
    other = copied("0.2.0/gossip", results.parent.parent)
    for words in (
        ("report", results, "--trace"),
        ("explain", results, *EXPLAIN),
        ("fork", results, *FORK, "--anyway"),
    ):
        result = coterie(*words)
        assert result.exit_code == 0, (words[0], result.output, result.exception)
    compared, *_ = tables_to_show(Comparison(load_study([results, other])))
    assert len(compared.rows) == 2
    assert states_in(results.parent) == ["finished"] * 3
    assert all(entry["bad"] == [] for entry in state(results.parent)["ended"])
    run = front.load(results)
    assert run.events.columns == TABLES["events"].names
    assert run.metrics.columns == TABLES["metrics"].names
    assert len(run.evaluations) == 4


@pytest.mark.parametrize("table", TABLES)
def test_a_table_with_columns_that_this_version_does_not_know(results: Path, table: str) -> None:
    before = RunDirectory.load(results).scan(table).collect()
    with_table(results, table, column_more)
    assert RunDirectory.load(results).scan(table).collect().equals(before)


@pytest.mark.parametrize("column", ["bytes", "detail", "message"])
def test_a_column_that_is_missing_is_null(results: Path, column: str) -> None:
    before = RunDirectory.load(results).scan("events").collect()
    with_table(results, "events", lambda table: table.drop_columns([column]))
    found = RunDirectory.load(results).scan("events").collect()
    assert found.equals(before.with_columns(pl.lit(None, before.schema[column]).alias(column)))
    result = coterie("report", results, "--trace")
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.long
def test_keys_and_columns_more_and_less_open_everywhere(results: Path) -> None:
    for table in TABLES:
        with_table(results, table, column_more)
    with_table(results, "events", lambda table: table.drop_columns(["detail", "bytes", "message"]))
    rewrite(results, "summary.json", least)
    require_open_everywhere(results)


@pytest.mark.parametrize(
    ("table", "column"), [("events", "type"), ("metrics", "time"), ("graph", "weight"), ("intervals", "end")]
)
def test_without_a_column_that_says_what_a_row_is_a_table_is_refused(
    results: Path, table: str, column: str
) -> None:
    with_table(results, table, lambda content: content.drop_columns([column]))
    result = coterie("report", results)
    assert result.exit_code == 2
    assert f"{results / table}.parquet: has no column {column}, but " in result.stderr


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [
        ("events", "time", pa.float32()),
        ("events", "bytes", pa.int32()),
        ("events", "type", pa.large_string()),
        ("events", "actor", pa.dictionary(pa.int32(), pa.string())),
        ("metrics", "value", pa.float32()),
        ("graph", "source", pa.uint16()),
    ],
)
def test_a_column_of_a_narrower_type_is_read(
    results: Path, table: str, column: str, kind: pa.DataType
) -> None:
    before = RunDirectory.load(results).scan(table).collect()
    with_table(results, table, lambda content: cast(content, column, kind))
    found = RunDirectory.load(results).scan(table).collect()
    assert found.schema == before.schema
    assert found.drop(column).equals(before.drop(column))
    if before.schema[column].is_float():
        assert_series_equal(found[column], before[column], rel_tol=1e-6)
    else:
        assert found[column].equals(before[column])


@pytest.mark.parametrize(
    ("table", "column", "kind", "said"),
    [
        ("events", "time", pa.string(), "column time has type string; must be double"),
        ("events", "message", pa.float64(), "column message has type double; must be int64"),
        ("graph", "source", pa.int64(), "column source has type int64; must be int32"),
        ("intervals", "state", pa.binary(), "column state has type binary; must be string"),
    ],
)
def test_a_column_of_another_type_is_refused(
    results: Path, table: str, column: str, kind: pa.DataType, said: str
) -> None:
    with_table(results, table, lambda content: cast(content, column, kind))
    result = coterie("report", results)
    assert result.exit_code == 2
    assert result.stderr == f"{results / table}.parquet: {said}\n"


def cast(table: pa.Table, column: str, kind: pa.DataType) -> pa.Table:
    place = table.column_names.index(column)
    content = table.column(column)
    content = content.dictionary_encode() if pa.types.is_dictionary(kind) else content.cast(kind)
    return table.set_column(place, column, content)


def test_a_column_that_is_there_twice_is_refused(results: Path) -> None:
    with_table(results, "events", lambda table: table.append_column("time", table.column("time")))
    result = coterie("report", results)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{results / 'events.parquet'}: has 2 columns time; must have one\n",
    )


# --- keys ---------------------------------------------------------------------------------------------------


def least(file: Path) -> None:
    """Leave out of a summary all that need not be there."""
    found = json.loads(file.read_text())
    file.write_text(json.dumps({key: found[key] for key in SUMMARY_KEYS}))


def test_a_summary_with_no_more_than_it_must_have_is_read(results: Path) -> None:
    rewrite(results, "summary.json", least)
    assert coterie("report", results).exit_code == 0
    assert coterie("explain", results, *EXPLAIN).exit_code == 0
    assert states_in(results.parent) == ["finished"]
    assert all(entry["bad"] == [] for entry in state(results.parent)["ended"])
    assert front.load(results).summary["measure"] == "accuracy"
    assert len(load_study([results, copied("0.2.0/gossip", results.parent)]).runs) == 2


def test_every_key_that_may_be_missing_has_a_default(results: Path) -> None:
    whole = json.loads((results / "summary.json").read_text())
    least = parse_summary(json.dumps({key: whole[key] for key in SUMMARY_KEYS}).encode())
    assert least.keys() >= _DEFAULTS.keys()
    assert parse_summary(json.dumps(least).encode()) == least, "each default is of the key's type"
    assert (least["finished"], least["interrupted"], least["alone"]) == (True, False, False)
    assert parse_summary(json.dumps(whole).encode()).items() >= whole.items()


@pytest.mark.parametrize(
    ("measured", "judged"),
    [
        ({"accuracy": {"clients": 2, "mean": 0.5}, "loss": {"mean": 1.0}}, "accuracy"),
        ({"accuracy": {"clients": 2, "mean": None}, "distance": {"mean": 0.1}}, "distance"),
        ({"accuracy": {"clients": 0, "mean": None}}, "accuracy"),
    ],
)
def test_what_clients_are_judged_by_is_found_where_no_key_says_it(
    results: Path, measured: dict[str, object], judged: str
) -> None:
    whole = json.loads((results / "summary.json").read_text())
    least = {key: whole[key] for key in SUMMARY_KEYS} | measured
    assert parse_summary(json.dumps(least).encode())["measure"] == judged


# --- the number ---------------------------------------------------------------------------------------------


def test_what_is_written_says_its_format(results: Path) -> None:
    for name in ("summary.json", "provenance.json"):
        assert json.loads((results / name).read_text())["format"] == FORMAT


@pytest.mark.parametrize(
    "words",
    [("report",), ("compare",), ("explain", *EXPLAIN), ("fork", *FORK), ("resume", "--until", "40 s")],
    ids=lambda words: words[0],
)
def test_a_later_format_is_refused(results: Path, words: tuple[str, ...]) -> None:
    with_json(results, "summary.json", format=FORMAT + 1)
    (results / MANIFEST).write_text("[another form]")  # which is not looked at
    result = coterie(words[0], results, *words[1:])
    assert result.exit_code == 2, (result.output, result.exception)
    said = (
        f"{results / 'summary.json'}: format = {FORMAT + 1}: must be an integer from 0 to {FORMAT}; a "
        "later version of coterie wrote these results: install that version to read them"
    )
    assert said in result.stderr


def test_a_later_format_is_no_damage_in_a_list_of_runs(results: Path) -> None:
    with_json(results, "summary.json", format=FORMAT + 1)
    assert states_in(results.parent) == ["of a later version"]
    [entry] = state(results.parent)["ended"]
    assert entry["bad"][0].startswith(f"{results / 'summary.json'}: format = {FORMAT + 1}: must be")
    with pytest.raises(UserError, match="a later version of coterie wrote these results"):
        front.load(results)


@pytest.mark.parametrize("words", [("resume",), ("explain", *EXPLAIN)], ids=lambda words: words[0])
def test_what_was_killed_in_a_later_format_is_refused(results: Path, words: tuple[str, ...]) -> None:
    hidden = results.rename(results.parent / ".gossip-1-abc123.01234567")
    for name in ("summary.json", MANIFEST):
        (hidden / name).unlink()
    file = hidden / "provenance.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    result = coterie(words[0], results.parent / "gossip-1-abc123", *words[1:])
    assert result.exit_code == 2
    assert f"{file}: format = 99: must be an integer from 0 to {FORMAT}; a later" in result.stderr


@pytest.mark.parametrize("number", ["1", -1, True, 1.5, None, []])
def test_a_format_that_is_no_number_of_a_format_is_refused(results: Path, number: object) -> None:
    with_json(results, "summary.json", format=number)
    result = coterie("report", results)
    assert result.exit_code == 2
    said = f"format = {json.dumps(number)}: must be an integer from 0 to {FORMAT}\n"
    assert result.stderr == f"{results / 'summary.json'}: {said}"


def test_a_sweep_of_a_later_format_is_refused_and_keys_more_are_not(results: Path) -> None:
    sweep = results.parent / "sweep"
    sweep.mkdir()
    cell = {"values": {"method": "gossip"}, "seed": 1, "state": "done", "directory": results.name}
    index = {
        "name": "kept",
        "question": "",
        "axes": {"method": ["gossip"]},
        "seeds": [1],
        "labels": {},
        "compare": {},
        "cells": [cell | {"error": None, "excluded": [], "host": "elsewhere"}],
        "started": "today",
    }
    (sweep / "sweep.json").write_text(json.dumps(index))
    assert [run.directory.name for run in load_study([sweep]).runs] == [results.name]
    (sweep / "sweep.json").write_text(json.dumps(index | {"format": FORMAT + 1}))
    with pytest.raises(UserError, match=rf"sweep\.json: format = {FORMAT + 1}: must be an integer"):
        load_study([sweep])
    shutil.rmtree(sweep)
