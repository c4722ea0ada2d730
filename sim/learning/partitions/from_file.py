"""Who has which samples, from a file."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sim.files.input_file import InputFile
from sim.learning.partitions.dealing import Labels
from sim.learning.partitions.lists import PARTS, partition_of
from sim.learning.partitions.partition import Partition, PartitionSection

_JSON_MAX_BYTES = 64 * 2**20  # in memory they take ten times as much


class FromFile(PartitionSection):
    """From a file: the numbers of each client's samples, as JSON or as .npz."""

    needs_classes = False

    kind: Literal["file"]
    path: str
    """The file. JSON: a list for each client of the numbers of its training samples, or a table of such
    lists: train, and, if the file says so, test and validation. An .npz file has the arrays train_0, train_1,
    ..., test_0, ..., validation_0, .... Numbers begin at 0; those of validation are training samples that are
    held back. A path is relative to the current folder, or else to the scenario's."""
    overlap: bool = False
    """Whether a training sample may belong to several clients."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        file = InputFile("data.partition.path", Path(self.path))
        found = _arrays(file) if file.path.suffix == ".npz" else file.parsed(partial(_lists, file), "JSON")
        return partition_of(found, labels, clients, overlap=self.overlap, refuse=file.refusal)


def _lists(file: InputFile, content: bytes) -> Any:
    if len(content) > _JSON_MAX_BYTES:
        most = _JSON_MAX_BYTES // 2**20
        raise file.refusal(f"has more than {most} MiB of JSON; must have less, or be an .npz file")
    return json.loads(content)


def _arrays(file: InputFile) -> dict[str, list[Any]]:
    """The arrays part_0, part_1, ... of each part, in order."""
    places: dict[str, dict[int, str]] = {}
    for name in file.names():
        if match := re.fullmatch(rf"({'|'.join(PARTS)})_(\d{{1,7}})", name):
            places.setdefault(match[1], {})[int(match[2])] = name
    if not places:
        raise file.refusal("has no array train_0; must have train_0, train_1, ..., one for each client")
    found = {}
    for part, by_client in places.items():
        missing = [f"{part}_{client}" for client in range(len(by_client)) if client not in by_client]
        if missing:
            raise file.refusal(f"has {len(by_client)} arrays of {part}, but no {missing[0]}")
        found[part] = file.arrays(*[by_client[client] for client in range(len(by_client))])
    return found
