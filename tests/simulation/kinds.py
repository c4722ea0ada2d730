"""Scenarios of all kinds whose parts must work in other processes, and from any checkpoint."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.learning.test_llama import LLAMA
from tests.simulation import test_language_models as languages
from tests.simulation.worlds import DIGITS, write

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
LOW_RANK = EXAMPLES / "models/low_rank.py"

LINK = """\
time_s,mbit_per_s,latency_ms,loss
0,2,20,0
0.4,0,60,1
0.7,0.5,300,0.3
1.1,2,20,0
"""
TABLES = """
[[network.override]]
clients = [2]
uplink = { kind = "table", file = "link.csv", offset = "0 s" }
latency = { kind = "table", file = "link.csv", offset = "0 s", jitter = 0.2 }
loss = { kind = "table", file = "link.csv", offset = "0 s" }
"""
OVERRIDES = """
[[training.override]]
clients = [1]
learning_rate = 0.02
batch_size = 5

[[training.override]]
clients = [2, 3]
optimizer = "adam"
learning_rate = 0.01
"""


def tables(folder: Path) -> tuple[Path, list[str]]:
    write(folder, LINK, "link.csv")
    every = ("uplink", "downlink", "latency", "loss")
    keys = [f'network.{key}={{ kind = "table", file = "link.csv" }}' for key in every]
    return write(folder, DIGITS + TABLES), keys


def overrides(folder: Path) -> tuple[Path, list[str]]:
    return write(folder, DIGITS + OVERRIDES), []


def groups(method: str) -> Callable[[Path], tuple[Path, list[str]]]:
    def of_ranks(folder: Path) -> tuple[Path, list[str]]:
        two, one = [f'{{ name = "{LOW_RANK}:LowRank", rank = {rank} }}' for rank in (2, 1)]
        group = f"model_group=[{{ clients = [1, 4], model = {one} }}]"
        stated = [f"protocol.name={method}", "protocol.local_steps=2", f"model={two}", group]
        return write(folder, DIGITS), stated

    return of_ranks


def llama(folder: Path) -> tuple[Path, list[str]]:
    shutil.copytree(LLAMA, folder / "llama")
    stated = ["model.base=llama", "data.tokenizer=characters", "data.context=7"]
    return languages.world(folder), stated


def choice(folder: Path) -> tuple[Path, list[str]]:
    method = f"protocol.name={EXAMPLES / 'oort.py'}:Oort"
    return write(folder, DIGITS), [method, "protocol.fraction=0.5", "protocol.local_steps=2"]


KINDS: dict[str, Callable[[Path], tuple[Path, list[str]]]] = {
    "tables of bandwidth, latency and loss": tables,
    "training of some clients": overrides,
    "ranks with FlexLoRA": groups("flexlora"),
    "ranks with FLoRA": groups("flora"),
    "adapters on Llama": llama,
    "choice of clients": choice,
}
"""Functions that write a scenario into a folder, and return its file and its overrides."""
