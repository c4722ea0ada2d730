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
    if unknown := [name for name in parts if name not in PARTS]:
        raise refuse(f"has {unknown[0]!r}; must be {_FORM}")
    if "train" not in parts:
        raise refuse(f"has no train; must be {_FORM}")
    held_back = len(labels.validation)
    counts = {
        "train": len(labels.train),
        "test": len(labels.test),
        "validation": len(labels.train) + held_back,
    }
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
    except (ValueError, TypeError, OverflowError, RuntimeError):
        raise refuse(f"{place} is no list of numbers") from None
    if numbers.size == 0:
        raise refuse(f"{place} is empty; each client must have samples")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        mask = "; np.flatnonzero makes numbers of a mask" if numbers.dtype.kind == "b" else ""
        raise refuse(
            f"{place} has the type {numbers.dtype} and the shape {numbers.shape}; must be a list of whole "
            f"numbers{mask}"
        )
    bad = np.flatnonzero((numbers < 0) | (numbers >= samples))
    if len(bad):
        raise refuse(f"{place}[{bad[0]}] is {numbers[bad[0]]}; must be from 0 to {samples - 1:,}")
    numbers = np.sort(numbers.astype(np.int64))
    twice = np.flatnonzero(numbers[1:] == numbers[:-1])
    if len(twice):
        raise refuse(f"{place} has the sample {numbers[twice[0]]} twice; must have it once")
    return numbers


def _require_apart(rows: Mapping[str, tuple[np.ndarray, ...]], overlap: bool, refuse: Refuse) -> None:
    """Require that validation samples are not trained on, and no training sample shared unless `overlap`."""
    validation = rows.get("validation", (np.empty(0, np.int64),) * len(rows["train"]))
    held = [np.concatenate(pair) for pair in zip(rows["train"], validation, strict=True)]
    for client, own in enumerate(held):
        values, counts = np.unique(own, return_counts=True)
        if (counts > 1).any():
            raise refuse(
                f"client {client} has the sample {values[counts > 1][0]} in train and in validation; must "
                "have it in one of them"
            )
    values, counts = np.unique(np.concatenate(held), return_counts=True)
    if not overlap and (counts > 1).any():
        sample = values[counts > 1][0]
        both = [client for client, own in enumerate(held) if sample in own][:2]
        raise refuse(
            f"clients {both[0]} and {both[1]} both have the sample {sample}; must be one client's, or "
            "data.partition.overlap = true"
        )
