"""Image data sets with damaged files."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz import damage, data
from tests.fuzz.case import Commands, Kind
from tests.fuzz.tables import shown
from tests.fuzz.values import odd_value

SCENARIO = """\
[run]
iterations = 2
evaluate_every = "1 iterations"
[clients]
count = 4
[data]
name = "{data}"
partition = "iid"
[model]
name = "{model}"
[training]
learning_rate = 0.1
batch_size = 8
[protocol]
name = "gossip"
[network]
latency = "20 ms"
uplink = "unlimited"
downlink = "unlimited"
[devices]
step_time = "100 ms"
"""
Content = Any
"""What a file holds: an array, a table of arrays, a pickled batch, or bytes that are none of these."""


@dataclass
class Folder:
    """The files of a data set, by name, before they are packed; then what happens to the packed files."""

    data: str
    model: str
    place: str
    suffix: str
    files: dict[str, Content]
    afterwards: list[Callable[[Path], object]] = field(default_factory=list)


_SETS: dict[str, tuple[str, tuple[str, ...], Callable[[np.random.Generator], dict[str, Content]]]] = {
    "mnist": ("MNIST/raw", ("", ".gz", ".xz"), data.grey_images),
    "fashion-mnist": ("fashion-mnist/FashionMNIST/raw", (".gz", ".gz", ".xz"), data.grey_images),
    "cifar-10": ("cifar-10-batches-py", ("", ".xz"), lambda rng: data.cifar_batches(rng, fine=False)),
    "cifar-100": ("cifar-100-python", ("", ".xz"), lambda rng: data.cifar_batches(rng, fine=True)),
    "cifar-100 arrays": ("cifar-100-subset", ("", ".xz"), data.cifar_arrays),
}


class Images(Kind):
    """MNIST, Fashion-MNIST, CIFAR-10 or CIFAR-100 on disk, with bytes, arrays, labels or files spoiled."""

    name = "image"

    def begin(self, folder: Path, rng: Random) -> Folder:
        chosen = rng.choice(list(_SETS))
        place, suffixes, make = _SETS[chosen]
        files = make(np.random.default_rng(rng.randrange(2**32)))
        model = rng.choice(("logistic-regression", "mlp", "cnn"))
        return Folder(chosen.partition(" ")[0], model, place, rng.choice(suffixes), files)

    def change(self, state: Folder, rng: Random) -> str:
        name = rng.choice(list(state.files))
        match rng.choice(
            ("array", "array", "array", "array", "bytes", "packed", "file", "swap", "bomb", "other")
        ):
            case "array":
                state.files[name], how = _damaged(state.files[name], rng)
                return f"{name}: {how}"
            case "bytes":
                state.files[name], how = damage.of_bytes(_bytes(name, state.files[name]), rng)
                return f"{name}: {how}"
            case "packed":
                state.afterwards.append(lambda path: _damage_packed(path / f"{name}{state.suffix}", rng))
                return f"{name}{state.suffix}: damaged"
            case "file":
                state.afterwards.append(lambda path: damage.of_file(path / f"{name}{state.suffix}", rng))
                return f"{name}{state.suffix}: something else in its place"
            case "swap":
                other = rng.choice(list(state.files))
                state.files[name], state.files[other] = state.files[other], state.files[name]
                return f"{name} and {other} swapped"
            case "bomb":
                suffix = rng.choice((".gz", ".xz"))
                state.afterwards.append(lambda path: _bomb(path, name, state.suffix, suffix))
                return f"{name}{suffix}: 3 GB of zeros"
        if name in state.files:
            state.files[name] = pickle.dumps(odd_value(rng), protocol=2)
        return f"{name}: a pickle of something else"

    def commands(self, state: Folder) -> Commands:
        Path("data").unlink()
        path = Path("data", state.place)
        path.mkdir(parents=True)
        for name, content in state.files.items():
            packed = data.packed(_bytes(name, content), state.suffix)
            (path / f"{name}{state.suffix}").write_bytes(packed)
        for spoil in state.afterwards:
            spoil(path)
        text = SCENARIO.format(data=state.data, model=state.model)
        Path("scenario.toml").write_text(text, encoding="utf-8")
        return [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


def _bytes(name: str, content: Content) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, np.ndarray):
        return data.npy(content) if name.endswith(".npy") else data.idx(content)
    if isinstance(content, dict) and name.endswith(".npz"):
        return data.npz(content)
    return pickle.dumps(content, protocol=2)


def _damaged(content: Content, rng: Random) -> tuple[Content, str]:
    """An array, or what a batch or a table of arrays holds, spoiled."""
    if isinstance(content, np.ndarray):
        return damage.of_array(content, rng)
    if isinstance(content, bytes) or not isinstance(content, dict) or not content:
        return odd_value(rng), "something else"
    key = rng.choice(list(content))
    if not rng.randrange(6):
        return {other: value for other, value in content.items() if other != key}, f"without {key!r}"
    if not rng.randrange(8):
        value = odd_value(rng)
        return {**content, key: value}, f"{key!r} = {shown(value)}"
    array, how = damage.of_array(np.asarray(content[key]), rng)
    as_list = isinstance(content[key], list) and rng.randrange(3)
    return {**content, key: array.tolist() if as_list else array}, f"{key!r}: {how}"


def _damage_packed(path: Path, rng: Random) -> None:
    if damage.can_be_read(path):
        path.write_bytes(damage.of_bytes(path.read_bytes(), rng)[0])


def _bomb(folder: Path, name: str, before: str, suffix: str) -> None:
    """A small file that is 3 GB long when it is unpacked: its parts may follow each other."""
    path = folder / f"{name}{before}"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    (folder / f"{name}{suffix}").write_bytes(data.packed(bytes(30_000_000), suffix) * 100)
