"""Backbones of decoupled models, and their assignment to clients."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, assert_never

from sim.kernel.random import stream

# The small ones are coterie's, for quick experiments; lenet is pFedHN's, the others are MAPL's.
BACKBONES: Mapping[str, int | None] = {
    "small-mlp": None,
    "deep-mlp": None,
    "small-cnn": 8,
    "deep-cnn": 8,
    "small-resnet": 8,
    "lenet": 16,
    "alexnet": 16,
    "resnet18": 28,
    "shufflenet": 28,
    "googlenet": 28,
}
"""Smallest side of images for each backbone; None for a backbone that takes samples of any shape."""

ANY_SHAPE = tuple(name for name, smallest_image in BACKBONES.items() if smallest_image is None)

Assignment = Literal["in-turn", "random", "by-speed"]
"""Assignment of backbones to clients."""

if TYPE_CHECKING:
    BackboneName = str
else:
    BackboneName = Literal[tuple(BACKBONES)]


def client_backbones(
    assign: Assignment, backbones: Sequence[str], count: int, seed: int, speeds: Sequence[float]
) -> list[str]:
    """Return the backbone of each of `count` clients.

    assign: "in-turn": client i has backbone number i mod len(backbones). "random": each client draws one from
    its random stream. "by-speed": the slowest clients have the first backbone, the fastest the last, in equal
    parts up to rounding. speeds: [count], larger is faster, only for "by-speed".
    """
    kinds = len(backbones)
    match assign:
        case "in-turn":
            indices = [client % kinds for client in range(count)]
        case "random":
            indices = [int(stream(seed, "backbone", client).integers(kinds)) for client in range(count)]
        case "by-speed":
            slowest_first = sorted(range(count), key=lambda client: (speeds[client], client))
            indices = [0] * count
            for rank, client in enumerate(slowest_first):
                indices[client] = rank * kinds // count
        case _:
            assert_never(assign)
    return [backbones[index] for index in indices]
