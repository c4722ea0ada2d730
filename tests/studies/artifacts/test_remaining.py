"""Warnings about paths, e-mail addresses and names that remain in an archive."""

import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.studies.artifacts import anonymous, remaining
from sim.studies.artifacts.archive import Member
from sim.studies.artifacts.packing import PackOptions, pack
from sim.studies.artifacts.remaining import author_names, identifiers_by_line, identity_warnings
from sim.studies.cells import plan
from sim.studies.comparison import Comparison
from sim.studies.pages import write_comparison
from sim.studies.study import load_study
from sim.studies.sweep import run_sweep
from tests.studies.artifacts.studies import METHOD, SHORT, runs_of, sweep_of, write_method
from tests.studies.conftest import here
from tests.studies.worlds import STUDY, study

AUTHOR = "# Author: Jane Doe <jane@uni.example>, /home/janedoe/gossip, host vm\n"
SAID = "line 1: Jane Doe, jane@uni.example, /home/janedoe/, vm"


@pytest.fixture(autouse=True)
def authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a short name, and an author with a name in git's settings."""
    monkeypatch.setattr(anonymous, "gethostname", lambda: "vm")
    monkeypatch.setattr(anonymous, "getuser", lambda: "root")
    monkeypatch.setattr(remaining, "_git_names", lambda: ("Jane Doe", "jane@uni.example"))


def compared(sweep: Path) -> Path:
    write_comparison(Comparison(load_study([sweep], [1, 2]), metrics=["distance"]), sweep / "comparison")
    return sweep


@pytest.mark.long
def test_a_comment_is_named_once_with_all_its_copies(tmp_path: Path) -> None:
    result = run_sweep(
        plan(study(tmp_path, AUTHOR + STUDY), SHORT, seeds=1), out=tmp_path / "runs", execute=here
    )
    sweep = compared(result.directory)
    assert "janedoe" in (sweep / "comparison" / "comparison.html").read_text(encoding="utf-8")
    packed = pack(sweep, tmp_path / "a.zip", PackOptions(reports=True))
    assert packed.warnings == (f"runs/{sweep.name}/study.toml, {SAID}",)


@pytest.mark.long
def test_a_corrected_comment_is_used_for_runs_that_are_kept(tmp_path: Path) -> None:
    for text in (AUTHOR + STUDY, "# Who wins?\n" + STUDY):
        result = run_sweep(plan(study(tmp_path, text), SHORT, seeds=1), out=tmp_path / "runs", execute=here)
    assert result.finished_before == result.cells > 0
    packed = pack(compared(result.directory), tmp_path / "a.zip", PackOptions(reports=True))
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        texts = {name: archive.read(name) for name in archive.namelist() if name.endswith((".toml", ".md"))}
    assert packed.warnings == ()
    assert all(b"Who wins?" in text and b"Jane" not in text for text in texts.values())


@pytest.mark.long
@pytest.mark.parametrize("make", [sweep_of, runs_of])
def test_files_of_coterie_name_nobody(make: Callable[[Path], Path], tmp_path: Path) -> None:
    assert pack(make(tmp_path), tmp_path / "a.zip", PackOptions(reports=True)).warnings == ()


@pytest.mark.long
def test_code_is_named_once_for_all_runs(tmp_path: Path) -> None:
    write_method(tmp_path)
    (tmp_path / "mine.py").write_text(f"{AUTHOR}{METHOD}", encoding="utf-8")
    (tmp_path / "helper.py").write_text(f"PERIOD = 0.25\n{AUTHOR}", encoding="utf-8")
    path = study(
        tmp_path,
        STUDY.replace("protocol.name=gossip", "protocol.name=mine.py:Mine").replace(
            ', "protocol.period=500 ms"', ""
        ),
    )
    result = run_sweep(plan(path, SHORT, seeds=1), out=tmp_path / "runs", execute=here)
    assert not result.errors
    one, two = pack(result.directory, tmp_path / "a.zip").warnings
    folder = f"runs/{result.directory.name}/protocol-"
    assert one.startswith(folder) and one.endswith(f"/helper.py, {SAID.replace('line 1', 'line 2')}")
    assert two.startswith(folder) and two.endswith(f"/mine.py, {SAID}")


def warned(*names: str, **files: str) -> list[str]:
    members: dict[str, Member] = {
        name.replace("__", "/").replace("_", "."): text.encode() for name, text in files.items()
    }
    return identity_warnings(members, names, ["runs/s"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/home/jane", "/home/jane"),
        ("(/home/jane/a/b.csv)", "/home/jane/a/"),
        ("file:///home/jane.", "/home/jane"),
        ("vm:/home/jane/a", "/home/jane"),
        ("/Users/jane/a", "/Users/jane/"),
        (r"C:\Users\jane\a", r"C:\Users\jane"),
        ("C:/Users/jane/a", r"C:\Users\jane"),
        ("<jane.doe+x@cs.uni.example>", "jane.doe+x@cs.uni.example"),
        ("by Jane  Doe", "Jane Doe"),
        ("https://uni.example/home/jane, ./home/jane, ../Users/jane, ~/a, a@b, @media, x@2.0", ""),
        ("vms, Jane Doest", ""),
    ],
)
def test_paths_addresses_and_names_are_found(text: str, found: str) -> None:
    lines = identifiers_by_line(f"\n{text}\n", ["vm", "Jane Doe"])
    assert [list(items) for _, items in lines.values()] == ([[*found.split("|")]] if found else []) or (
        lines[2][1].keys() == {found, "vm"} and "vm:" in text
    )


def test_a_product_of_matrices_is_no_address() -> None:
    code = "y = w@x.mean()\n@x.cached\ndef f():\n    return 'a@x.mean'  # b@x.mean\n"
    assert identifiers_by_line(code, [], python=True) == {
        4: ("    return 'a@x.mean'  # b@x.mean", {"a@x.mean": None, "b@x.mean": None})
    }
    assert list(identifiers_by_line("'''\na@x.mean", [], python=True)) == [2]  # no Python


def test_each_kind_of_file_is_searched() -> None:
    """Also where JSON and HTML write characters in another way."""
    path = r"C:\Users\jane\a"
    table = json.dumps({"a": f"\n{path} é<jane@uni.example>"}).replace("<", r"\u003c")
    said = r"line 1: C:\Users\jane, jane@uni.example"
    assert warned(runs__s__notes_json=table) == [f"runs/s/notes.json, {said}"]
    page = f"# <p>{path} &lt;jane@uni.example&gt;"
    for name in ("runs__s__a_html", "runs__s__a_md", "data__1__a_csv", "runs__s__a_toml", "runs__a__b_py"):
        assert [each.partition(", ")[2] for each in warned(**{name: page})] == [said], name
    assert (
        identity_warnings({"runs/s/a.parquet": page.encode(), "data/b": b"\0" + page.encode()}, (), ()) == []
    )


def test_copies_are_left_out_but_other_files_are_not() -> None:
    one, two = "# me@uni.example\n", "# my address: me@uni.example\n"
    assert len(warned(runs__s__a_py=one, runs__s__b_py=two, runs__s__c_md=one + two)) == 3
    assert len(warned(runs__s__a_py=one, runs__r__p__a_py=one)) == 1
    assert len(warned(runs__a__scenario_toml=one, runs__b__scenario_toml=one + "x = 1\n")) == 1
    assert len(warned(runs__a__scenario_toml=one, runs__b__scenario_toml=two)) == 2
    assert warned(README_md=two, runs__s__a_toml=one) == ["runs/s/a.toml, line 1: me@uni.example"]
    assert warned(README_md="by you@uni.example and me@uni.example", runs__s__a_toml=one) == [
        "runs/s/a.toml, line 1: me@uni.example",
        "README.md, line 1: you@uni.example",
    ]
    assert warned("vm", README_md="vm", runs__s__a_toml="vm") == ["runs/s/a.toml, line 1: vm"]
    assert warned("vm", README_md="vm") == []  # a word of coterie
    [many] = warned(runs__s__a_py=one * 7)
    assert many.endswith("; line 5: me@uni.example; and 2 more lines")


def test_the_names_of_git_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(anonymous, "gethostname", lambda: "vm.uni.example")
    monkeypatch.setattr(anonymous, "getuser", lambda: "Root")
    subprocess.run(["git", "init", "--quiet"], check=True)
    for key, value in (("user.name", "Zoë Doe"), ("user.email", "zoe@uni.example")):
        subprocess.run(["git", "config", key, value], check=True)
    assert author_names() == ("Zoë Doe", "vm", "vm.uni.example", "zoe@uni.example")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert author_names() == ("vm", "vm.uni.example")
