"""Which files the user's code consists of, and what they change: the hash of a run's directory."""

import shutil
from pathlib import Path

import pytest

from sim.errors import UserError
from sim.plugins import source_files
from sim.plugins.source_files import PRODUCT, SourceFiles, files_in_same_folder
from sim.scenario.protocol_lookup import load_protocol
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from tests.scenario.texts import SMALL, write

OWN = """\
from protocols.decentralized.local import Local
from source_steps import STEPS

class Own(Local):
    steps = STEPS
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A protocol in a file, with modules and packages beside it, data, and results of earlier runs."""
    for name, text in {
        "own.py": OWN,
        "source_steps.py": "STEPS = 2\n",
        "source_package/__init__.py": "",
        "source_package/deeper/inner.py": "",
        "notes.txt": "",
        "runs/world-1-01234567/protocol-01234567/own.py": "",
        ".hidden/own.py": "",
        "venv/lib/python3.11/own.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_python_files_of_its_folder_and_of_packages_beside_it(folder: Path) -> None:
    sources = load_protocol(f"{folder / 'own.py'}:Own").sources
    assert sources is not None and sources == files_in_same_folder(folder / "own.py")
    assert sorted(sources.files) == [
        "own.py",
        "source_package/__init__.py",
        "source_package/deeper/inner.py",
        "source_steps.py",
    ]
    assert sources.files["own.py"] == OWN.encode()


def test_in_the_folder_of_coterie_the_files_beside_it_alone(tmp_path: Path) -> None:
    assert [name for name in files_in_same_folder(PRODUCT / "my_file.py").files if "/" in name] == []


def test_code_of_coterie_is_not_kept() -> None:
    assert load_protocol("gossip").sources is None
    assert load_protocol("protocols.decentralized.gossip:Gossip").sources is None


def test_a_class_of_a_package_is_that_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "their_methods" / "deep"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "mine.py").write_text(
        "from protocols.decentralized.local import Local\nclass Mine(Local): pass\n"
    )
    (tmp_path / "beside.py").write_text("")
    sources = load_protocol("their_methods.deep.mine:Mine").sources
    assert sources is not None
    assert sorted(sources.files) == ["their_methods/__init__.py", "their_methods/deep/mine.py"]


def test_of_an_installed_package_it_is_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages"
    (installed / "their_tool").mkdir(parents=True)
    (installed / "their_tool" / "__init__.py").write_text("")
    (installed / "their_tool" / "mine.py").write_text(
        "from protocols.decentralized.local import Local\nclass Mine(Local): pass\n"
    )
    monkeypatch.syspath_prepend(installed)
    sources = load_protocol("their_tool.mine:Mine").sources
    assert sources is not None and list(sources.files) == ["their_tool/mine.py"]


def test_a_folder_with_too_much_in_it_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "FILES_MAX", 3)
    with pytest.raises(UserError, match=r"has more than 3 Python files.*move the code to a separate folder"):
        load_protocol(f"{folder / 'own.py'}:Own")


def test_the_digest_of_files_knows_names_and_contents() -> None:
    def of(**files: bytes) -> str:
        return SourceFiles(Path(), files).digest

    assert len(of(a=b"1")) == 8
    assert of(a=b"1", b=b"2") == of(b=b"2", a=b"1")
    assert len({of(a=b"1"), of(b=b"1"), of(a=b"2"), of(a=b"1", b=b"")}) == 4


def test_the_hash_of_a_directory_knows_the_code_and_not_where_it_lies(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def hashed(where: Path) -> str:
        text = SMALL.replace('name = "gossip"', 'name = "own.py:Own"').replace("period", "# period")
        assert "own.py:Own" in text
        return digest(load_scenario(write(where, text)))

    before = hashed(folder)
    elsewhere = Path(shutil.copytree(folder, tmp_path_factory.mktemp("elsewhere") / "copy"))
    assert hashed(elsewhere) == before
    (folder / "notes.txt").write_text("1")
    assert hashed(folder) == before
    (folder / "source_steps.py").write_text("STEPS = 3\n")
    assert hashed(folder) != before
    (elsewhere / "own.py").write_text(OWN + "    more = 1\n")
    assert hashed(elsewhere) not in (before, hashed(folder))
