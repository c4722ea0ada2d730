"""Random numbers without shared state: every actor and purpose has a separately named stream.

A stream depends only on the seed and its name. One more client, or a draw in one place, changes no draw
anywhere else. Variations of a scenario can therefore be compared client by client (common random numbers).
There are two kinds:

- `stream`: a numpy generator, for draws in bulk or once (data splits, initial parameters, peer
  sampling);
- `RandomStream`: single numbers on hot paths (the latency of each message), where it is faster than numpy.

Both start from a blake2b hash of the name, which is the same in every process and on every machine.
"""

import hashlib
import math
import operator
from collections.abc import Hashable, Iterator
from functools import lru_cache
from itertools import count
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
# The constants of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
# 2014, with the finalizer that Vigna's reference implementation (prng.di.unimi.it/splitmix64.c) uses.
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB

_ONE, _GAMMA_64, _MIX_1_64, _MIX_2_64, _SHIFT_1, _SHIFT_2, _SHIFT_3 = (
    np.uint64(number) for number in (1, _GAMMA, _MIX_1, _MIX_2, 30, 27, 31)
)

_normal_quantile = NormalDist().inv_cdf


def _digest(seed: int, names: tuple[str | int, ...], size_bytes: int) -> int:
    """Return a stable hash of parts with type and length: ("ab", "c") is not ("a", "bc"), 1 is not "1"."""
    digest = hashlib.blake2b(digest_size=size_bytes)
    for part in (seed, *names):
        digest.update(_encoded(type(part), part))  # type: ignore[arg-type]
    return int.from_bytes(digest.digest(), "little")


@lru_cache(maxsize=1 << 12)
def _encoded(kind: Hashable, part: str | int) -> bytes:
    """Return one part of a name as bytes. `kind`, its type, separates equal values of different types."""
    if kind is str:
        tag, text = b"s", part.encode()  # type: ignore[union-attr]
    else:
        tag, text = b"i", str(operator.index(part)).encode()  # type: ignore[arg-type]
    return tag + len(text).to_bytes(4, "little") + text


def key(seed: int, *names: str | int) -> int:
    """Return the 64-bit key of a stream, for `splitmix64` and `splitmix64_array`.

    Raises TypeError for a name that is neither str nor int.
    """
    return _digest(seed, names, 8)


def pair_key(seed: int, purpose: str, first: str, second: str) -> int:
    """Return the 64-bit key of the stream of an ordered pair of names.

    There are many pairs of few names, so the keys of single names are cached, and a pair takes one mixing
    step.
    """
    return splitmix64(_name_key(seed, purpose, first), _name_key(seed, "second of a pair", second))


@lru_cache(maxsize=1 << 16)
def _name_key(seed: int, purpose: str, name: str) -> int:
    return key(seed, purpose, name)


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return a separate numpy generator (Philox) for this purpose, e.g. `stream(seed, "partition", client)`.

    Two calls with the same arguments return two generators in the same, initial, state.
    """
    return np.random.Generator(np.random.Philox(key=_digest(seed, names, 16)))


class PositionableGenerator:
    """One numpy generator that can be moved to any position of any stream.

    Creating a generator takes longer than drawing from it. The result of `at` is valid until the next call.
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._state: Any = self._bits.state  # the initial state, without buffered numbers

    def at(self, key: int, block: int) -> np.random.Generator:
        """Return the generator at the start of a block of 2^66 numbers of the stream `key` (64 bits)."""
        state = self._state["state"]
        state["key"][0], state["counter"][1] = key, block
        self._bits.state = self._state
        return self._generator


def splitmix64(key: int, counter: int) -> int:
    """Return the 64-bit number at `counter` (from 0) of the stream `key`: a pure function, without state."""
    z = (key + (counter + 1) * _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


def splitmix64_array(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return `splitmix64` of each pair of a key and a counter; the two broadcast to an array."""
    keys, counters = np.asarray(keys, np.uint64), np.atleast_1d(np.asarray(counters, np.uint64))
    # Arithmetic modulo 2^64 is intended; numpy warns of it for 0-d arrays only, hence at least one dimension.
    z = counters + _ONE
    z *= _GAMMA_64
    z = z + keys
    z ^= z >> _SHIFT_1
    z *= _MIX_1_64
    z ^= z >> _SHIFT_2
    z *= _MIX_2_64
    z ^= z >> _SHIFT_3
    return z


class RandomStream:
    """Single random numbers from the stream named by (seed, names).

    Every method takes exactly one number, for any distribution. `position` is the position, from 0, of the
    next number. Set it to draw in any order, and also set `key` to use one object for many streams.
    """

    __slots__ = ("key", "position")

    def __init__(self, seed: int, *names: str | int) -> None:
        self.key = key(seed, *names)
        self.position = 0

    def _next(self) -> int:
        bits = splitmix64(self.key, self.position)
        self.position += 1
        return bits

    def uniform(self) -> float:
        """Return a uniform number in [0, 1), a multiple of 2^-53."""
        counter = self.position
        self.position = counter + 1
        return (splitmix64(self.key, counter) >> 11) * 2.0**-53

    def normal(self) -> float:
        """Return a standard normal number, by inversion."""
        # The center of one of 2^52 equal cells is never 0 or 1, where the quantile is infinite.
        return _normal_quantile(((self._next() >> 12) + 0.5) * 2.0**-52)

    def exponential(self) -> float:
        """Return an exponential number with mean 1, by inversion."""
        return -math.log1p(-self.uniform())

    def __repr__(self) -> str:
        return f"<RandomStream {self.key:016x}, {self.position} drawn>"


def shuffled_numbers(seed: int) -> Iterator[int]:
    """Yield sequence numbers with random higher bits: timers of the same time fire in random order."""
    ties = key(seed, "ties")
    for number in count():
        yield splitmix64(ties, number) << 64 | number


def shuffled_number(seed: int, name: str) -> int:
    """Return a sequence number that depends on a name, not on the count of earlier numbers."""
    return key(seed, "ties", name) << 64 | 1 << 63 | key(seed, "named tie", name) >> 1
