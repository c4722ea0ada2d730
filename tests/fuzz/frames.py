"""Frames of bytes for a process of a live run, damaged or lies: nothing but refusals, each counted.

``python -m tests.fuzz.frames --frames 1000000 --lies 100000``
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from actors.message import Envelope, LastingQuestion, Question, RepeatRequest, RoundMark
from actors.tcp.frames import FrameError, FrameReader, with_length_header
from protocols.decentralized.gossip import Gossip
from sim.learning.engine import Engine
from sim.live.codec import codec_for_actors
from sim.live.loop import LiveLoop
from sim.live.network import LiveNetwork
from sim.live.wire import FrameHeader
from sim.world.distributions import Constant
from sim.world.network_model import ConnectionModel, NetworkModel

LARGEST_BYTES = 2**20
_PROCESS_OF = {"client-0": "process-0", "client-1": "process-1"}


@dataclass(frozen=True)
class Anything:
    """A message that may hold whatever can be encoded."""

    content: Any


@dataclass
class Target:
    """A process with one actor, to which the other process sends what it likes."""

    engine: Engine
    came: list[Envelope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = LiveLoop(lambda: 1e9)
        self.network = LiveNetwork(self.loop, 1, NetworkModel(ConnectionModel(Constant(value=0.0))))
        self.codec = codec_for_actors([Gossip, Anything], self.engine)
        self.network.join(None, "process-0", _PROCESS_OF, self.codec)  # type: ignore[arg-type]
        self.network.attach("client-0", self.came.append)

    def take(self, content: bytes, number: int) -> None:
        """What came in a frame from process-1."""
        self.network.received("process-1", FrameHeader(number, 0.0, 0.0), content)

    @property
    def refused(self) -> int:
        return sum(self.network.refused.values())


def genuine(engine: Engine, rng: Random) -> Envelope:
    """A message as clients send them."""
    vector = engine.vector(_floats(rng, 15))
    contents: list[Callable[[], Any]] = [lambda: vector, lambda: (1, "a", 2.5, None), lambda: {"a": vector}]
    request = rng.choice((None, 3, Question(1, 0, 0, 1.0), LastingQuestion(2, 1, 0, 0.5), RoundMark(4)))
    return Envelope("client-1", "client-0", Anything(rng.choice(contents)()), request)


def lie(engine: Engine, rng: Random) -> Envelope:
    """A well-formed message that no actor would send."""
    right = genuine(engine, rng)
    odd: tuple[Any, ...] = (None, 7, -1, 2.5, "", "client-9", b"client-0", (), {"client-0": 1}, float("nan"))
    sender, receiver, message = right.sender, right.receiver, right.message
    request, answer_to, error = right.request, right.answer_to, right.error
    match rng.randrange(6):
        case 0:
            sender = rng.choice((*odd, "client-0"))
        case 1:
            receiver = rng.choice((*odd, "client-1"))
        case 2:
            request = rng.choice((-1, 2.5, "x", (), Question(-1, 0, 0, 1.0), RoundMark(-3), RoundMark(1, 2)))  # type: ignore[arg-type]
        case 3:
            answer_to = rng.choice((RoundMark(1), "x", -2, Question(0, 0, 0, float("nan"))))  # type: ignore[assignment]
        case 4:
            error = rng.choice((7, (), b"x"))
        case 5:
            wrong = (_floats(rng, 16), np.full(15, np.nan, np.float32), np.zeros((3, 5), np.float32))
            values = wrong[rng.randrange(3)]
            message = rng.choice(
                (_Handle(np.asarray(values)), RepeatRequest("X", -1, 0), RepeatRequest("", 0, 0))
            )
            request = None
    return Envelope(sender, receiver, message, request, answer_to, error)


class _Handle:
    """An array that says that it is a vector's handle."""

    immutable, dtype = True, "float32"

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values


def damaged(content: bytes, rng: Random) -> bytes:
    """The bytes with some changed, left out, repeated or put in."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0 if place < len(found):
                found[place] = rng.randrange(256)
            case 1:
                del found[place : place + rng.randint(1, 20)]
            case 2:
                found[place:place] = rng.randbytes(rng.randint(1, 8))
            case 3:
                found[place:place] = found[place : place + rng.randint(1, 40)]
    return bytes(found)


def try_frames(target: Target, count: int, rng: Random, what: Counter[str]) -> None:
    """Damaged frames, cut into pieces as a network does; every message that they hold is taken or refused."""
    good = [with_length_header([target.codec.encode(genuine(target.engine, rng))]) for _ in range(50)]
    for number in range(count):
        reader = FrameReader(LARGEST_BYTES)
        content = damaged(b"".join(rng.choice(good)), rng)
        cut = rng.randrange(len(content) + 1)
        before = target.refused
        try:
            frames = reader.feed(content[:cut]) + reader.feed(content[cut:])
        except FrameError:
            what["cut: no frame"] += 1
            continue
        for frame in frames:
            target.take(frame, number)
        refused = target.refused - before
        what["refused"] += refused
        what["taken"] += len(frames) - refused
        what["not whole"] += not frames
        assert reader.held_bytes <= len(content)


def try_lies(target: Target, count: int, rng: Random, what: Counter[str]) -> None:
    """Well-formed messages that no actor sends; none of them is taken."""
    for number in range(count):
        before = target.refused
        envelope = lie(target.engine, rng)
        target.take(target.codec._pack(envelope), number)
        assert target.refused == before + 1, envelope
        what["lies refused"] += 1


def _floats(rng: Random, count: int) -> Any:
    import torch

    return torch.tensor([rng.random() for _ in range(count)])


def main() -> int:
    """Try as many as are asked for."""
    from tests.learning.engines import new_engine

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--lies", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    target, what, began_s = Target(new_engine()), Counter[str](), time.monotonic()
    try_lies(target, options.lies, Random(options.seed), what)
    try_frames(target, options.frames, Random(options.seed + 1), what)
    took_s = time.monotonic() - began_s
    print(f"{options.frames:,} frames, {options.lies:,} lies in {took_s:.0f} s: {dict(what)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
