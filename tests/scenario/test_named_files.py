"""Files that a scenario names are found by the type of their key."""

from pathlib import Path

import pytest

from sim.files.named_files import FileNameKey
from sim.plugins.point import annotated
from sim.scenario.resolved import digest, digests_of_files
from sim.scenario.scenario import load_scenario
from sim.scenario.sections import Sections
from tests.scenario.texts import SMALL, changed, write

PROTOCOL = """\
from protocols.framework.client import Client
from sim.files.named_files import BesideFile, DataFile


class Mine(Client):
    class Settings(Client.Settings):
        hospitals: TYPE = ""

    async def step(self):
        await self.sleep(1.0)
"""


@pytest.mark.parametrize("kind", ["DataFile", "BesideFile", "DataFile | None"])
def test_the_content_of_a_file_under_a_new_key_is_in_the_digest(tmp_path: Path, kind: str) -> None:
    write(tmp_path, PROTOCOL.replace("TYPE", kind), "mine.py")
    write(tmp_path, "first", "list.csv")
    name = 'name = "mine.py:Mine"\nhospitals = "list.csv"'
    text = changed(SMALL, 'name = "gossip"\nperiod = "500 ms"', name)
    before = load_scenario(write(tmp_path, text))
    digests = digest(before), digests_of_files(before)
    assert digests[1].keys() == {"list.csv"}
    write(tmp_path, "second", "list.csv")
    after = load_scenario(tmp_path / "small.toml")
    assert (digest(after) != digests[0]) and digests_of_files(after) != digests[1]


def test_keys_of_files_have_the_type_of_one() -> None:
    keys = {path.rpartition(".")[2] for path in annotated(Sections, FileNameKey)}
    assert keys == {"file", "test_file", "validation_file", "path", "source", "tokenizer", "base", "start"}
