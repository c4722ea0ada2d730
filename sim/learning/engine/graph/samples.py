"""Clients' data on the device: stored once, addressed by index."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.vector_pool import index_tensor

_STRIDE = 1021  # a prime, so that samples of usual sizes start at different residues
_STACKED_BYTES = 64 * 2**20  # largest second copy of the samples


class Subset:
    """Rows of the common tensors that each client owns in one role (training, validation, test).

    rows: the rows of one client after the other, or only the first client's rows if all own the same rows.
    label_maps: maps of each client, [clients, classes], or None.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        rows: Sequence[np.ndarray],
        label_maps: Tensor | None,
        output_numbers: int = 0,
    ) -> None:
        self.x = x
        self.y = y
        self.output_numbers = output_numbers
        self.sample_bytes = 4 * max(x[:1].numel(), output_numbers)
        """Bytes of a sample, or of a model's output for it if that is larger."""
        self.counts = np.array([len(owned) for owned in rows], dtype=np.int64)
        first = rows[0]
        self._all_equal = all(owned is first or np.array_equal(owned, first) for owned in rows)
        kept = rows[:1] if self._all_equal else rows  # equal rows are stored once
        self._offsets = np.cumsum(self.counts) - self.counts if len(kept) > 1 else np.zeros_like(self.counts)
        self.rows = index_tensor(np.concatenate([np.asarray(owned, np.int64) for owned in kept]), x.device)
        self.label_maps = label_maps

    @property
    def rows_of_each(self) -> list[np.ndarray]:
        """Rows that each client owns."""
        rows = self.rows.cpu().numpy()
        spans = zip(self._offsets.tolist(), self.counts.tolist(), strict=True)
        return [rows[first : first + count] for first, count in spans]

    @cached_property
    def stacked(self) -> tuple[Tensor, Tensor] | None:
        """Second copy of each client's samples, [clients, count, ...], and targets [clients, count, ...].

        Here a client's samples are adjacent, so reading all of them takes half the time. None unless all
        clients own the same number, and the copy is small and no larger than the data.
        """
        count, copied = int(self.counts[0]), int(self.counts.sum())
        small = copied <= len(self.x) and copied * (self.sample_bytes + 8) <= _STACKED_BYTES
        if not small or (self.counts != count).any():
            return None
        clients = np.arange(len(self.counts))
        return self.gather(clients, np.broadcast_to(np.arange(count), (len(clients), count)))

    def gather(self, clients: np.ndarray, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return samples x [N, B, ...] and targets y [N, B] at `positions` [N, B] of each client's data."""
        rows, y = self.look_up(clients, positions)
        return self.at(rows), y

    def look_up(self, clients: np.ndarray, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return rows [N, B], for `at`, and targets y [N, B] of the samples that `gather` returns."""
        where = index_tensor((self._offsets[clients][:, None] + positions).ravel(), self.x.device)
        rows = self.rows.index_select(0, where)  # several times faster than self.rows[where]
        y = self._labels(clients, self.y.index_select(0, rows).view(*positions.shape, *self.y.shape[1:]))
        return rows.view(positions.shape), y

    def at(self, rows: Tensor) -> Tensor:
        """Return the samples [N, B, ...] in these rows [N, B]."""
        return self.x.index_select(0, rows.view(-1)).view(*rows.shape, *self.x.shape[1:])

    def of_each(self, clients: np.ndarray, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return samples and targets y [N, B] at the same `positions` [B] of each client's data.

        Samples are x [N, B, ...], or [1, B, ...] if all clients own the same samples.
        """
        if not self._all_equal:
            return self.gather(clients, np.broadcast_to(positions, (len(clients), len(positions))))
        rows = self.rows.index_select(0, index_tensor(positions, self.x.device))
        y = self._labels(clients, self.y.index_select(0, rows).expand(len(clients), -1, *self.y.shape[1:]))
        return self.x.index_select(0, rows).unsqueeze(0), y

    def class_counts(self, classes: int) -> np.ndarray:
        """Return the number of samples of each class for each client, int64 [clients, classes]."""
        owner = np.repeat(np.arange(len(self.counts)), self.counts)
        y = self.y.index_select(0, self.rows)
        if self._all_equal:
            y = y.repeat(len(self.counts))
        if self.label_maps is not None:
            y = self.label_maps[index_tensor(owner, y.device), y]
        found = np.bincount(owner * classes + y.cpu().numpy(), minlength=len(self.counts) * classes)
        return found.reshape(len(self.counts), classes)

    def _labels(self, clients: np.ndarray, y: Tensor) -> Tensor:
        """Return targets [N, B, ...] after the label map of each client."""
        if self.label_maps is None:
            return y
        return self.label_maps[index_tensor(clients, y.device)].gather(1, y)


def _summed_bits(numbers: np.ndarray) -> bytes:
    """Return sums of the bits of numbers `_STRIDE` apart: twenty times faster than a hash of all numbers.

    A changed value changes a sum, and so does an exchange of two numbers or two samples, unless their
    distance is a multiple of `_STRIDE`.
    """
    bits = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    whole = len(bits) // (8 * _STRIDE) * _STRIDE
    summed = bits[: 8 * whole].view(np.int64).reshape(-1, _STRIDE).sum(axis=0)
    return summed.tobytes() + bits[8 * whole :].tobytes()


class ClientData:
    """Training, validation and test samples of all clients, and the permutation of labels of each client.

    train: inputs and targets of training and validation rows. Inputs are float32 [n, ...], targets are
    classes int64 [n] or numbers float32 [n, T]; for texts, both are int64 [n, T]. test: the same for test
    rows. train_rows, validation_rows, test_rows: rows that each client owns. label_maps: [clients, classes]
    or None. output_numbers: size of a model's output for a sample, if it may exceed the sample, as for texts.
    """

    def __init__(
        self,
        train: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        *,
        train_rows: Sequence[np.ndarray],
        validation_rows: Sequence[np.ndarray],
        test_rows: Sequence[np.ndarray],
        label_maps: Sequence[np.ndarray] | None,
        output_numbers: int = 0,
    ) -> None:
        device = train[0].device
        maps = None
        if label_maps is not None:
            maps = torch.from_numpy(np.stack(label_maps).astype(np.int64)).to(device)
        self.train = Subset(*train, train_rows, maps, output_numbers)
        self.validation = Subset(*train, validation_rows, maps, output_numbers)
        self.test = Subset(*test, test_rows, maps, output_numbers)

    def digest(self) -> str:
        """Return sixteen hexadecimal digits that depend on samples, targets, and the owner of each sample.

        It is a checksum against changed files, not against forgery.
        """
        found = blake2b(digest_size=8)
        for tensor in self._tensors():
            found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            found.update(_summed_bits(tensor.cpu().numpy()))
        return found.hexdigest()

    def _tensors(self) -> Iterator[Tensor]:
        for subset in (self.train, self.test):
            yield from (subset.x, subset.y)
        for subset in (self.train, self.validation, self.test):
            yield from (subset.rows, torch.from_numpy(subset.counts))
        if self.train.label_maps is not None:
            yield self.train.label_maps

    @property
    def bytes_held(self) -> int:
        """Memory of all samples and rows, in bytes."""
        return sum(tensor.nbytes for tensor in self._tensors())

    @property
    def others(self) -> dict[str, Subset]:
        """Subsets for metrics, in addition to the test samples."""
        return {"training": self.train, "validation": self.validation}

    def subset(self, name: str) -> Subset:
        """Return the subset "train", "validation" or "test"."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]
