"""User-defined data: the result of a function, arrays or a data set of torch, read once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sim.errors import FAILURES, UserError
from sim.files.data_folder import DataFolder
from sim.kernel.random import stream
from sim.learning.data.dataset import Dataset
from sim.learning.data.raw_arrays import as_array
from sim.learning.data.user_arrays import PARTS, ArraysPart, UserArrays
from sim.plugins.section import PluginSection, first_error_line

_FORM = (
    "(x, y), (x, y, clients), a torch Dataset of such samples, or a dict of these with the keys train, "
    "and optionally test and validation"
)
NUMBERS_MAX = 10**9
"""Largest count of numbers from a data set that is read sample by sample: 4 GB as float32."""


class OwnData(PluginSection, UserArrays):
    """Your own function returns the data: arrays, or a data set of torch, which is read once."""

    provided = ("rng", "clients", "folder")

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Call the function.

        Its arguments are a random generator created from the seed, the number of clients and the data folder.
        """
        path = folder.path if "folder" in self.takes else None
        try:
            found = self.call(rng=stream(seed, "data", "own"), clients=clients, folder=path)
            parts = dict(self._parts(found))
        except UserError:
            raise
        except FAILURES as error:  # reading a data set also calls the user's code
            raise self.refusal(f"failed: {first_error_line(error)}", error) from error
        return self.made(parts, self._refuse)

    def _refuse(self, problem: str) -> UserError:
        return self.refusal(f"returned unusable data: {problem}")

    def _parts(self, found: Any) -> Iterator[tuple[str, ArraysPart]]:
        if not isinstance(found, Mapping):
            yield "train", self._part(found, ("x", "y", "clients"))
            return
        unknown = [name for name in found if name not in PARTS]
        if unknown or "train" not in found:
            has = ", ".join(map(repr, found)) or "nothing"
            raise self._refuse(f"a dict with {has:.60}; must have train, and optionally test and validation")
        for name in PARTS:
            if name in found:
                yield name, self._part(found[name], (f"x of {name}", f"y of {name}", f"clients of {name}"))

    def _part(self, found: Any, names: tuple[str, str, str]) -> ArraysPart:
        if isinstance(found, tuple):
            if len(found) not in (2, 3):
                raise self._refuse(f"a tuple with {len(found)} items; must be {_FORM}")
            return ArraysPart(names, *found)
        is_dataset = hasattr(found, "__getitem__") and hasattr(found, "__len__")
        if isinstance(found, str | bytes | np.ndarray) or not (is_dataset or isinstance(found, Iterable)):
            raise self._refuse(f"{type(found).__name__}; must be {_FORM}")
        samples = (found[index] for index in range(len(found))) if is_dataset else iter(found)
        return self._read(samples, names)

    def _read(self, samples: Iterator[Any], names: tuple[str, str, str]) -> ArraysPart:
        """Stack the samples of an iterator."""
        rows: list[tuple[Any, ...]] = []
        numbers, first, several = 0, "", False
        for index, sample in enumerate(samples):
            if not isinstance(sample, tuple | list) or len(sample) not in (2, 3):
                raise self._refuse(f"sample {index} is {sample!r:.60}; must be (x, y) or (x, y, client)")
            several = isinstance(sample[0], tuple)
            x, others = sample[0] if several else sample[:1], sample[1:]
            x, others = [[self._plain(index, each) for each in values] for values in (x, others)]
            form = _form_text(len(sample), [each.shape for each in x], several=several)
            first = first or form
            if form != first:
                raise self._refuse(f"sample {index} has {form}; must have {first}, as in the first")
            rows.append((x, *others))
            numbers += 1 + sum(each.size for each in x)
            if numbers > NUMBERS_MAX:
                raise self._refuse(
                    f"more than {NUMBERS_MAX:,} numbers; return fewer (is the iterator endless?)"
                )
        if not first:
            raise self._refuse(f"{names[0]}: no samples; return at least one (an iterator is read once)")
        inputs, *labels = zip(*rows, strict=True)
        x = tuple(map(np.stack, zip(*inputs, strict=True)))
        return ArraysPart(names, x if several else x[0], *map(np.stack, labels))

    def _plain(self, index: int, value: Any) -> np.ndarray:
        return as_array(value, f"sample {index}", self._refuse)


def _form_text(values: int, shapes: Sequence[tuple[int, ...]], *, several: bool) -> str:
    """Describe the form of a sample: its number of values, and the shape of x, or of the arrays in x."""
    x = f"a tuple x of shapes {', '.join(map(str, shapes))}" if several else f"x of shape {shapes[0]}"
    return f"{values} values and {x}"
