"""Every kind of every key of a world is stated in a test: a new one is not added without."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from actors.settings.tables import tagged
from sim.learning.data.kinds import Data
from sim.learning.models.kinds import Model
from sim.world.bandwidths import ClientBandwidth
from sim.world.churn.sessions import SessionLength
from sim.world.devices.speeds import Speed, StepTime
from sim.world.loss.kinds import Loss
from sim.world.membership.kinds import Membership
from sim.world.topology.kinds import Topology

TESTS = Path(__file__).parents[1]
UNIONS: dict[str, tuple[Any, str]] = {
    "loss": (Loss, "tests/world/test_loss.py"),
    "bandwidth": (ClientBandwidth, "tests/world/test_network_building.py"),
    "step time": (StepTime, "tests/world/test_devices.py"),
    "speed": (Speed, "tests/world/test_devices.py"),
    "length of sessions": (SessionLength, "tests/world/test_churn_processes.py"),
    "topology": (Topology, "tests/world/test_topology.py"),
    "membership": (Membership, "tests/world/test_membership.py"),
    "data set": (Data, "tests/learning/test_datasets.py"),
    "model": (Model, "tests/learning/test_models.py"),
}
"""The kinds of each key, and the file for tests of a new one. Latencies, distributions, partitions and churn
processes are tested one by one, in lists of their own files."""


@cache
def text_of_tests() -> str:
    folders = ("learning", "own", "simulation", "world", "protocols")
    files = [file for folder in folders for file in sorted((TESTS / folder).glob("*.py"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file != Path(__file__))


@pytest.mark.parametrize("what", UNIONS)
def test_every_kind_is_stated_in_a_test(what: str) -> None:
    kinds, file = UNIONS[what]
    for tag, section in tagged(kinds).items():
        is_stated = re.search(rf"""\b{section.__name__}\b|["'=]{tag}["']""", text_of_tests()) is not None
        assert is_stated, f'add a test of the {what} "{tag}" to {file}'
