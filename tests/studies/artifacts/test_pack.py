"""Archives for reviewers: what is in them, what is not, and that equal studies give equal archives."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

import numpy
import pytest
from rocrate.rocrate import ROCrate
from typer.testing import CliRunner

from sim.cli.artifacts import app
from sim.errors import UserError
from sim.results.store.run_directory import load_checked
from sim.studies.artifacts import anonymous, packing, remaining, source_address
from sim.studies.artifacts.archive import LIST
from sim.studies.artifacts.lock import locked_packages
from sim.studies.artifacts.packing import PackOptions, pack
from sim.studies.artifacts.reproducing import open_archive
from sim.studies.artifacts.source_address import project_source
from sim.studies.cells import plan
from sim.studies.index import WAITING, SweepIndex
from tests.studies.artifacts.studies import run_of, runs_of, sweep_of

STUDIES = (sweep_of, runs_of, run_of)
HOST = "zaphods-workstation"
Make = Callable[[Path], Path]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine and a user with names that nobody else has."""
    monkeypatch.setattr(anonymous, "gethostname", lambda: HOST)
    monkeypatch.setattr(anonymous, "getuser", lambda: "zaphod42")
    monkeypatch.setattr(remaining, "_git_names", lambda: ("Zaphod Beeblebrox", "zaphod@uni.example"))


@pytest.fixture(params=STUDIES, ids=lambda make: make.__name__)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "zaphod42").mkdir()
    return request.param(tmp_path / "zaphod42")


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.long
def test_an_archive_holds_no_path_and_no_name(made: Path, tmp_path: Path) -> None:
    packed = pack(made, tmp_path / "a.zip", PackOptions(reports=True))
    assert packed.warnings == () and packed.left_out == ()
    found = contents(packed.path)
    assert {"README.md", "requirements.txt", "ro-crate-metadata.json", LIST} <= found.keys()
    for name, content in found.items():
        for word in (str(tmp_path), str(Path.cwd()), str(Path.home()) + "/", "zaphod42", HOST):
            assert word.encode() not in content, (name, word)
        if name.endswith((".json", ".toml", ".txt", ".md", ".py")):
            paths = re.findall(r"(?<![\w.:/<])/(?:home|tmp|root|work|usr|var|opt)/\S*", content.decode())
            assert not paths, (name, paths)
    assert not any(part.startswith(".") for name in found for part in name.split("/"))


@pytest.mark.long
def test_equal_studies_give_equal_archives(made: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pack(made, tmp_path / name / "a.zip")
    assert (tmp_path / "one" / "a.zip").read_bytes() == (tmp_path / "two" / "a.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one" / "a.zip") as file:
        assert file.namelist() == sorted(file.namelist())
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.long
def test_the_results_in_an_archive_are_whole(made: Path, tmp_path: Path) -> None:
    """Also where texts were rewritten: their checksums are those of the new texts."""
    opened = open_archive(pack(made, tmp_path / "a.zip").path, tmp_path / "out", None)
    shutil.rmtree(tmp_path / "zaphod42")
    for run in opened.chosen:
        load_checked(opened.packed / "runs" / run.directory)
    assert len(opened.chosen) == len(opened.files.runs) and not opened.skipped
    if opened.files.study is not None:
        planned = plan(opened.packed / opened.files.study)
        marks = {json.loads(each.read_text())["cell"] for each in opened.packed.glob("runs/*/cell.json")}
        assert {cell.key for cell in planned.cells} == marks


def listed_of(value: Any) -> list[Any]:
    """The values of a property, which has no list if it has only one."""
    return value if isinstance(value, list) else [value]


@pytest.mark.long
def test_an_archive_is_an_ro_crate(made: Path, tmp_path: Path) -> None:
    opened = open_archive(
        pack(made, tmp_path / "a.zip", PackOptions(license="CC0-1.0")).path, tmp_path / "out"
    )
    crate = ROCrate(str(opened.packed))
    assert crate.root_dataset["license"] == "CC0-1.0"
    assert crate.metadata["conformsTo"] == "https://w3id.org/ro/crate/1.3"
    listed = {each["@id"] if hasattr(each, "keys") else each.id for each in crate.root_dataset["hasPart"]}
    files = {LIST, *opened.files.files} - {"ro-crate-metadata.json"}
    assert files <= listed and all(each in files or each.endswith("/") for each in listed)
    actions = listed_of(crate.root_dataset["mentions"])
    assert len(actions) == len(opened.files.runs)
    for action in actions:
        assert action.type == "CreateAction" and action["instrument"].id == "#coterie"
        assert action["startTime"] <= action["endTime"] and action["result"].id.startswith("runs/")
        assert all(each.id in files for each in listed_of(action["object"]))


@pytest.mark.long
def test_the_readme_lists_code_only_if_there_is_some(made: Path, tmp_path: Path) -> None:
    packed = pack(made, tmp_path / "a.zip")
    has_code = any(name.endswith(".py") for name in packed.files.files)
    said = contents(packed.path)["README.md"].decode()
    assert ("its code" in said) == has_code and ("contains no code" in said) != has_code
    assert "comparison" not in said
    assert "the new folder `reproduced-a`, which ends with `-2` if" in said


@pytest.mark.long
@pytest.mark.parametrize("missing", [1, 2])
def test_missing_runs_are_counted(tmp_path: Path, missing: int) -> None:
    sweep = sweep_of(tmp_path)
    index = SweepIndex.read(sweep)
    runs = len(index.cells)
    waiting = [cell.model_copy(update=dict(state=WAITING, directory=None)) for cell in index.cells[-missing:]]
    index.model_copy(update={"cells": (*index.cells[:-missing], *waiting)}).write(sweep)
    archive = str(tmp_path / "a.zip")
    words = f"{missing} of {runs} planned runs {'is' if missing == 1 else 'are'} missing"
    assert f"\n{words}\n" in CliRunner().invoke(app, ["pack", str(sweep), "--out", archive]).stdout
    readme = contents(Path(archive))["README.md"].decode()
    assert f"The {runs - missing} runs took " in readme and f" in total. {words}. " in readme
    assert readme.count(": not run yet\n") == missing
    options = ["--out", str(tmp_path / "out"), "-q", "-j", "1", "--runs", "1"]
    assert f"\n{words} from the archive\n" in CliRunner().invoke(app, ["reproduce", archive, *options]).stdout


def test_a_damaged_log_of_reads_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    log = run / "reads.log"
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"reads\.log does not match checksums\.json"):
        pack(run, tmp_path / "a.zip")


def test_runs_that_cannot_be_repeated_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path)
    command = ["pack", str(run), "--out", str(tmp_path / "a.zip")]
    assert "reproduce it: " in CliRunner().invoke(app, command).stdout
    monkeypatch.setattr(packing, "unrepeatable_reason", lambda path: "the run is unfinished")
    said = CliRunner().invoke(app, [*command, "--overwrite"])
    assert f"warning: cannot be repeated: {run.name}: the run is unfinished\n" in said.stderr
    assert said.exit_code == 0 and "reproduce it: " not in said.stdout


@pytest.mark.long
def test_options_leave_parts_out(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    full, small = [
        contents(pack(run, tmp_path / f"{name}.zip", options).path)
        for name, options in (("full", PackOptions()), ("small", PackOptions(events=False, data=False)))
    ]
    assert f"runs/{run.name}/events.parquet" in full and any(name.startswith("data/") for name in full)
    left = full.keys() - small.keys()
    assert {name.rpartition("/")[2] for name in left} == {"events.parquet", "reads.log", "delays.csv"}
    assert b"delays.csv: put it into the folder of --data-dir" in small["README.md"]


@pytest.mark.long
def test_the_lock_file_states_versions(made: Path, tmp_path: Path) -> None:
    text = contents(pack(made, tmp_path / "a.zip").path)["requirements.txt"].decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.match(r"[a-z0-9-]+==\S+(  # the runs used \S+)?$", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}
    assert {"coterie", "torch", "numpy", "pydantic-core"} <= names and not {"pytest", "ray"} & names


def test_the_lock_file_states_the_versions_of_the_runs() -> None:
    lines = locked_packages([b"import torch"], {"coterie": "0.0.1", "torch": "1.2.3"}).splitlines()
    assert {"coterie==0.0.1", "torch==1.2.3"} <= set(lines)
    assert f"numpy=={numpy.__version__}" in lines  # the runs name no version of it


@pytest.mark.long
def test_code_that_tells_about_the_machine_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    for helper in run.glob("*/helper.py"):
        helper.write_text('PERIOD = 0.25\nPLACE = "/home/zaphod42/data"\n', encoding="utf-8")
    said = CliRunner().invoke(app, ["pack", str(run), "--out", str(tmp_path / "a.zip")])
    assert said.exit_code == 0, said.output
    assert "helper.py, line 2: /home/zaphod42/" in said.stderr


URL = "https://uni.example/coterie?tag=0.3"


@pytest.mark.long
@pytest.mark.parametrize("option", [[], ["--source", URL]])
@pytest.mark.parametrize("known", [None, "https://example.org/coterie"])
def test_the_source_of_coterie_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str], known: str | None
) -> None:
    monkeypatch.setattr(packing, "project_source", lambda: known)
    archive = tmp_path / "a.zip"
    said = CliRunner().invoke(app, ["pack", str(run_of(tmp_path)), "--out", str(archive), *option])
    assert said.exit_code == 0, said.output
    found = contents(archive)
    url, readme = URL if option else known, found["README.md"].decode()
    assert (f" from its source, <{url}>, with `pip install .`" in readme) == (url is not None)
    assert ("The archive does not state the address of the source; its authors" in readme) == (url is None)
    assert ("state it with --source URL" in said.stderr) == (url is None)
    graph = json.loads(found["ro-crate-metadata.json"])["@graph"]
    [program] = [each for each in graph if each["@id"] == "#coterie"]
    assert program["url"] == (url or "README.md#reproduce-the-results")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://me@uni.example/", "must not contain a user"),
        ("https://me:secret@uni.example/", "must not contain a user or a password"),
        *[
            (url, "must be an http or https address")
            for url in ("", "coterie", "file:///home/me", "ftp://uni.example", "https://", "http://a:b/")
        ],
        *[(f"https://uni.example/{each}", "must be an http or https") for each in (" a", "a\nb", ">", "`")],
    ],
)
def test_other_sources_are_refused(tmp_path: Path, url: str, why: str) -> None:
    said = CliRunner().invoke(app, ["pack", str(tmp_path), "--out", str(tmp_path / "a"), "--source", url])
    assert said.exit_code == 2 and "--source" in said.stderr and why in said.stderr
    assert not list(tmp_path.iterdir())


def test_the_source_in_the_metadata_of_the_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["Issues, https://a.example/issues", "Home, ftp://a.example"]
    metadata = Message()
    monkeypatch.setattr(source_address, "metadata", lambda _: metadata)
    assert project_source() is None
    for line in lines:
        metadata.add_header("Project-URL", line)
    assert project_source() == "https://a.example/issues"
    metadata.add_header("Project-URL", "Homepage, https://a.example")
    metadata.add_header("Project-URL", "Source Code, https://a.example/src")
    assert project_source() == "https://a.example/src"


@pytest.mark.long
def test_files_with_odd_names_are_left_out_or_refused(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    (sweep / "notes: mine.txt").write_text("x", encoding="utf-8")
    (sweep / "a\nb").write_text("x", encoding="utf-8")
    left = pack(sweep, tmp_path / "a.zip").left_out
    assert [line.partition(" the name has")[0] for line in sorted(left)] == ["a\\nb:", "notes: mine.txt:"]
    open_archive(tmp_path / "a.zip", tmp_path / "out")


def test_only_an_archive_is_replaced_and_only_on_request(tmp_path: Path) -> None:
    run, again = run_of(tmp_path), PackOptions(overwrite=True)
    mine, archive = tmp_path / "mine.zip", tmp_path / "a.zip"
    with zipfile.ZipFile(mine, "w") as other:
        other.writestr("letter.txt", "x")
    (tmp_path / "link.zip").symlink_to(archive)
    pack(run, archive)
    before, kept = archive.read_bytes(), mine.read_bytes()
    archive.write_bytes(before + b"\0")  # still readable
    with pytest.raises(UserError, match="already exists; pass --overwrite"):
        pack(run, archive)
    pack(run, archive, again)
    assert archive.read_bytes() == before
    for path, kind in (
        (mine, "not an archive of coterie"),
        (tmp_path / "world.toml", "not an archive of coterie"),
        (tmp_path / "link.zip", "a link"),
        (run, "a folder"),
    ):
        for options in (None, again):
            with pytest.raises(UserError, match=f"already exists, and is {kind}; name another file"):
                pack(run, path, options)
    assert mine.read_bytes() == kept


def test_earlier_archives_in_the_folder_of_a_sweep_are_not_packed(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    with zipfile.ZipFile(sweep / "mine.zip", "w") as other:
        other.writestr("letter.txt", "x")
    archive = sweep / "a.zip"
    before = pack(sweep, archive).path.read_bytes()
    pack(sweep, archive, PackOptions(overwrite=True))
    assert archive.read_bytes() == before
    pack(sweep, tmp_path / "a.zip")
    names = [name for name in contents(tmp_path / "a.zip") if name.endswith(".zip")]
    assert names == [f"runs/{sweep.name}/mine.zip"]


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no finished run"):
        pack(tmp_path / "empty")
    with pytest.raises(UserError, match="is not a folder"):
        pack(tmp_path / "nothing")
    with pytest.raises(UserError, match="already exists"):
        pack(run, tmp_path / "world.toml")
    (run / "metrics.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"metrics\.parquet does not match"):
        pack(run, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


@pytest.mark.long
def test_only_files_that_the_run_has_read_are_packed(tmp_path: Path) -> None:
    """Results of a stranger may name any file of this machine."""
    run = run_of(tmp_path)
    [file] = {
        Path(each) for each in re.findall(r'"(/[^"]*delays\.csv)"', (run / "scenario.toml").read_text())
    }
    file.write_text("a secret\n", encoding="utf-8")
    packed = pack(run, tmp_path / "a.zip")
    assert "data delays.csv: its content has changed since the run" in packed.left_out
    assert b"a secret" not in b"".join(contents(packed.path).values())
