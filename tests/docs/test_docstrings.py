"""The examples in docstrings of what methods are written with: each does what it shows."""

import doctest
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from actors import actor
from protocols import Client, Vector
from protocols.framework import client, node, per_peer, privacy, vectors
from tests.protocols.worlds import QUADRATIC, learner, make


@dataclass(frozen=True)
class Greeting:
    """A question, and the answer to it."""

    words: str


@dataclass(frozen=True)
class Note:
    """Something that is collected."""

    number: int


class Example(Client):
    """Waits for the examples, which are run beside; the others have told client 0 something."""

    collected = (Note,)

    async def run(self) -> None:
        if self.name != "client-0":
            self.tell("client-0", Note(int(self.name[-1])))

    async def on_message(self, message: object, sender: str) -> object:
        return Greeting(f"{message.words}, {sender}") if isinstance(message, Greeting) else None


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    """What the examples may use: a client, how to wait for what is awaited elsewhere, a model, messages."""
    with closing(make(QUADRATIC, f"protocol.name={__name__}:Example", "clients.count=3")) as world:
        world.begin()
        world.loop.run_until(1.0)
        one = learner(world, 0)
        model: Vector = one.vector([1.0, 2.0, 3.0])
        yield {
            "client": one,
            "wait": world.loop.run_until_complete,
            "model": model,
            "Greeting": Greeting,
            "Note": Note,
            "torch": torch,
        }


MODULES = {actor: 3, node: 5, client: 1, vectors: 1, per_peer: 1, privacy: 1}
ROOT = Path(__file__).parents[2]


def test_all_modules_with_examples_are_tried() -> None:
    files = [path for room in ("actors", "protocols", "sim") for path in (ROOT / room).rglob("*.py")]
    found = {path for path in files if ">>> " in path.read_text(encoding="utf-8")}
    assert found == {Path(str(module.__file__)) for module in MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_examples_do_what_they_show(names: dict[str, Any], module: Any) -> None:
    found = [each for each in doctest.DocTestFinder().find(module) if each.examples]
    assert len(found) == MODULES[module]
    runner = doctest.DocTestRunner()
    for each in found:
        each.globs.update(names)
        told: list[str] = []
        runner.run(each, out=told.append)
        assert not told, "".join(told)
