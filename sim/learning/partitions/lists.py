"""Partitions from lists of sample numbers, which are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sim.errors import UserError
from sim.learning.partitions.dealing import Labels
from sim.learning.partitions.partition import Partition

PARTS = ("train", "test", "validation")
_FORM = "a list of sample numbers for each client, or a table of such lists: train, and test and validation"

Refuse = Callable[[str], UserError]


def partition_of(found: Any, labels: Labels, clients: int, *, overlap: bool, refuse: Refuse) -> Partition:
    """The partition for lists of sample numbers, one for each client, or a table of such lists by part.

    Numbers begin at 0 in training and test. Validation numbers are training samples, and behind these the
    data's own validation part. Without test lists, all clients are tested on all test samples. A list must
    not be empty, nor have a sample twice. A training sample has one client, unless `overlap`. Raises what
    `refuse` makes of a problem.
    """
    parts = found if isinstance(found, Mapping) else {"train": found}
    if "train" not in parts or set(parts) - set(PARTS):
        raise refuse(f"has {', '.join(map(repr, parts)):.60}; must be {_FORM}")
    train, test, held_back = len(labels.train), len(labels.test), len(labels.validation)
    counts = {"train": train, "test": test, "validation": train + held_back}
    rows = {name: _checked(lists, name, clients, counts[name], refuse) for name, lists in parts.items()}
    if held_back and "validation" not in rows:
        raise refuse("has no validation, but the data have a validation part of their own; must share it out")
    _require_apart(rows, overlap, refuse)
    everything = (np.arange(len(labels.test)),) * clients
    return Partition(rows["train"], rows.get("test", everything), validation=rows.get("validation"))


def _checked(lists: Any, name: str, clients: int, samples: int, refuse: Refuse) -> tuple[np.ndarray, ...]:
    if not isinstance(lists, Sequence | np.ndarray) or isinstance(lists, str | bytes):
        raise refuse(f"{name} is a {type(lists).__name__}; must be a list of sample numbers for each client")
    if len(lists) != clients:
        raise refuse(
            f"{name} has lists for {len(lists):,} clients; must have {clients:,}, as clients.count says"
        )
    return tuple([_row(row, f"{name}[{client}]", samples, refuse) for client, row in enumerate(lists)])


def _row(row: Any, place: str, samples: int, refuse: Refuse) -> np.ndarray:
    """The numbers of one list, ascending."""
    try:
        numbers = np.asarray(row)
    except Exception:  # lists of different lengths; whatever their own __array__ does
        numbers = np.empty(0, dtype=object)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise refuse(
            f"{place} has the type {numbers.dtype} and the shape {numbers.shape}; must be a list of whole "
            "numbers, one at least"
        )
    bad = np.flatnonzero((numbers < 0) | (numbers >= samples))
    if len(bad):
        raise refuse(f"{place}[{bad[0]}] is {numbers[bad[0]]}; must be from 0 to {samples - 1:,}")
    if (twice := _twice(numbers)) is not None:
        raise refuse(f"{place} has the sample {twice} twice; must have it once")
    return np.sort(numbers.astype(np.int64))


def _require_apart(rows: Mapping[str, tuple[np.ndarray, ...]], overlap: bool, refuse: Refuse) -> None:
    """Require that validation samples are not trained on, and no training sample shared unless `overlap`."""
    validation = rows.get("validation", (np.empty(0, np.int64),) * len(rows["train"]))
    held = [np.concatenate(pair) for pair in zip(rows["train"], validation, strict=True)]
    for client, own in enumerate(held):
        if (twice := _twice(own)) is not None:
            raise refuse(f"client {client} has the sample {twice} in train and in validation; must be in one")
    if not overlap and (sample := _twice(np.concatenate(held))) is not None:
        both = [client for client, own in enumerate(held) if sample in own][:2]
        raise refuse(
            f"clients {both[0]} and {both[1]} both have the sample {sample}; must be one client's, or "
            "data.partition.overlap = true"
        )


def _twice(numbers: np.ndarray) -> int | None:
    """The least number that is there more than once, if there is one."""
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts > 1][0]) if (counts > 1).any() else None
