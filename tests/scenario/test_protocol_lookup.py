"""Finding protocols by name, and in files."""

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sim.errors import UserError
from sim.files.named_files import resolving_file_names
from sim.scenario.protocol_lookup import list_protocols, load_protocol, method_files
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import load_scenario
from tests.scenario.texts import OF_ALL_METHODS, SMALL, changed, write

LISTED = list_protocols()
OWN = '''
"""A protocol of the user's own."""
from dataclasses import dataclass

from pydantic import PositiveInt

from protocols.framework.client import Client
from protocols.decentralized.local import Local
from protocols import Duration


@dataclass(frozen=True)
class Note:
    text: str


class Mine(Client):
    class Settings(Client.Settings):
        rounds: PositiveInt = 3
        patience: Duration = "2 s"

    async def step(self):
        await self.sleep(self.settings.patience)


class Theirs(Mine):
    pass


class Helper:
    pass
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def find(name: str, folder: Path | None = None) -> Any:
    with resolving_file_names(folder / "scenario.toml") if folder else nullcontext():
        return load_protocol(name).found


def refusal(name: str, folder: Path | None = None) -> str:
    with pytest.raises(UserError) as error:
        find(name, folder)
    return str(error.value)


def test_each_file_of_a_method_has_its_class() -> None:
    """A method whose class has another name than its file would not be found."""
    missing = [str(file) for stem, file in method_files().items() if stem.replace("_", "-") not in LISTED]
    assert not missing, (
        f"{', '.join(missing)}: defines no class with the name of the file (MyMethod in my_method.py); "
        "rename one of them, or move a file that is no method to protocols/shared/"
    )


@pytest.mark.parametrize("place", ["new_one.py", "decentralized/new_one.py", "kept/new_one.py"])
def test_a_method_is_found_wherever_its_file_is(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text('"""New."""\nclass NewOne: ...\n')
    if file.parent != tmp_path:
        (file.parent / "__init__.py").write_text('"""Methods."""\n')
    monkeypatch.setattr("sim.scenario.protocol_lookup._FOLDER", tmp_path)
    assert method_files() == {"new_one": file}


def test_the_list_needs_no_registry() -> None:
    listed = list_protocols()
    assert {"local", "gossip", "dpsgd", "fedavg", "oracle", "cobo"} <= set(listed)
    assert "client" not in listed
    assert "settings" not in listed
    assert "graph-learning" not in listed
    assert all(listed.values())


def test_a_file_that_is_not_there_was_looked_for_in_two_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worlds").mkdir()
    monkeypatch.chdir(tmp_path)
    world = write(tmp_path / "worlds", SMALL)
    with pytest.raises(UserError) as error:
        load_scenario(world, ["protocol.name=my.py:Mine"])
    assert f"no file {tmp_path / 'my.py'} or {tmp_path / 'worlds/my.py'}" in str(error.value)


def test_a_class_of_a_package() -> None:
    assert find("protocols.decentralized.gossip:Gossip") is find("gossip")


def test_a_class_of_a_file_beside_the_scenario(own: Path) -> None:
    found = find("own.py:Mine", own.parent)
    assert found.__name__ == "Mine"
    assert found.Settings().model_dump(exclude=OF_ALL_METHODS) == {"rounds": 3, "patience": 2.0}


def test_the_current_folder_comes_first(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "own.py").write_text(OWN.replace("class Mine", "class Other").replace("(Mine)", "(Other)"))
    monkeypatch.chdir(here)
    assert find("own.py:Other", own.parent).__name__ == "Other"


def test_a_file_is_loaded_once_and_an_edited_one_anew(own: Path) -> None:
    first = find(f"{own}:Mine")
    os.utime(own, (time.time() + 10, time.time() + 10))
    assert find(f"{own}:Mine") is first
    own.write_text(OWN.replace("= 3", "= 4"))
    assert find(f"{own}:Mine").Settings().model_dump()["rounds"] == 4


def test_a_scenario_with_a_protocol_from_a_file(own: Path) -> None:
    path = write(own.parent, SMALL)
    scenario = load_scenario(path, ["protocol.name=own.py:Mine", "protocol.rounds=5"])
    assert scenario.protocol.name == f"{own}:Mine"
    assert scenario.protocol.label == "Mine"
    assert scenario.protocol.settings.model_dump(exclude=OF_ALL_METHODS) == {"rounds": 5, "patience": 2.0}
    copy = write(own.parent, to_toml(scenario), "scenario.toml")
    assert load_scenario(copy) == scenario


def test_a_file_protocols_settings_are_checked(own: Path) -> None:
    text = changed(SMALL, 'name = "gossip"\nperiod', 'name = "own.py:Mine"\npatiense')
    with pytest.raises(UserError, match=r"protocol\.patiense = .* did you mean 'patience'\?"):
        load_scenario(write(own.parent, text))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    message = refusal("gosip")
    known = ", ".join(list_protocols())
    assert message.startswith(f'protocol.name = "gosip": must be one of {known}, ')
    assert "afl, cga, " in known
    assert message.endswith("package.module:Class, or my_file.py:Class; did you mean 'gossip'?")


@pytest.mark.parametrize("name", ["client", "settings", "Gossip", ""])
def test_only_protocols_are_known(name: str) -> None:
    assert "must be one of" in refusal(name)


def test_a_missing_class_is_answered_with_those_of_the_file(own: Path) -> None:
    message = refusal("own.py:Mime", own.parent)
    assert "own.py has no protocol class (subclass of Client) called 'Mime'" in message
    assert message.endswith("must be one of Mine, Theirs; did you mean 'Mine'?")


@pytest.mark.parametrize("name", ["Helper", "Note", "dataclass", "Client"])
def test_another_class_is_no_protocol(own: Path, name: str) -> None:
    complaint = f"has no protocol class (subclass of Client) called {name!r}"
    assert complaint in refusal(f"own.py:{name}", own.parent)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "scenarios"
    folder.mkdir()
    message = refusal("none.py:Mine", folder)
    assert f"no file {tmp_path / 'none.py'} or {folder / 'none.py'}" in message


_SETTINGS = "from actors.settings.base import Settings"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nowhere_at_all\n", "(line 1): ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("\n\nclass Broken(\n", "(line 3): SyntaxError"),
        ("x = 1\n\nraise RuntimeError('not today')\n", "(line 3): RuntimeError: not today"),
        (
            f"{_SETTINGS}\nclass Odd:\n    pass\n\nclass Mine(Settings):\n    odd: Odd\n",
            "(line 5): PydanticSchema",
        ),
    ],
)
def test_a_file_that_fails_names_its_line(tmp_path: Path, source: str, complaint: str) -> None:
    (tmp_path / "broken.py").write_text(source)
    for _ in range(2):  # a failed load leaves nothing behind
        assert f"broken.py cannot be loaded {complaint}" in refusal("broken.py:Mine", tmp_path)


def test_a_missing_package() -> None:
    assert "nowhere.at_all cannot be loaded: ModuleNotFoundError" in refusal("nowhere.at_all:Mine")


# --- modules beside a protocol's file -----------------------------------------------------------------------

BESIDE = """\
import typing
from protocols.decentralized.local import Local
import loader_beside.inner as inner
from loader_beside import *
from loader_beside.deeper.lowest import NAME

class Own(Local):
    name, note, public = NAME, inner.Note, PUBLIC

    @staticmethod
    def later():
        import loader_helper
        return loader_helper.VALUE, typing.get_type_hints(inner.Note)
"""


def beside(folder: Path, value: int) -> Path:
    """A protocol with a package and a module beside it, which it imports at once and later on."""
    for name, text in {
        "own.py": BESIDE,
        "loader_helper.py": f"VALUE = {value}\n",
        "loader_beside/__init__.py": "PUBLIC = 1\n",
        "loader_beside/inner.py": (
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "from . import sibling\nimport own\n"
            "@dataclass(frozen=True)\nclass Note:\n    kind: sibling.Kind\n"
        ),
        "loader_beside/sibling.py": f"class Kind:\n    value = {value}\n",
        "loader_beside/deeper/lowest.py": f"NAME = 'lowest {value}'\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "own.py"


def test_two_protocols_have_neighbours_of_one_name(tmp_path: Path) -> None:
    """Whatever is imported when, the one that was loaded last gets those beside itself."""
    files = [beside(tmp_path / f"of_{i}", i) for i in (1, 2)]
    for i in (1, 2, 1, 2):
        learner: Any = find(f"{files[i - 1]}:Own")
        value, hints = learner.later()
        assert (value, hints["kind"].value, learner.name, learner.public) == (i, i, f"lowest {i}", 1)
        module = sys.modules[learner.note.__module__]
        assert module.__file__ == str(tmp_path / f"of_{i}" / "loader_beside" / "inner.py")
        assert module.own.Own is learner  # type: ignore[attr-defined]


def test_files_of_one_folder_share_their_neighbours(tmp_path: Path) -> None:
    first: Any = find(f"{beside(tmp_path / 'here', 1)}:Own")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "loader_other.py").write_text(OWN)
    find(f"{tmp_path / 'elsewhere' / 'loader_other.py'}:Mine")
    assert sys.modules[first.note.__module__] is sys.modules["loader_beside.inner"]
    assert find(f"{tmp_path / 'here' / 'own.py'}:Own") is first


def test_an_edited_neighbour_is_loaded_anew(tmp_path: Path) -> None:
    file = beside(tmp_path, 1)
    first: Any = find(f"{file}:Own")
    assert find(f"{file}:Own") is first
    assert first.later()[0] == 1
    (tmp_path / "loader_helper.py").write_text("VALUE = 2\n")
    second: Any = find(f"{file}:Own")
    assert second is not first and second.later()[0] == 2
    assert not [*tmp_path.rglob("__pycache__")]


def test_a_file_with_the_name_of_one_of_pythons_is_refused(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text(OWN)
    assert "random.py has the name of another Python module, random; rename the file" in refusal(
        "random.py:Mine", tmp_path
    )


def test_a_folder_beside_it_hides_no_installed_package(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "random.py").write_text("")
    (tmp_path / "own.py").write_text(f"from numpy import random, zeros\n{OWN}")
    assert find(f"{tmp_path / 'own.py'}:Mine").__name__ == "Mine"


def test_a_failed_neighbour_can_be_mended(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"import loader_broken\n{OWN}")
    (tmp_path / "loader_broken.py").write_text("1 / 0\n")
    assert "own.py cannot be loaded (line 1): ZeroDivisionError" in refusal("own.py:Mine", tmp_path)
    assert "loader_broken" not in sys.modules
    (tmp_path / "loader_broken.py").write_text("")
    assert find("own.py:Mine", tmp_path).__name__ == "Mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_neighbour_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"import loader_locked\n{OWN}")
    (tmp_path / "loader_locked.py").touch(mode=0)
    assert f"{tmp_path / 'loader_locked.py'} cannot be read: Permission denied" in refusal(
        "own.py:Mine", tmp_path
    )


@pytest.mark.parametrize(("given", "word"), [("nan", "nan"), ("true", "true"), ("sing", None)])
def test_a_word_that_is_no_text_without_quotes(tmp_path: Path, given: str, word: str | None) -> None:
    lines = ["from typing import Literal", "from protocols.framework.client import Client", "", ""]
    lines += ["class Attacker(Client):", "    class Settings(Client.Settings):"]
    lines += ["        attack: Literal['sign', 'nan', 'true'] = 'sign'", ""]
    lines += ["    async def step(self):", "        await self.sleep(1)", ""]
    (tmp_path / "attacker.py").write_text("\n".join(lines), encoding="utf-8")
    path = write(
        tmp_path, changed(SMALL, 'name = "gossip"\nperiod = "500 ms"', 'name = "attacker.py:Attacker"')
    )
    with pytest.raises(UserError) as error:
        load_scenario(path, [f"protocol.attack={given}"])
    told = str(error.value).partition("(from --set): must be one of sign, nan, true; ")[2]
    if word is None:
        assert told == "did you mean 'sign'?"
        return
    assert told == f'put the word in quotes, "{word}": --set \'protocol.attack="{word}"\''
    assert load_scenario(path, [f'protocol.attack="{word}"']).protocol.settings.attack == word  # type: ignore[attr-defined]
