"""User-defined partitions: lists of sample numbers, from a file or a function, which are checked."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sim.errors import FAILURES, UserError
from sim.files.input_file import InputFile
from sim.files.named_files import DataFile
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels
from sim.learning.partitions.partition import Partition, PartitionSection
from sim.plugins.section import PluginSection, first_error_line

PARTS = ("train", "test", "validation")
_FORM = "a list of sample numbers for each client, or a table of lists: train, optionally test and validation"

Refuse = Callable[[str], UserError]
_ARRAY = rf"({'|'.join(PARTS)})_\d+"


class FromFile(PartitionSection):
    """Partition from a file with the sample numbers of each client, as JSON or as .npz."""

    needs_classes = False

    kind: Literal["file"]
    path: DataFile
    """The file. JSON: for each client a list of the numbers of its training samples, or a table of these
    lists: train, and optionally test and validation. An .npz file contains the arrays train_0, train_1, ...,
    test_0, ..., validation_0, .... Numbers start at 0; the validation samples are training samples that are
    held back. The path is relative to the current folder or, if it does not exist there, to the folder of the
    scenario."""
    overlap: bool = False
    """True: a training sample may belong to several clients."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        file = InputFile("data.partition.path", Path(self.path))
        found = _arrays(file) if file.path.suffix == ".npz" else file.json()
        return partition_from_lists(found, labels, clients, overlap=self.overlap, refuse=file.refusal)


def _arrays(file: InputFile) -> dict[str, list[Any]]:
    """Return the arrays part_0, part_1, ... of each part, in order."""
    counts = Counter([match[1] for name in file.names() if (match := re.fullmatch(_ARRAY, name))])
    if not counts:
        raise file.refusal("has no array train_0; needs train_0, train_1, ..., one for each client")
    return {
        part: file.arrays(*[f"{part}_{client}" for client in range(count)]) for part, count in counts.items()
    }


class OwnPartition(PluginSection, PartitionSection):
    """Your own function returns the sample numbers of each client."""

    provided = ("rng", "labels", "test_labels", "clients")

    needs_classes = False

    kind: str
    overlap: bool = False
    """True: a training sample may belong to several clients."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Call the function with a random generator from the seed, the labels, and the number of clients."""
        try:
            found = self.call(
                rng=stream(seed, "partition", "own"),
                labels=labels.train.copy(),  # the function may change its copy
                test_labels=labels.test.copy(),
                clients=clients,
            )
        except FAILURES as error:
            raise self.refusal(f"failed: {first_error_line(error)}", error) from error
        return partition_from_lists(found, labels, clients, overlap=self.overlap, refuse=self._refuse)

    def _refuse(self, problem: str) -> UserError:
        return self.refusal(f"returned unusable lists: {problem}")


def partition_from_lists(
    found: Any, labels: Labels, clients: int, *, overlap: bool, refuse: Refuse
) -> Partition:
    """Return the partition from lists of sample numbers, one for each client, or a table of lists by part.

    Numbers start at 0 in training and test. Validation lists number the training samples first, then the
    samples of the validation part of the data; they are required if the data has such a part. Without test
    lists, all clients are tested on all test samples. A list must not be empty, nor contain a sample twice. A
    training sample belongs to at most one client, unless `overlap`. Raises the error that `refuse` makes of a
    problem.
    """
    parts = found if isinstance(found, Mapping) else {"train": found}
    if "train" not in parts or set(parts) - set(PARTS):
        raise refuse(f"has {', '.join(map(repr, parts)) or 'nothing':.60}; must be {_FORM}")
    train, test, held_back = len(labels.train), len(labels.test), len(labels.validation)
    counts = {"train": train, "test": test, "validation": train + held_back}
    rows = {name: _checked(lists, name, clients, counts[name], refuse) for name, lists in parts.items()}
    if held_back and "validation" not in rows:
        raise refuse(
            "has no validation lists, but the data set has a validation part; also distribute this part"
        )
    _require_disjoint_lists(rows, overlap, refuse)
    everything = (np.arange(len(labels.test)),) * clients
    return Partition(rows["train"], rows.get("test", everything), validation=rows.get("validation"))


def _checked(lists: Any, name: str, clients: int, samples: int, refuse: Refuse) -> tuple[np.ndarray, ...]:
    if not isinstance(lists, Sequence | np.ndarray) or isinstance(lists, str | bytes):
        kind = type(lists).__name__
        raise refuse(f"{name} is of type {kind}; must be a list of sample numbers for each client")
    if len(lists) != clients:
        raise refuse(
            f"{name} has lists for {len(lists):,} clients; must have {clients:,}, as in clients.count"
        )
    return tuple([_row(row, f"{name}[{client}]", samples, refuse) for client, row in enumerate(lists)])


def _row(row: Any, name: str, samples: int, refuse: Refuse) -> np.ndarray:
    """Return the numbers of one list, ascending."""
    try:
        numbers = np.asarray(row)
    except Exception:  # lists of different lengths; errors of __array__
        numbers = np.empty(0, dtype=object)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise refuse(
            f"{name} has type {numbers.dtype} and shape {numbers.shape}; must be a list of whole "
            "numbers, at least one"
        )
    bad = np.flatnonzero((numbers < 0) | (numbers >= samples))
    if len(bad):
        raise refuse(f"{name}[{bad[0]}] is {numbers[bad[0]]}; must be from 0 to {samples - 1:,}")
    if (twice := _first_duplicate(numbers)) is not None:
        raise refuse(f"{name} contains the sample {twice} twice; list it once")
    return np.sort(numbers.astype(np.int64))


def _require_disjoint_lists(
    rows: Mapping[str, tuple[np.ndarray, ...]], overlap: bool, refuse: Refuse
) -> None:
    """Require that no validation sample is trained on, and that none is shared unless `overlap`."""
    held = list(rows["train"])
    if "validation" in rows:
        held = [np.concatenate(pair) for pair in zip(held, rows["validation"], strict=True)]
    for client, own in enumerate(held) if "validation" in rows else ():
        if (twice := _first_duplicate(own)) is not None:
            raise refuse(f"client {client} has the sample {twice} in train and in validation; list it once")
    if not overlap and (sample := _first_duplicate(np.concatenate(held))) is not None:
        both = [client for client, own in enumerate(held) if sample in own][:2]
        raise refuse(
            f"clients {both[0]} and {both[1]} both have the sample {sample}; assign it to one client, or set "
            "data.partition.overlap = true"
        )


def _first_duplicate(numbers: np.ndarray) -> int | None:
    """Return the smallest number that occurs more than once, if any."""
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts > 1][0]) if (counts > 1).any() else None
