"""Draws of batches from a client's samples: a pure function of (seed, client, purpose, step).

No state is stored between calls, so the draws of all clients of a group are computed at once, in any order,
and one more client does not change the batches of others.
"""

from functools import lru_cache
from typing import Literal, assert_never

import numpy as np

from sim.kernel.random import key, splitmix64_array

Sampling = Literal["shuffled", "replacement"]
"""Method by which clients draw their training samples."""
# Rounds of the Feistel network. Enough for the ranges in use; smaller ranges would need more than 6.
_ROUNDS = 6
# Samples of a client up to which the keyed sort of all of them is cheaper than the network for one batch.
_SORTED_MAX = 64
# Separates the random numbers of augmentation from those of the batches, which come from the same keys.
_AUGMENTATION = np.array([key(0, "augmentation")], np.uint64)


def samples_of_batch(sampling: Sampling, batch_size: int, samples: int) -> int:
    """Return the size of the batches of a client with `samples` samples."""
    match sampling:
        case "shuffled":
            return min(batch_size, samples)
        case "replacement":
            return batch_size
        case _:
            assert_never(sampling)


def draw_batches(
    keys: np.ndarray,
    first_steps: np.ndarray,
    counts: np.ndarray,
    *,
    steps: int,
    batch_size: int,
    sampling: Sampling | Literal["all"],
) -> np.ndarray:
    """Return positions in each client's data, int64 [clients, steps, batch_size].

    keys: uint64 [clients], one per (seed, client, purpose). first_steps: int64 [clients], steps drawn before.
    counts: int64 [clients], number of samples of each client, at least batch_size unless sampling is
    "replacement".
    sampling: "shuffled" puts the samples in a new order in each epoch (in the same order if they are one
    batch), and leaves out those after the last full batch; "replacement" draws each sample uniformly and
    independently; "all" takes the first batch_size samples in order.
    """
    if sampling == "all":
        return first_positions(len(keys), steps, batch_size)
    step = first_steps[:, None] + np.arange(steps)  # [clients, steps]
    if sampling == "replacement":
        counter = step[:, :, None] * batch_size + np.arange(batch_size)
        return _uniform_below(_mix(keys[:, None, None], counter), counts[:, None, None])
    if sampling != "shuffled":
        assert_never(sampling)
    fewest, most = int(counts.min()), int(counts.max())
    if fewest == most == batch_size:
        return first_positions(len(keys), steps, batch_size)
    sorted_max = max(_SORTED_MAX, 4 * batch_size)
    epoch, within = np.divmod(step, (counts // batch_size)[:, None])
    if batch_size < fewest and most <= sorted_max:
        return _sorted_batches(keys, counts, epoch, within, batch_size)
    whole = counts == batch_size  # every batch contains all samples: their order doesn't matter
    drawn = np.empty((len(keys), steps, batch_size), dtype=np.int64)
    drawn[whole] = np.arange(batch_size)
    few = ~whole & (counts <= sorted_max)
    many = ~whole & ~few
    if few.any():
        drawn[few] = _sorted_batches(keys[few], counts[few], epoch[few], within[few], batch_size)
    if many.any():
        position = within[many][:, :, None] * batch_size + np.arange(batch_size)
        epoch_keys = _mix(keys[many, None], epoch[many])[:, :, None]
        drawn[many] = permute(position, counts[many, None, None], epoch_keys)
    return drawn


def draw_batches_of_one_client(
    key: int, first_step: int, count: int, steps: int, batch_size: int
) -> np.ndarray:
    """Draw "shuffled" batches of one client, [1, steps, batch_size]; remembers the orders of epochs."""
    if not batch_size < count <= max(_SORTED_MAX, 4 * batch_size):
        keys, first, counts = np.array([key], np.uint64), np.array([first_step]), np.array([count])
        return draw_batches(keys, first, counts, steps=steps, batch_size=batch_size, sampling="shuffled")
    drawn = []
    for step in range(first_step, first_step + steps):
        epoch, within = divmod(step, count // batch_size)
        drawn.append(_epoch_order(key, epoch, count)[within * batch_size : (within + 1) * batch_size])
    return np.array([drawn])


@lru_cache(maxsize=1024)
def _epoch_order(key: int, epoch: int, count: int) -> np.ndarray:
    epoch_key = _mix(np.array([[key]], np.uint64), np.array([epoch]))
    return sorted_permutations(epoch_key, np.array([count]))[0, 0]


def first_positions(clients: int, steps: int, batch_size: int) -> np.ndarray:
    """Return the first batch_size positions in order, in every step: [clients, steps, batch_size]."""
    return np.broadcast_to(np.arange(batch_size), (clients, steps, batch_size))


def _sorted_batches(
    keys: np.ndarray, counts: np.ndarray, epoch: np.ndarray, within: np.ndarray, batch_size: int
) -> np.ndarray:
    """Return batches number `within` of epochs number `epoch`, both [clients, steps]."""
    first = epoch[:, :1]
    epochs = np.arange(int((epoch[:, -1:] - first).max()) + 1)
    orders = sorted_permutations(_mix(keys[:, None], first + epochs), counts)
    orders = orders[:, :, : orders.shape[2] // batch_size * batch_size]
    batches = orders.reshape(len(keys), len(epochs), -1, batch_size)
    return batches[np.arange(len(keys))[:, None], epoch - first, within]


def sorted_permutations(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return keyed random permutations of range(counts[n]) for keys [n, m]: [n, m, max(counts)].

    Items are sorted by a random number each; the end of a shorter range is padding, which is never used. Two
    equal numbers, whose order might depend on the processor, are too rare to matter: one pair in 2^64.
    """
    items = np.arange(int(counts.max()))
    bits = _mix(keys[:, :, None], items)
    if int(counts.min()) < len(items):
        bits[np.broadcast_to((items >= counts[:, None])[:, None], bits.shape)] = np.iinfo(np.uint64).max
    return np.argsort(bits, axis=2)


def permute(position: np.ndarray, count: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Return positions under a keyed random permutation of range(count); arrays broadcast, int64.

    A Feistel network on pairs of digits to the base ceil(sqrt(count)) permutes a slightly larger range; a
    result outside range(count) is permuted again until it is inside (cycle walking), which keeps the map a
    bijection (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    shape = np.broadcast_shapes(position.shape, count.shape, key.shape)
    value = np.broadcast_to(position, shape).astype(np.uint64).ravel()
    keys = np.broadcast_to(key, shape).ravel()
    limit = np.broadcast_to(count, shape).astype(np.uint64).ravel()
    if limit.min() == limit.max():  # numpy divides by a single number much faster
        limit = limit[:1]
    base = np.ceil(np.sqrt(limit.astype(np.float64))).astype(np.uint64)
    value = _feistel(value, base, keys)
    outside = np.flatnonzero(value >= limit)
    while outside.size:
        which = outside if len(limit) > 1 else 0
        value[outside] = _feistel(value[outside], base[which], keys[outside])
        outside = outside[value[outside] >= limit[which]]
    return value.astype(np.int64).reshape(shape)


def _feistel(value: np.ndarray, base: np.ndarray, keys: np.ndarray) -> np.ndarray:
    left = value // base
    right = value - left * base
    for turn in range(_ROUNDS):
        moved = left + _remainder(_mix(keys, right * np.uint64(_ROUNDS) + np.uint64(turn)), base)
        left, right = right, _remainder(moved, base)
    return left * base + right


def _remainder(value: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return value % base, in a third of the time if the base is a single number."""
    remainder: np.ndarray = value - value // base * base
    return remainder


def _mix(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    return splitmix64_array(keys, counters.astype(np.uint64, copy=False))


def _uniform_below(bits: np.ndarray, limit: np.ndarray) -> np.ndarray:
    # 53 random bits times the limit: the bias is below limit / 2^53.
    return ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 * limit).astype(np.int64)


def image_keys(keys: np.ndarray, steps: np.ndarray, batch_size: int, views: int) -> np.ndarray:
    """Return a key for the augmentation of each image, uint64 [clients, views * batch_size].

    The first views of all images come first, then all second views.

    keys: uint64 [clients], one per (seed, client, purpose). steps: int64 [clients], the number of the batch.
    """
    of_steps = splitmix64_array(splitmix64_array(keys, _AUGMENTATION), steps.astype(np.uint64))
    views_, positions = np.arange(views, dtype=np.uint64), np.arange(batch_size, dtype=np.uint64)
    images = (views_[:, None] << np.uint64(32)) + positions
    return splitmix64_array(of_steps[:, None], images.reshape(1, -1))
