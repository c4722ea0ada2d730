"""Archives run again elsewhere: equal figures, changed figures, other machines, and hostile archives."""

import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from sim.cli.artifacts import app
from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from sim.studies.artifacts import archive as archives
from sim.studies.artifacts import figures
from sim.studies.artifacts.archive import LIST, FileList, unpack, write_archive
from sim.studies.artifacts.compared_tables import _is_equal, compared_tables
from sim.studies.artifacts.packing import PackOptions, pack
from sim.studies.artifacts.reproducing import (
    Reproduction,
    free_folder,
    open_archive,
    repeat,
)
from sim.studies.artifacts.sample import choose_spread_runs
from sim.studies.artifacts.verdict import Verdict
from sim.studies.cells import plan
from sim.studies.comparison import Comparison
from sim.studies.index import SweepIndex
from sim.studies.pages import write_comparison
from sim.studies.study import load_study
from sim.studies.sweep import run_sweep
from sim.studies.worker import CellOptions
from tests.results.synthetic import as_if_written, write_run
from tests.simulation.worlds import QUADRATIC
from tests.studies.artifacts.studies import MATRIX, METHOD, SHORT, own_sweep_of, run_of, runs_of, sweep_of
from tests.studies.conftest import here
from tests.studies.test_sweep import FORKS, LEAVES
from tests.studies.worlds import STUDY, study

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Archives of the three studies, whose folders are gone."""
    found = {}
    for make in (sweep_of, runs_of, run_of):
        folder = tmp_path_factory.mktemp(make.__name__)
        (folder / "study").mkdir()
        found[make.__name__] = pack(make(folder / "study"), folder / "a.zip").path
        shutil.rmtree(folder / "study")
    return found


def repeated(archive: Path, out: Path, count: int | None = None) -> Reproduction:
    made = open_archive(archive, out, count)
    repeat(made, CellOptions(), here, tolerance=0.02)
    return made


def changed(archive: Path, to: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The archive with other files, and a list that fits them: None removes a file."""
    with zipfile.ZipFile(archive) as file:
        old = {name: file.read(name) for name in file.namelist()}
    listed = json.loads(old.pop(LIST))
    members = {name: new for name, content in old.items() if (new := change(name, content)) is not None}
    for folder in {name.rpartition("/")[0] for name in members if name.endswith("checksums.json")}:
        own = {name: members[f"{folder}/{name}"] for name in json.loads(members[f"{folder}/checksums.json"])}
        sums = {name: [len(content), sha256(content).hexdigest()] for name, content in own.items()}
        members[f"{folder}/checksums.json"] = json.dumps(sums).encode()
    facts = {key: listed[key] for key in ("coterie", "name", "study", "data")}
    runs = tuple([archives.PackedRun(**run) for run in listed["runs"]])
    write_archive(to, members, FileList.of(members, runs=runs, **facts))
    return to


def of_summary(**new: Any) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("/summary.json"):
            return content
        return json.dumps(json.loads(content) | new).encode()

    return change


def elsewhere(archive: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`coterie reproduce` in another process and folder, without a home and a user's settings."""
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "COTERIE_DATA")}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "sim", "reproduce", str(archive), "--quiet", "-j", "1", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)


@pytest.mark.long
@pytest.mark.parametrize("name", ["sweep_of", "runs_of", "run_of"])
def test_an_archive_is_reproduced_elsewhere(packed: dict[str, Path], tmp_path: Path, name: str) -> None:
    done = elsewhere(packed[name], tmp_path, "--runs", "2")
    assert done.returncode == 0, done.stderr
    said = "1 of 1 repeated run is equal" if name == "run_of" else "2 of 2 repeated runs are equal"
    assert f"\n{said}; the archive has " in done.stdout and "tables: " not in done.stdout
    assert ("executes code of the archive: " in done.stderr) == (name == "run_of")
    said = json.loads((tmp_path / "reproduced-a" / "reproduction.json").read_text(encoding="utf-8"))
    assert said["verdict"] == "equal"
    for run in said["runs"]:
        assert {each["verdict"] for each in run["figures"]} == {"equal"} and len(run["figures"]) > 50


@pytest.mark.long
def test_a_method_in_a_package_is_found_in_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "study" / "packed_methods"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    method = METHOD.replace("from helper", "from packed_methods.helper")
    (package / "mine.py").write_text(method, encoding="utf-8")
    (package / "helper.py").write_text("PERIOD = 0.25\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "study")
    path = tmp_path / "study" / "world.toml"
    path.write_text(QUADRATIC.replace('"local"', '"packed_methods.mine:Mine"'), encoding="utf-8")
    ran = run_scenario(load_scenario(path, SHORT), RunOptions(out=tmp_path / "study" / "runs"))
    assert ran.directory is not None
    archive = pack(ran.directory, tmp_path / "a.zip").path
    shutil.rmtree(tmp_path / "study")
    done = elsewhere(archive, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\n1 of 1 repeated run is equal; the archive has 1 run; all figures: " in done.stdout


@pytest.mark.long
def test_a_changed_figure_is_found(packed: dict[str, Path], tmp_path: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("/summary.json"):
            return content
        summary = json.loads(content)
        summary["distance"]["mean"] *= 1 + 1e-12
        return json.dumps(summary).encode()

    archive = changed(packed["run_of"], tmp_path / "b.zip", change)
    said = CliRunner().invoke(
        app, ["reproduce", str(archive), "--out", str(tmp_path / "out"), "-q", "-j", "1"]
    )
    assert said.exit_code == 1
    assert "distance.mean: published" in said.stdout
    assert "\n1 of 1 repeated run is not equal; the archive has 1 run; " in said.stdout
    assert "the archive is not reproduced" in said.stderr


def test_a_changed_table_is_found(packed: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(packed["runs_of"]) as file:
        tables = [file.read(name) for name in file.namelist() if name.endswith("metrics.parquet")]

    def swapped(name: str, content: bytes) -> bytes:
        return tables[1 - tables.index(content)] if name.endswith("metrics.parquet") else content

    made = repeated(changed(packed["runs_of"], tmp_path / "b.zip", swapped), tmp_path / "out", 1)
    [wrong] = [figure for figure in made.repeated[0].figures if figure.verdict != Verdict.equal]
    assert wrong.name == "metrics.parquet" and made.verdict == Verdict.different
    assert re.match(
        r"metrics\.parquet, row \d+ \(time [\d.]+, actor \S+, name \w+\), value: published [\d.e-]+, "
        r"reproduced [\d.e-]+: not equal$",
        str(wrong),
    )


def test_the_first_difference_of_a_table_is_named() -> None:
    rows = pl.DataFrame({"time": [0.0, 1.0], "source": ["a", "b"], "weight": [1.0, None]})

    def said(other: pl.DataFrame) -> str:
        runs = [
            cast(RunDirectory, SimpleNamespace(scan=lambda _, each=each: each.lazy()))
            for each in (rows, other)
        ]
        return str(figures._compare_table("graph", *runs))

    assert said(rows) == "graph.parquet: published 2 rows, reproduced 2 rows: equal"
    changed = rows.with_columns(weight=pl.Series([1.0, 0.5]))
    place = "graph.parquet, row 2 (time 1.0, source b), weight"
    assert said(changed) == f"{place}: published None, reproduced 0.5: not equal"
    place = "graph.parquet, equal up to row 1"
    assert said(rows[:1]) == f"{place}: published 2 rows, reproduced 1 row: not equal"


def test_the_same_machine_leaves_nothing_to_chance(packed: dict[str, Path], tmp_path: Path) -> None:
    archive = changed(packed["run_of"], tmp_path / "b.zip", of_summary(trace_hash="0" * 32))
    made = repeated(archive, tmp_path / "out")
    assert made.verdict == Verdict.different and made.repeated[0].environment == ()


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, Verdict.chance), (1.01, Verdict.chance), (2.0, Verdict.different)]
)
def test_another_machine_leaves_some_to_chance(
    packed: dict[str, Path], tmp_path: Path, factor: float, verdict: str
) -> None:
    def change(name: str, content: bytes) -> bytes:
        if name.endswith("/provenance.json"):
            said = json.loads(content)
            said["made_by"]["torch"] = "2.99"
            return json.dumps(said).encode()
        if not name.endswith("/summary.json"):
            return content
        summary = json.loads(content)
        summary["distance"]["mean"] *= factor
        return json.dumps(summary | {"trace_hash": "0" * 32}).encode()

    made = repeated(changed(packed["run_of"], tmp_path / "b.zip", change), tmp_path / "out")
    assert made.verdict == verdict
    assert any(line.startswith("torch: 2.99 when published") for line in made.repeated[0].environment)


def test_intervals_are_those_of_a_new_seed() -> None:
    """Of 1, 2, 3: mean 2, deviation 1, and t of 99% with 2 degrees of freedom, 9.925, times sqrt(4/3)."""
    reach = 9.9248432 * (4 / 3) ** 0.5
    for value, verdict in ((2 + reach - 1e-3, Verdict.chance), (2 + reach + 1e-3, Verdict.different)):
        assert figures._is_within_chance("x", 1.0, value, [1.0, 2.0, 3.0], 0.0).verdict == verdict
    assert figures._is_within_chance("x", 1.0, 1.03, [1.0, 2.0], 0.02).verdict == Verdict.different
    assert figures._is_within_chance("x", 1.0, 1.01, [1.0, 2.0], 0.02).verdict == Verdict.chance


def test_the_tolerance_is_relative_to_the_published_figure() -> None:
    """The published figure is the farthest of the seeds from their mean, and their interval is narrow."""
    for value, verdict in (
        (0.8166, Verdict.chance),  # 1.95% more
        (0.7854, Verdict.chance),
        (0.8172, Verdict.different),
        (0.7848, Verdict.different),
    ):
        figure = figures._is_within_chance("x", 0.801, value, [0.8, 0.8, 0.801], 0.02)
        assert (figure.verdict, figure.low, figure.high) == (
            verdict,
            pytest.approx(0.98 * 0.801),
            pytest.approx(1.02 * 0.801),
        )


def test_code_is_refused_on_request(packed: dict[str, Path], tmp_path: Path) -> None:
    said = CliRunner().invoke(
        app, ["reproduce", str(packed["run_of"]), "--out", str(tmp_path / "out"), "--no-code", "-q"]
    )
    assert said.exit_code == 2 and "--no-code forbids" in said.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a sweep of three methods of the library and the authors' own method."""
    folder = tmp_path_factory.mktemp("own")
    sweep = own_sweep_of(folder)
    archive = pack(sweep, folder / "a.zip").path
    shutil.rmtree(folder / "runs")
    return archive


def without_own(archive: Path, to: Path) -> Path:
    """The archive, in which the runs of the authors' method are unfinished, and so not repeated."""
    with zipfile.ZipFile(archive) as file:
        names = [name for name in file.namelist() if name.endswith("/mine.py")]
    runs = {name.split("/")[1] for name in names}

    def change(name: str, content: bytes) -> bytes:
        is_own = name.endswith("/summary.json") and name.split("/")[1] in runs
        return of_summary(finished=False)(name, content) if is_own else content

    return changed(archive, to, change)


@pytest.mark.long
def test_code_of_other_runs_is_refused_too(own: Path, tmp_path: Path) -> None:
    archive = without_own(own, tmp_path / "b.zip")
    command = ["reproduce", str(archive), "--out", str(tmp_path / "new" / "out"), "-q", "-j", "1"]
    said = CliRunner().invoke(app, [*command, "--no-code", "--runs", "1"])
    assert said.exit_code == 2 and said.stdout == ""
    assert "4 of 16 runs need Python code that does not come with coterie, which --no-code" in said.stderr
    assert re.search(r"--no-code forbids: study-\S+, protocol\.name = \"\S+mine\.py:Mine\"", said.stderr)
    assert not (tmp_path / "new").exists()
    said = CliRunner().invoke(app, [*command, "--runs", "1"])
    assert said.exit_code == 0 and "executes code" not in said.stderr
    with zipfile.ZipFile(own) as file:
        readme = file.read("README.md").decode()
    assert "With `--no-code`, it rejects the archive if any of its runs needs code:" in readme


@pytest.mark.long
def test_the_default_sample_has_the_code_of_the_authors(own: Path, tmp_path: Path) -> None:
    made = open_archive(own, tmp_path / "out")
    values = [made.values[run.directory] for run in made.chosen]
    assert [each["method"] for each in values] == ["alone", "gossip", "mine"]
    assert {each["network.loss"] for each in values} == {0, 0.2}
    assert {run.seed for run in made.chosen} == {3, 4}
    folder = f"runs/{made.chosen[-1].directory}/"
    assert all(each.startswith(folder) for each in made.executed_code)
    assert [each.rpartition("/")[2] for each in made.executed_code] == ["helper.py", "mine.py"]


@pytest.mark.long
def test_the_values_of_repeated_runs_are_shown(own: Path, tmp_path: Path) -> None:
    command = ["reproduce", str(own), "--out", str(tmp_path / "out"), "-q", "-j", "1", "--runs", "2"]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    [shown] = [line for line in said.stdout.splitlines() if "method = mine" in line]
    assert re.match(r"study-3-\w+  method = mine, network\.loss = 0, seed = 3  +equal", shown)
    written = json.loads((tmp_path / "out" / "reproduction.json").read_text(encoding="utf-8"))
    assert {"method": "mine", "network.loss": 0, "seed": 3} in [each["values"] for each in written["runs"]]


def test_code_outside_of_the_runs_is_named(tmp_path: Path) -> None:
    """Also a module that is installed, and a file that a hostile archive names."""
    run = archives.PackedRun(directory="a-1", seed=1, alike="")
    facts: dict[str, Any] = dict(format=1, coterie=None, name="x", study=None, data={})
    names = ["runs/a-1/p/mine.py", "runs/a-1/m/pack/net.py", "runs/a-2/other.py"]
    files = FileList(runs=(run,), files={name: (1, "0" * 64) for name in names}, **facts)
    named = {"protocol.name": "p/mine.py:A", "model.name": "pack.net:B"}
    made = Reproduction(tmp_path, files, [run], {}, named={"a-1": named})
    assert made.executed_code == names[:2]
    named |= {"model.name": "../a-2/other.py:B", "data.name": "installed:C"}
    assert made.executed_code == [*names[:2], "../a-2/other.py:B", "installed:C"]
    made.named.clear()
    assert made.executed_code == []


def test_a_refused_archive_leaves_no_folder(packed: dict[str, Path], tmp_path: Path) -> None:
    def with_a_hash_of_others(name: str, content: bytes) -> bytes:
        return content.replace(b"e", b"f") if name.endswith("README.md") else content

    with zipfile.ZipFile(packed["run_of"]) as file:
        members = [(name, with_a_hash_of_others(name, file.read(name))) for name in file.namelist()]
    forged = zipped(tmp_path / "b.zip", *members)
    for options in ((forged,), (packed["run_of"], "--no-code"), (packed["run_of"], "--device", "cuda")):
        if "cuda" in options and torch.cuda.is_available():
            continue
        for out in ("new/folder", "empty"):
            (tmp_path / "empty").mkdir(exist_ok=True)
            command = ["reproduce", *map(str, options), "--out", str(tmp_path / out), "-q"]
            said = CliRunner().invoke(app, command)
            assert said.exit_code == 2, said.output
            assert not (tmp_path / "new").exists() and not list((tmp_path / "empty").iterdir())


def test_runs_that_cannot_be_repeated_are_named(packed: dict[str, Path], tmp_path: Path) -> None:
    for new, why in (
        ({"finished": False}, "the run is unfinished"),
        ({"fork": {"of": "world-1", "at": 1.0}}, "a fork"),
    ):
        archive = changed(packed["run_of"], tmp_path / f"{len(why)}.zip", of_summary(**new))
        with pytest.raises(UserError, match=why):
            open_archive(archive, tmp_path / f"out-{len(why)}")


# --- tables of the comparison -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a sweep with a comparison that has options."""
    folder = tmp_path_factory.mktemp("compared")
    sweep = sweep_of(folder)
    comparison = Comparison(
        load_study([sweep], [1, 2]), metrics=["distance"], baseline="method=gossip", target=0.5
    )
    write_comparison(comparison, sweep / "comparison")
    archive = pack(sweep, folder / "a.zip").path
    shutil.rmtree(folder / "runs")
    return archive


def tables_of(archive: Path, out: Path) -> dict[str, tuple[str, ...]]:
    unpack(archive, out)
    return {table.name.rpartition("/")[2]: table.differences for table in compared_tables(out)}


NAMES = {"table.csv", "target.csv", "curves.csv", "runs.csv"}


@pytest.mark.long
def test_the_tables_of_a_comparison_are_computed_again(compared: Path, tmp_path: Path) -> None:
    assert tables_of(compared, tmp_path / "out") == dict.fromkeys(NAMES, ())
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (
        "/`: the study and its comparison\n" in readme and "computes the tables of the comparison" in readme
    )


@pytest.mark.long
def test_a_forged_table_is_found(compared: Path, tmp_path: Path) -> None:
    def forged(name: str, content: bytes) -> bytes:
        if not name.endswith("comparison/table.csv"):
            return content
        header, first, *others = content.decode().splitlines(keepends=True)
        cells = first.split(",")
        cells[header.split(",").index("mean")] = "0.125"
        return "".join([header, ",".join(cells), *others]).encode()

    archive = changed(compared, tmp_path / "b.zip", forged)
    said = CliRunner().invoke(
        app, ["reproduce", str(archive), "--out", str(tmp_path / "out"), "-q", "-j", "1", "--runs", "1"]
    )
    assert said.exit_code == 1 and "the archive is not reproduced" in said.stderr
    found = re.search(
        r"^(\S+): row 2, column mean: archive 0\.125, computed (\S+): not equal$", said.stdout, re.M
    )
    assert found and found[1].endswith("/comparison/table.csv") and float(found[2]) != 0.125
    assert "\ntables: 3 of 4 equal to those computed from the archived runs\n" in said.stdout
    assert "\n1 of 1 repeated run is equal; the archive has 12 runs; " in said.stdout
    written = json.loads((tmp_path / "out" / "reproduction.json").read_text(encoding="utf-8"))
    assert written["verdict"] == "not equal"
    assert [each["verdict"] for each in written["tables"]].count("equal") == 3


@pytest.mark.long
def test_other_differences_of_tables_are_named(compared: Path, tmp_path: Path) -> None:
    def all_new(name: str, content: bytes) -> bytes | None:
        rows = content.splitlines(keepends=True) if name.endswith(".csv") else []
        match name.rpartition("/")[2]:
            case "table.csv":
                return b"".join([rows[0].replace(b"mean", b"median", 1), *rows[1:]])
            case "target.csv":
                return b"".join(rows[:-1])
            case "curves.csv":
                return b"".join([rows[0], *[row.replace(b"gossip", b"alone") for row in rows[1:]]])
            case "runs.csv":
                return b"\xff\n"
        return content

    found = tables_of(changed(compared, tmp_path / "b.zip", all_new), tmp_path / "out")
    assert found["table.csv"] == ("row 1: other columns than those computed: mean, median",)
    assert re.fullmatch(r"row \d+: only in the computed table", found["target.csv"][0])
    assert len(found["curves.csv"]) == 10
    assert found["curves.csv"][0].endswith("column method: archive alone, computed gossip")
    assert found["runs.csv"][0].startswith("is not a CSV file")


@pytest.mark.long
def test_a_comparison_leaves_no_table_of_earlier_options(compared: Path, tmp_path: Path) -> None:
    listed = unpack(compared, tmp_path / "out")
    assert listed.study is not None
    sweep = tmp_path / "out" / listed.study
    write_comparison(Comparison(load_study([sweep])), sweep / "comparison")
    found = compared_tables(tmp_path / "out")
    assert len(found) == 3 and {table.verdict for table in found} == {Verdict.equal}


@pytest.mark.long
def test_tables_without_options_are_those_of_the_study(compared: Path, tmp_path: Path) -> None:
    def without(name: str, content: bytes) -> bytes | None:
        return None if name.endswith("comparison/options.json") else content

    found = tables_of(changed(compared, tmp_path / "b.zip", without), tmp_path / "out")
    assert found["target.csv"][1].startswith("the archived runs give no such table")
    assert all(lines[0].startswith("the archive has no options.json") for lines in found.values())


def test_digits_of_other_libraries_and_folders_count_as_equal() -> None:
    for one, two, equal in (
        ("0.1", "0.10000000000000002", True),
        ("0.1", "0.1000001", False),
        ("", "0.0", False),
        ("../../../data/1/a.csv", "../../data/1/a.csv", True),
        ("a", "b", False),
    ):
        assert _is_equal(one, two) == equal


# --- hostile archives ---------------------------------------------------------------------------------------


def zipped(path: Path, *entries: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry, content in entries:
            file.writestr(entry, content)
    return path


def listing(*names: str, **more: Any) -> tuple[str, bytes]:
    files = {name: [1, sha256(b"x").hexdigest()] for name in names}
    facts = dict(format=1, coterie=None, name="x", study=None, runs=[], data={}, files=files)
    return LIST, json.dumps(facts | more).encode()


def of_mode(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, mode << 16
    return entry


HOSTILE: dict[str, tuple[list[tuple[Any, bytes]], str]] = {
    "bomb": ([("a", bytes(200 << 20)), listing("a")], "bytes to 209,"),
    "up": ([("../a", b"x"), listing("../a")], "without . and .."),
    "up within": ([("b/../../a", b"x"), listing("b/../../a")], "without . and .."),
    "absolute": ([("/tmp/a", b"x"), listing("/tmp/a")], "must be a relative path"),
    "backslash": ([("..\\a", b"x"), listing("..\\a")], "character that is not allowed"),
    "drive": ([("C:a", b"x"), listing("C:a")], "character that is not allowed"),
    "control": ([("a\nb", b"x"), listing("a\nb")], "character that is not allowed"),
    "link": ([(of_mode("a", stat.S_IFLNK | 0o777), b"/etc/passwd"), listing("a")], "not a link, device"),
    "device": ([(of_mode("a", stat.S_IFCHR | 0o666), b"x"), listing("a")], "not a link, device"),
    "pipe": ([(of_mode("a", stat.S_IFIFO | 0o666), b"x"), listing("a")], "not a link, device"),
    "folder": ([("a/", b""), listing("a/")], "a/: is missing"),
    "folder up": ([("a/../../", b""), listing()], "without . and .."),
    "folder absolute": ([("/a/", b""), listing()], "must be a relative path"),
    "folder without a name": ([("a//", b""), listing()], "must be a relative path"),
    "folder backslash": ([("..\\a/", b""), listing()], "character that is not allowed"),
    "folder content": ([("a/", b"x"), listing()], "a folder with content"),
    "folder link": ([(of_mode("a/", stat.S_IFLNK | 0o777), b""), listing()], "not a link, device"),
    "twice": ([("a", b"x"), ("A", b"x"), listing("a", "A")], "is in the archive twice"),
    "both": ([("a", b"x"), ("a/b", b"x"), listing("a", "a/b")], "both a file and a folder"),
    "no list": ([("a", b"x")], "is not an archive of `coterie pack`"),
    "odd list": ([("a", b"x"), (LIST, b"[1]")], "is not a list of files"),
    "later": ([("a", b"x"), listing("a", format=99)], "written by a later version of coterie; install"),
    "missing": ([listing("a")], "a: is missing"),
    "unlisted": ([("a", b"x"), ("b", b"x"), listing("a")], "b: is not in"),
    "size": ([("a", b"xx"), listing("a")], "has another size"),
    "hash": ([("a", b"y"), listing("a")], "does not have the hash"),
    "odd run": ([listing(runs=[{"directory": "../..", "seed": 1, "alike": ""}])], "is not a list of files"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(tmp_path: Path, name: str) -> None:
    entries, why = HOSTILE[name]
    archive = zipped(tmp_path / "a.zip", *entries)
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError) as refused:
        unpack(archive, tmp_path / "in" / "out")
    assert why in str(refused.value) and str(archive) in str(refused.value)
    written = [path for path in (tmp_path / "in").rglob("*") if path.is_file()]
    assert len(written) == (name == "hash")  # the hash is known only once a file was read
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "in"]


def test_an_archive_that_was_zipped_again_is_unpacked(packed: dict[str, Path], tmp_path: Path) -> None:
    """Other programs also pack the folders, as entries without content."""
    shutil.unpack_archive(packed["runs_of"], tmp_path / "files")
    again = Path(shutil.make_archive(str(tmp_path / "again"), "zip", tmp_path / "files"))
    with zipfile.ZipFile(again) as file:
        assert "runs/" in file.namelist()
    assert unpack(again, tmp_path / "out") == unpack(packed["runs_of"], tmp_path / "other")


def test_a_refused_archive_leaves_no_files(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", *HOSTILE["hash"][0])
    for _ in range(2):  # the folder is free for another try
        with pytest.raises(UserError, match="does not have the hash"):
            open_archive(archive, tmp_path / "out")
        assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + bytes(18), bytes(1000)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.zip"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    with pytest.raises(UserError, match="No such file"):
        unpack(tmp_path / "b.zip", tmp_path / "out")


def test_an_existing_folder_is_kept(packed: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UserError, match="must be a new or an empty folder"):
        open_archive(packed["run_of"], tmp_path)


def test_the_default_folder_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    archive = Path("elsewhere") / "a.zip"
    assert free_folder(archive) == Path("reproduced-a")
    Path("reproduced-a").mkdir()
    assert free_folder(archive) == Path("reproduced-a")
    Path("reproduced-a", "archive").mkdir()
    Path("reproduced-a-2").write_text("a file", encoding="utf-8")
    assert free_folder(archive) == Path("reproduced-a-3")


def test_a_sample_is_spread_over_all_axes_and_seeds() -> None:
    cells = list(itertools.product(("local", "gossip"), (0, 0.1, 0.2), (1, 2, 3, 4)))
    runs = [archives.PackedRun(directory=f"{m}{loss}{seed}", seed=seed, alike="") for m, loss, seed in cells]
    settings = {f"{m}{loss}{seed}": {"method": m, "loss": loss} for m, loss, seed in cells}
    names = [run.directory for run in choose_spread_runs(runs, settings, 3)]
    assert names == ["local01", "local0.23", "gossip0.12"]
    assert (
        choose_spread_runs(runs, settings, 24) == runs
        and choose_spread_runs(runs[:2], settings, 3) == runs[:2]
    )
    code = {"gossip0.24": ["a"], "gossip0.23": ["a", "b"], "local02": ["c"]}
    names = [run.directory for run in choose_spread_runs(runs, settings, 3, code)]
    assert names == ["local02", "local0.11", "gossip0.23"]
    names = [run.directory for run in choose_spread_runs(runs, settings, 1, code)]
    assert names == ["gossip0.23"]
    alike = [
        archives.PackedRun(directory=str(number), seed=number % 2, alike=str(number // 2))
        for number in range(4)
    ]
    assert [run.directory for run in choose_spread_runs(alike, {}, 2)] == ["0", "3"]


@pytest.mark.long
def test_a_sample_of_a_sweep_has_several_values(packed: dict[str, Path], tmp_path: Path) -> None:
    made = open_archive(packed["sweep_of"], tmp_path / "out", 2)
    assert made.files.study is not None
    cells = {cell.directory: cell for cell in SweepIndex.read(made.packed / made.files.study).cells}
    one, two = [cells[run.directory] for run in made.chosen]
    assert one.seed != two.seed and not one.values.items() & two.values.items()


def test_a_damaged_byte_is_found(packed: dict[str, Path], tmp_path: Path) -> None:
    content = bytearray(packed["run_of"].read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.zip"):
        open_archive(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.long
def test_data_that_was_left_out_is_found_in_the_data_folder(tmp_path: Path) -> None:
    archive = pack(run_of(tmp_path), tmp_path / "a.zip", PackOptions(data=False)).path
    made = open_archive(archive, tmp_path / "out")
    scenario = RunDirectory.load(made.packed / "runs" / made.chosen[0].directory).scenario_text()
    assert 'file = "delays.csv"' in scenario


@pytest.mark.long
def test_a_sweep_with_forks_and_data_is_reproduced(tmp_path: Path) -> None:
    """Forks run from the start, and the study's file names the data in the archive."""
    base, _ = STUDY.replace('"local"', '"gossip"').split("[sweep]")
    latency = '{ kind = "matrix", file = "delays.csv", unit = "ms" }'
    base = base.replace('latency = "20 ms"', f"latency = {latency}")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "delays.csv").write_text(MATRIX, encoding="utf-8")
    path = study(tmp_path / "study", f"{base}{LEAVES}[sweep]\n{FORKS}")
    planned = plan(path, ["network.latency.jitter=0"], only=["future=as it was", "future=all are slow"])
    assert any(cell.parent for cell in planned.cells)
    result = run_sweep(planned, out=tmp_path / "study" / "runs", execute=here)
    assert not result.errors
    archive = pack(result.directory, tmp_path / "a.zip").path
    shutil.rmtree(tmp_path / "study")
    made = repeated(archive, tmp_path / "out")
    assert made.verdict == Verdict.equal and len(made.repeated) == len(planned.cells) and not made.skipped
    assert made.files.study is not None
    again = plan(made.packed / made.files.study)
    assert [cell.key for cell in again.cells] == [cell.key for cell in planned.cells]
    assert not [notice for notice in again.notices if "delays.csv" in notice]


def test_a_damaged_table_with_a_new_hash_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, clients=3, clusters=1, evaluations=3, steps=5).finalise()
    file = folder / "metrics.parquet"
    content = bytearray(file.read_bytes())
    content[20:200] = b"\xff" * 180
    file.write_bytes(bytes(content))
    as_if_written(folder)
    run = RunDirectory.load(folder)
    with pytest.raises(UserError, match=r"metrics\.parquet: is damaged: "):
        figures._compare_table("metrics", run, run)
