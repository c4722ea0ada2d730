"""Which files a protocol consists of, and what they change: the hash of a run's directory, not its place."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.scenario.protocol_loader import find_protocol
from sim.scenario.scenario import digest, load_scenario
from sim.scenario.sources import Source, digest_of, sources_of, sources_of_file
from tests.scenario.texts import SMALL, write

OWN = """\
from protocols.local import Local
from own_steps import STEPS
if False:
    import own_package.inner
    from own_package import other

class Own(Local):
    steps = STEPS
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A protocol in a file, with modules and a package beside it, one of which it does not use."""
    (tmp_path / "own_package").mkdir()
    for name, text in {
        "own.py": OWN,
        "own_steps.py": "import own_deeper\nSTEPS = 2\n",
        "own_deeper.py": "import own_steps, numpy\n",
        "own_package/__init__.py": "",
        "own_package/inner.py": "from . import sibling\nfrom .. import above\n",
        "own_package/sibling.py": "",
        "own_package/other.py": "this is no Python",
        "unused.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test imports is imported anew by the next."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("own_", "their_", "coterie_protocol_own")):
            del sys.modules[name]


def names(sources: tuple[Source, ...], is_ours: bool) -> list[str]:
    return [source.name for source in sources if source.is_ours is is_ours]


def test_a_file_is_its_own_and_what_it_imports_from_beside_it(folder: Path) -> None:
    file = folder / "own.py"
    learner = find_protocol(f"{file}:Own")
    assert learner.steps == 2  # type: ignore[attr-defined]
    sources = sources_of(learner, file)
    assert names(sources, is_ours=False) == [
        "own.py",
        "own_deeper.py",
        "own_package/__init__.py",
        "own_package/inner.py",
        "own_package/other.py",
        "own_package/sibling.py",
        "own_steps.py",
    ]
    ours = names(sources, is_ours=True)
    assert {"protocols/local.py", "protocols/framework/client.py", "actors/actor.py"} <= set(ours)
    assert not any(name.startswith("sim/") for name in ours)


def test_one_of_ours_is_its_classes_and_what_they_import() -> None:
    sources = sources_of(find_protocol("cobo"))
    assert names(sources, is_ours=False) == []
    found = names(sources, is_ours=True)
    assert {
        "protocols/cobo/method.py",
        "protocols/shared/rounds.py",
        "protocols/framework/client.py",
        "actors/actor.py",
    } <= set(found)
    assert "protocols/mapl/method.py" not in found


def test_of_the_face_of_protocols_only_what_is_imported_counts(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from protocols import Client\nclass Own(Client): pass\n")
    ours = names(sources_of_file(file), is_ours=True)
    assert {"protocols/__init__.py", "protocols/framework/client.py"} <= set(ours)
    assert "protocols/shared/rounds.py" not in ours
    file.write_text("from protocols import RoundLearner\nclass Own(RoundLearner): pass\n")
    assert "protocols/shared/rounds.py" in names(sources_of_file(file), is_ours=True)


def test_what_only_type_checkers_import_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import typing\nif typing.TYPE_CHECKING:\n    import for_types\nelse:\n    import for_runs\n"
    )
    (tmp_path / "for_types.py").write_text("")
    (tmp_path / "for_runs.py").write_text("")
    assert names(sources_of_file(file), is_ours=False) == ["for_runs.py", "own.py"]


def test_a_class_of_a_package_is_that_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "their_methods" / "deep"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(
        "from protocols.local import Local\nfrom .. import shared\nimport beside\nclass Mine(Local): pass\n"
    )
    (package.parent / "shared.py").write_text("")
    (tmp_path / "beside.py").write_text("")
    sources = sources_of(find_protocol("their_methods.deep.mine:Mine"))
    assert names(sources, is_ours=False) == [
        "their_methods/__init__.py",
        "their_methods/deep/__init__.py",
        "their_methods/deep/mine.py",
        "their_methods/shared.py",
    ]


def test_the_digest_of_files_knows_names_and_contents() -> None:
    def of(*files: tuple[str, bytes]) -> str:
        return digest_of(tuple(Source(name, content, is_ours=False) for name, content in files))

    assert len(of(("a.py", b"1"))) == 8
    assert of(("a.py", b"1")) == of(("a.py", b"1"))
    different = [
        of(("a.py", b"1")),
        of(("b.py", b"1")),
        of(("a.py", b"2")),
        of(("a.py", b"1"), ("b.py", b"")),
    ]
    assert len(set(different)) == 4


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
    (folder / "unused.py").write_text("1")
    assert hashed(folder) == before
    (folder / "own_steps.py").write_text("import own_deeper\nSTEPS = 3\n")
    assert hashed(folder) != before
    (elsewhere / "own.py").write_text(OWN + "    more = 1\n")
    assert hashed(elsewhere) not in (before, hashed(folder))


def test_the_hash_knows_the_code_of_ours_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario(write(tmp_path, SMALL))
    before = digest(scenario)
    read_bytes = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read_bytes(path) + (b"#" if path.name == "client.py" else b"")
    )
    assert digest(scenario) == before, "what has been read once stays"
    assert digest(load_scenario(write(tmp_path, SMALL))) != before
