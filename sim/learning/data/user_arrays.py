"""Samples that the user gives as arrays: checked before anything is computed, split, and made tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from actors.settings.base import SettingError
from actors.settings.quantities import Count
from sim.errors import UserError
from sim.learning.data.dataset import Dataset, LabelledData, Rows
from sim.learning.partitions import Partition
from sim.learning.partitions.dealing import Owners, rows_by_class

NUMBERS_MAX = 10**9
"""No data set of the user's may have more: 4 GB once they are float32."""
CLASSES_MAX = 100_000
PARTS = ("train", "validation", "test")

_SPLIT_KEY = 20_261_122  # of the numbers that choose the test samples, whatever the seed of a run

Refuse = Callable[[str], UserError]


@dataclass(frozen=True)
class ArraysPart:
    """Inputs, labels and clients as the user gave them, with the names by which messages call them.

    x may be a tuple: several inputs of each sample. missing: which numbers of x become the mean of the known
    ones in training.
    """

    x: Any
    y: Any
    clients: Any = None
    names: tuple[str, str, str] = ("x", "y", "clients")
    missing: np.ndarray | None = None

    @staticmethod
    def of(values: Sequence[Any], names: tuple[str, str, str]) -> ArraysPart:
        """Of inputs and labels, and perhaps clients."""
        x, y, *clients = values
        return ArraysPart(x, y, clients[0] if clients else None, names)


@dataclass(frozen=True)
class Wanted:
    """How the samples are to be prepared: keys of the section."""

    regression: bool
    classes: int | None
    test_share: float
    standardise: bool | np.ndarray
    """Whether, or which numbers of a sample are."""


@dataclass(frozen=True)
class _Checked:
    """Inputs float32 [n, ...], labels int64 [n] or float32 [n, T], clients [n] or None.

    shapes: of several inputs, which lie side by side in x [n, numbers]; None for one.
    """

    x: np.ndarray
    y: np.ndarray
    clients: np.ndarray | None
    shapes: tuple[tuple[int, ...], ...] | None
    missing: np.ndarray | None = None

    def rows(self, rows: np.ndarray) -> _Checked:
        clients = None if self.clients is None else self.clients[rows]
        missing = None if self.missing is None else self.missing[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], clients=clients, missing=missing)


def dataset_of(given: Mapping[str, ArraysPart], wanted: Wanted, refuse: Refuse) -> Dataset:
    """The data set of the parts "train" and, where they are there, "validation" and "test".

    Without a test part, a share of each client's training samples, or of each class's, is taken for it: the
    same for all seeds. Raises what `refuse` makes of a problem.
    """
    parts = {name: _checked(given[name], wanted, refuse) for name in PARTS if name in given}
    _require_alike(parts, given, refuse)
    classes = _outputs(parts, given, wanted, refuse)
    owners, places = _owners(parts, given, refuse)
    if "test" not in parts:
        train, test = _split(parts["train"], places.get("train"), wanted)
        if not len(test):
            raise refuse(f"has {len(train)} sample; must have two at least, one of them to test on")
        parts |= {"train": parts["train"].rows(train), "test": parts["train"].rows(test)}
        if places:
            places |= {"train": places["train"][train], "test": places["train"][test]}
    return _dataset(_filled(parts), wanted, classes, owners, places)


# --- what is checked ------------------------------------------------------------------------------------


def _checked(part: ArraysPart, wanted: Wanted, refuse: Refuse) -> _Checked:
    of_x, of_y, of_clients = part.names
    x, shapes = _all_inputs(part.x, of_x, refuse)
    y = _array(part.y, of_y, refuse)
    y = _numbers(y, of_y, len(x), refuse) if wanted.regression else _classes(y, of_y, len(x), refuse)
    return _Checked(x, y, _clients(part.clients, of_clients, len(x), refuse), shapes, part.missing)


def _all_inputs(x: Any, name: str, refuse: Refuse) -> tuple[np.ndarray, tuple[tuple[int, ...], ...] | None]:
    """The input; of several, all side by side, and their shapes."""
    if not isinstance(x, tuple):
        return _inputs(_array(x, name, refuse), name, refuse), None
    if not x:
        raise refuse(f"{name} is an empty tuple; must be an array, or one for each input")
    arrays = [_array(each, f"{name}[{place}]", refuse) for place, each in enumerate(x)]
    samples = len(arrays[0]) if arrays[0].ndim else 0
    for place, array in enumerate(arrays):
        if not array.size or array.shape[:1] != (samples,):
            raise refuse(
                f"{name}[{place}] has the shape {array.shape}; must be ({samples}, ...), as many samples as "
                f"{name}[0] has, and some"
            )
    flat = [
        _inputs(array.reshape(len(array), -1), f"{name}[{place}]", refuse)
        for place, array in enumerate(arrays)
    ]
    return np.concatenate(flat, axis=1), tuple([array.shape[1:] for array in arrays])


def _array(values: Any, name: str, refuse: Refuse) -> np.ndarray:
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except Exception as error:  # rows of different lengths; whatever their own __array__ does
        raise refuse(f"{name} is no array: {type(error).__name__}: {error}") from None


def _inputs(x: np.ndarray, name: str, refuse: Refuse) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise refuse(f"{name} has the type {x.dtype}; must be real numbers")
    if x.ndim < 2:
        raise refuse(
            f"{name} has the shape {x.shape}; must be (samples, numbers of each, ...), as {name}[:, None] has"
        )
    if x.size == 0:
        raise refuse(f"{name} has the shape {x.shape}; must have samples, and numbers in each")
    if x.size > NUMBERS_MAX:
        raise refuse(f"{name} has {x.size:,} numbers; must have {NUMBERS_MAX:,} at most")
    return _finite(x, name, refuse)


def _finite(values: np.ndarray, name: str, refuse: Refuse) -> np.ndarray:
    """A copy as float32. Refuses numbers that are not finite in it."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.array(values, dtype=np.float32, order="C")
    if not np.isfinite(found).all():
        place = tuple(np.argwhere(~np.isfinite(found))[0].tolist())
        value = values[place].item()
        raise refuse(f"{name}{list(place)} is {value!r}; must be a finite number, of float32")
    return found


def _numbers(y: np.ndarray, name: str, samples: int, refuse: Refuse) -> np.ndarray:
    """The numbers that a regression predicts."""
    if y.dtype.kind not in "biuf":
        raise refuse(f"{name} has the type {y.dtype}; must be real numbers for a regression")
    if y.ndim not in (1, 2) or len(y) != samples or y.size == 0:
        raise refuse(
            f"{name} has the shape {y.shape}; must be ({samples},), or ({samples}, numbers to predict)"
        )
    return _finite(y, name, refuse).reshape(samples, -1)


def _classes(y: np.ndarray, name: str, samples: int, refuse: Refuse) -> np.ndarray:
    if y.dtype.kind not in "biu":
        hint = '; data.task = "regression" predicts numbers' if y.dtype.kind == "f" else ""
        raise refuse(f"{name} has the type {y.dtype}; must be whole numbers, the classes from 0{hint}")
    if y.shape != (samples,):
        hint = f"; {name}.argmax(axis=1) makes classes of one-hot rows" if y.ndim == 2 else ""
        raise refuse(f"{name} has the shape {y.shape}; must be ({samples},), a class for each sample{hint}")
    bad = np.flatnonzero((y < 0) | (y >= CLASSES_MAX))
    if len(bad):
        raise refuse(f"{name}[{bad[0]}] is {y[bad[0]]}; must be a class from 0 to {CLASSES_MAX - 1:,}")
    return y.astype(np.int64)


def _clients(clients: Any, name: str, samples: int, refuse: Refuse) -> np.ndarray | None:
    if clients is None:
        return None
    found = _array(clients, name, refuse)
    if found.dtype.kind == "O" and all(isinstance(client, str) for client in found.ravel()):
        found = found.astype(str)
    if found.dtype.kind not in "iuU":
        raise refuse(
            f"{name} has the type {found.dtype}; must be whole numbers or texts, a client's name each"
        )
    if found.shape != (samples,):
        raise refuse(f"{name} has the shape {found.shape}; must be ({samples},), a client for each sample")
    return found


def _require_alike(parts: Mapping[str, _Checked], given: Mapping[str, ArraysPart], refuse: Refuse) -> None:
    """All parts have inputs of one shape and as many numbers to predict."""
    first = parts["train"]
    for name, part in parts.items():
        inputs = [each.shapes or each.x.shape[1:] for each in (part, first)]
        for (mine, theirs), place in ((inputs, 0), ((part.y.shape[1:], first.y.shape[1:]), 1)):
            if mine != theirs:
                raise refuse(
                    f"{given[name].names[place]} has samples of the shape {mine}; must be "
                    f"{theirs}, as in {given['train'].names[place]}"
                )


def _outputs(
    parts: Mapping[str, _Checked], given: Mapping[str, ArraysPart], wanted: Wanted, refuse: Refuse
) -> int:
    """How many classes there are, or numbers to predict."""
    if wanted.regression:
        return parts["train"].y.shape[1]
    most = max(int(part.y.max()) for part in parts.values())
    if wanted.classes is None:
        return max(most + 1, 2)
    for name, part in parts.items():
        bad = np.flatnonzero(part.y >= wanted.classes)
        if len(bad):
            raise refuse(
                f"{given[name].names[1]}[{bad[0]}] is {part.y[bad[0]]}; must be from 0 to "
                f"{wanted.classes - 1}, as data.classes = {wanted.classes}"
            )
    return wanted.classes


def _owners(
    parts: Mapping[str, _Checked], given: Mapping[str, ArraysPart], refuse: Refuse
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The clients' names in order and, by part, the index of each sample's client; empty without clients."""
    named = {name: part.clients for name, part in parts.items() if part.clients is not None}
    if not named:
        return (), {}
    for name in parts:
        if name not in named and name != "test":
            raise refuse(
                f"{given[name].names[2]} is missing; must say whose each sample is, as other parts do"
            )
    if len({clients.dtype.kind == "U" for clients in named.values()}) > 1:
        raise refuse(f"{given['train'].names[2]}: clients are numbers in one part, texts in another")
    names, places = np.unique(np.concatenate(list(named.values())), return_inverse=True)
    ends = np.cumsum([len(clients) for clients in named.values()])[:-1]
    return tuple(map(str, names.tolist())), dict(zip(named, np.split(places, ends), strict=True))


# --- what is made of them -------------------------------------------------------------------------------


def _split(part: _Checked, places: np.ndarray | None, wanted: Wanted) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train and to test on: a share of each client's samples, else of each class's, else of all."""
    groups = (
        places if places is not None else np.zeros(len(part.x), np.int64) if wanted.regression else part.y
    )
    rng = np.random.Generator(np.random.Philox(key=_SPLIT_KEY))
    test = np.zeros(len(groups), dtype=bool)
    for rows in rows_by_class(groups, int(groups.max()) + 1):
        count = min(max(1, round(wanted.test_share * len(rows))), len(rows) - 1)
        test[rng.permutation(rows)[: max(0, count)]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _filled(parts: Mapping[str, _Checked]) -> Mapping[str, _Checked]:
    """The parts with each missing number replaced by the mean of the known training values, 0 without any."""
    train = parts["train"]
    if all(part.missing is None or not part.missing.any() for part in parts.values()):
        return parts
    known = np.ones(train.x.shape, bool) if train.missing is None else ~train.missing
    means = (train.x * known).sum(axis=0, dtype=np.float64) / np.maximum(known.sum(axis=0), 1)
    return {
        name: part
        if part.missing is None
        else replace(part, x=np.where(part.missing, means, part.x).astype(np.float32))
        for name, part in parts.items()
    }


def _dataset(
    parts: Mapping[str, _Checked],
    wanted: Wanted,
    outputs: int,
    names: tuple[str, ...],
    places: Mapping[str, np.ndarray],
) -> Dataset:
    import torch

    train, test, validation = parts["train"], parts["test"], parts.get("validation")
    held_back = 0 if validation is None else len(validation.x)
    if np.any(wanted.standardise):
        mean = np.where(wanted.standardise, train.x.mean(axis=0, dtype=np.float64), 0.0)
        std = np.where(wanted.standardise, train.x.std(axis=0, dtype=np.float64), 1.0)
        std[std == 0] = 1.0  # what is the same in all samples becomes 0
        scaled = [((part.x - mean) / std).astype(np.float32) for part in parts.values()]
        parts = {name: replace(part, x=x) for (name, part), x in zip(parts.items(), scaled, strict=True)}
        train, test, validation = parts["train"], parts["test"], parts.get("validation")
    x, y = train.x, train.y
    if validation is not None:
        x, y = np.concatenate([x, validation.x]), np.concatenate([y, validation.y])
    nobody = np.empty(0, dtype=np.int64)
    return Dataset(
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(test.x),
        torch.from_numpy(test.y),
        outputs,
        held_back=held_back,
        owners=Owners(names, places["train"], places.get("test"), places.get("validation", nobody))
        if names
        else None,
        inputs=parts["train"].shapes,
    )


# --- the section of a scenario ------------------------------------------------------------------------------

_BetweenNoneAndAll = Annotated[float, Field(gt=0, lt=1)]


class UserData(LabelledData):
    """Samples that the user gives."""

    tasks = ("classification", "regression")
    classes = None
    input_shape = None

    purpose: Literal["classification", "regression"] = Field("classification", alias="task")
    """What is learned: classes, or numbers, by the mean squared error."""
    test_share: _BetweenNoneAndAll = 0.2
    """Share of the samples to test on, where the data have no test part: of each client's, or else of each
    class's, one at least. They are the same for all seeds."""

    @property
    def task(self) -> str:
        return self.purpose

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.purpose == "regression" and self.partition.needs_classes:
            kind = self.partition.model_dump()["kind"]
            problem = 'shares out samples by class, and data.task = "regression" has none'
            yield SettingError("data.partition.kind", kind, problem)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        for misfit in self.partition.misfits(clients, dataset.outputs, self.name):
            raise UserError(f"{misfit.key} = {misfit.value}: {misfit.problem}")
        return super().share_out(dataset, clients, seed)


class UserArrays(UserData):
    """Samples that are arrays already."""

    number_of_classes: Count | None = Field(None, alias="classes")
    """Number of classes; by default one more than the largest label."""
    standardise: bool = False
    """Whether each number of a sample is shifted and scaled: mean 0, standard deviation 1 in training."""

    @property
    def wanted(self) -> Wanted:
        """What is to be made of the samples."""
        regression = self.purpose == "regression"
        return Wanted(regression, self.number_of_classes, self.test_share, self.standardise)
