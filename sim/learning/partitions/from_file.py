"""Who has which samples, from a file."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from sim.files.input_file import InputFile
from sim.learning.partitions.dealing import Labels
from sim.learning.partitions.lists import PARTS, partition_of
from sim.learning.partitions.partition import Partition, PartitionSection

_ARRAY = rf"({'|'.join(PARTS)})_\d+"


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
        found = _arrays(file) if file.path.suffix == ".npz" else file.parsed(json.loads, "JSON")
        return partition_of(found, labels, clients, overlap=self.overlap, refuse=file.refusal)


def _arrays(file: InputFile) -> dict[str, list[Any]]:
    """The arrays part_0, part_1, ... of each part, in order."""
    counts = Counter([match[1] for name in file.names() if (match := re.fullmatch(_ARRAY, name))])
    if not counts:
        raise file.refusal("has no array train_0; must have train_0, train_1, ..., one for each client")
    return {
        part: file.arrays(*[f"{part}_{client}" for client in range(count)]) for part, count in counts.items()
    }
