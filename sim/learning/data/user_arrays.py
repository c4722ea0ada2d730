"""Samples that the user provides as arrays: checked before any computation, split, and converted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from actors.settings.base import SettingError
from actors.settings.quantities import Count
from sim.errors import UserError
from sim.learning.data.dataset import Dataset, LabelledData, Rows
from sim.learning.data.raw_arrays import (
    NOISE,
    Refuse,
    as_array,
    as_float32,
    require_exact_differences,
    require_finite,
)
from sim.learning.partitions.dealing import Owners, rows_by_class
from sim.learning.partitions.partition import Partition

Part = TypeVar("Part")

CLASSES_MAX = 100_000
PARTS = ("train", "validation", "test")

_SPLIT_KEY = 20_261_122  # key of the random numbers that choose test samples, for all seeds of runs

_SHIFTED = "subtract a common offset"


@dataclass(frozen=True)
class ArraysPart:
    """Inputs, labels and clients, with their names in messages.

    Before the checks they are the user's values, where x may be a tuple: several inputs of each sample. After
    the checks they are arrays. x [n, ...] is float32; before standardization it has the user's type, as times
    and coordinates may differ by less than float32 can represent. y is int64 [n] or float32 [n, T], clients
    [n] or None. missing: mask of x, bool; these numbers become the mean of the known ones in training.
    shapes: shapes of several inputs, which are concatenated in x [n, numbers]; None for one input.
    """

    names: tuple[str, str, str]
    x: Any
    y: Any
    clients: Any = None
    missing: Any = None
    shapes: tuple[tuple[int, ...], ...] | None = field(default=None, kw_only=True)

    def rows(self, rows: np.ndarray) -> ArraysPart:
        """Return some samples of the part, without their clients."""
        missing = None if self.missing is None else self.missing[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], clients=None, missing=missing)


def dataset_from_arrays(
    given: Mapping[str, ArraysPart],
    section: UserSamples,
    refuse: Refuse,
    *,
    classes: int | None,
    standardise: bool | np.ndarray,
) -> Dataset:
    """Return the data set of the parts "train" and, if given, "validation" and "test".

    standardise: whether to scale all numbers of a sample, or a mask of the numbers to scale.
    The other parameters are as for `check_parts`.
    """
    wide = bool(np.any(standardise))
    parts, outputs, owners = check_parts(given, section, refuse, classes=classes, wide=wide)
    return _dataset(_scaled(_fill_missing_numbers(parts), standardise), outputs, owners)


def check_parts(
    given: Mapping[str, ArraysPart],
    section: UserSamples,
    refuse: Refuse,
    *,
    classes: int | None,
    wide: bool,
) -> tuple[Mapping[str, ArraysPart], int, Owners | None]:
    """Return (the checked parts including a test part, the number of classes or targets, the owners).

    Without a given test part, a share of the training samples becomes the test part: of each client's samples
    if the clients are given, otherwise of each class's, or of all samples in a regression. It is the same for
    all seeds. classes: the number of classes; None to infer it from the labels. wide: keep the type of the
    numbers in x. refuse: returns the error to raise for a problem.
    """
    regression = section.task == "regression"
    parts = {
        name: _checked(given[name], classes, regression=regression, wide=wide, refuse=refuse)
        for name in PARTS
        if name in given
    }
    _require_alike(parts, refuse)
    names, indices = _owners(parts, refuse)
    train = parts["train"]
    outputs = train.y.shape[1] if regression else classes
    if outputs is None:
        outputs = max(2, 1 + max(int(part.y.max()) for part in parts.values()))
    if "test" not in parts:
        of_class = np.zeros(len(train.x), np.int64) if regression else train.y
        kept, tested = split(indices.get("train", of_class), section.test_share, _SPLIT_KEY)
        if not len(tested):
            samples = f"has {len(kept)} sample{'s' * (len(kept) != 1)}"
            raise refuse(f"{samples}; needs at least two of each class or client, one of them for testing")
        parts |= {"train": train.rows(kept), "test": train.rows(tested)}
        if indices:
            indices |= {"train": indices["train"][kept], "test": indices["train"][tested]}
    owners = None
    if names:
        validation = indices.get("validation", np.empty(0, dtype=np.int64))
        owners = Owners(names, indices["train"], indices.get("test"), validation)
    return parts, outputs, owners


# --- checks ---------------------------------------------------------------------------------------------


def _checked(
    part: ArraysPart, classes: int | None, *, regression: bool, wide: bool, refuse: Refuse
) -> ArraysPart:
    of_x, of_y, of_clients = part.names
    x, shapes = _all_inputs(part.x, of_x, wide, refuse)
    samples, clients = len(x), None
    if regression:
        y = _require_array(part.y, of_y, "biuf", "real numbers for a regression", refuse)
        fits = y.ndim in (1, 2) and len(y) == samples and y.size > 0
        _require_shape(y, of_y, fits, f"({samples},), or ({samples}, numbers to predict)", refuse)
        require_exact_differences(y, of_y, refuse, _SHIFTED)
        y = as_float32(y, of_y, refuse).reshape(samples, -1)
    else:
        whole = 'whole numbers, the classes from 0 (data.task = "regression" predicts numbers)'
        y = _require_array(part.y, of_y, "biu", whole, refuse)
        _require_shape(y, of_y, y.shape == (samples,), f"({samples},), a class for each sample", refuse)
        bad = np.flatnonzero((y < 0) | (y >= (classes or CLASSES_MAX)))
        if len(bad):
            most = (
                f"{CLASSES_MAX - 1:,}" if classes is None else f"{classes - 1}, as data.classes = {classes}"
            )
            raise refuse(f"{of_y}[{bad[0]}] is {y[bad[0]]}; must be a class from 0 to {most}")
        y = y.astype(np.int64)
    if part.clients is not None:
        names = "whole numbers or texts, the names of clients"
        clients = _require_array(part.clients, of_clients, "iuU", names, refuse)
        fits = clients.shape == (samples,)
        _require_shape(clients, of_clients, fits, f"({samples},), a client for each sample", refuse)
    return replace(part, x=x, y=y, clients=clients, shapes=shapes)


def _all_inputs(
    x: Any, name: str, wide: bool, refuse: Refuse
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...] | None]:
    """Return the input, float32 unless `wide`, and None; or several inputs concatenated, and their shapes."""
    if not isinstance(x, tuple):
        array = _require_array(x, name, "biuf", "real numbers", refuse)
        wanted = f"(samples, numbers of each, ...), as in {name}[:, None], and not empty"
        _require_shape(array, name, array.ndim > 1 and array.size > 0, wanted, refuse)
        return _require_float32_numbers(array, name, wide, refuse), None
    if not x:
        raise refuse(f"{name} is an empty tuple; must be an array, or a tuple of one array for each input")
    arrays, flat = [], []
    for index, each in enumerate(x):
        own = f"{name}[{index}]"
        array = _require_array(each, own, "biuf", "real numbers", refuse)
        arrays.append(array)
        fits = array.ndim > 0 and array.size > 0 and len(array) == len(arrays[0])
        _require_shape(array, own, fits, f"(samples, ...), as many samples as {name}[0]", refuse)
        flat.append(_require_float32_numbers(array, own, wide, refuse).reshape(len(array), -1))
    return np.concatenate(flat, axis=1), tuple([array.shape[1:] for array in arrays])


def _require_float32_numbers(values: np.ndarray, name: str, wide: bool, refuse: Refuse) -> np.ndarray:
    if wide:
        require_finite(values, name, refuse)
        return values
    require_exact_differences(values, name, refuse, "data.standardise = true keeps the differences")
    return as_float32(values, name, refuse)


def _require_array(values: Any, name: str, kinds: str, wanted: str, refuse: Refuse) -> np.ndarray:
    """Return an array of one of these kinds of numpy types; the error for other types asks for `wanted`."""
    found = as_array(values, name, refuse)
    if found.dtype.kind not in kinds:
        raise refuse(f"{name} has type {found.dtype}; must be {wanted}")
    return found


def _require_shape(array: np.ndarray, name: str, fits: bool, wanted: str, refuse: Refuse) -> None:
    if not fits:
        raise refuse(f"{name} has shape {array.shape}; must be {wanted}")


def _require_alike(parts: Mapping[str, ArraysPart], refuse: Refuse) -> None:
    """Raise an error unless all parts have the same shape of inputs and number of targets."""
    first = parts["train"]
    for part in parts.values():
        inputs = [each.shapes or each.x.shape[1:] for each in (part, first)]
        for (mine, theirs), index in ((inputs, 0), ((part.y.shape[1:], first.y.shape[1:]), 1)):
            if mine != theirs:
                must = f"must be {theirs}, as in {first.names[index]}"
                raise refuse(f"{part.names[index]} has samples of shape {mine}; {must}")


def _owners(parts: Mapping[str, ArraysPart], refuse: Refuse) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Return the clients' names in order and, by part, each sample's client index; empty without clients."""
    named = {name: part.clients for name, part in parts.items() if part.clients is not None}
    if not named:
        return (), {}
    for name, part in parts.items():
        if name not in named and name != "test":
            raise refuse(
                f"{part.names[2]} is missing; must give the client of each sample, as in the other parts"
            )
    names, indices = np.unique(np.concatenate(list(named.values())), return_inverse=True)
    ends = np.cumsum([len(clients) for clients in named.values()])[:-1]
    return tuple(map(str, names.tolist())), dict(zip(named, np.split(indices, ends), strict=True))


# --- split and scaling ----------------------------------------------------------------------------------


def split(groups: np.ndarray, test_share: float, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows for training and the rows for testing: `test_share` of each group is for testing.

    Of a group of several rows, at least one is for testing, and at least one for training.

    groups: the client or the class of each row. key: key of the random numbers that choose the rows.
    """
    rng = np.random.Generator(np.random.Philox(key=key))
    test = np.zeros(len(groups), dtype=bool)
    for rows in rows_by_class(groups, int(groups.max()) + 1):
        count = min(max(1, round(test_share * len(rows))), len(rows) - 1)
        test[rng.permutation(rows)[: max(0, count)]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _fill_missing_numbers(parts: Mapping[str, ArraysPart]) -> Mapping[str, ArraysPart]:
    """Return the parts with missing numbers replaced by the mean of known training values, or by 0."""
    if all(part.missing is None or not part.missing.any() for part in parts.values()):
        return parts
    train = parts["train"]
    known = ~train.missing
    means = (train.x * known).sum(axis=0, dtype=np.float64) / np.maximum(known.sum(axis=0), 1)
    return {
        name: replace(part, x=np.where(part.missing, means, part.x).astype(part.x.dtype))
        for name, part in parts.items()
    }


def _scaled(parts: Mapping[str, ArraysPart], standardise: bool | np.ndarray) -> Mapping[str, ArraysPart]:
    """Return the parts with the numbers that `standardise` selects scaled by training mean and deviation."""
    if not np.any(standardise):
        return parts
    x = parts["train"].x
    start = x[0].astype(np.int64) if x.dtype in (np.int64, np.uint64) else None

    def wide(values: np.ndarray) -> np.ndarray:
        """Return values as float64; for large whole numbers, the difference from the first."""
        return (values if start is None else values.astype(np.int64) - start).astype(np.float64)

    known = wide(x)
    same = np.ptp(known, axis=0) <= NOISE * np.abs(known).max(axis=0)  # in all samples: they become 0
    mean = np.where(standardise, np.where(same, known[0], known.mean(axis=0)), 0.0)
    std = np.where(standardise & ~same, known.std(axis=0), 1.0)
    return {
        name: replace(part, x=((wide(part.x) - mean) / std).astype(np.float32))
        for name, part in parts.items()
    }


def _dataset(parts: Mapping[str, ArraysPart], outputs: int, owners: Owners | None) -> Dataset:
    train, validation, test = parts["train"], parts.get("validation"), parts["test"]
    x, y, held_back = train.x, train.y, 0
    if validation is not None:
        x, y = np.concatenate([x, validation.x]), np.concatenate([y, validation.y])
        held_back = len(validation.x)
    return Dataset(x, y, test.x, test.y, outputs, None, held_back, owners, train.shapes)


# --- the section of a scenario ------------------------------------------------------------------------------

_BetweenNoneAndAll = Annotated[float, Field(gt=0, lt=1)]


class UserSamples(LabelledData):
    """Samples that the user provides; the number of classes is determined from them."""

    classes = None
    input_shape = None

    test_share: _BetweenNoneAndAll = 0.2
    """Share of the samples used for testing if the data set has no test part: of each client's samples,
    or else of each class's, at least one. The test samples are the same for all seeds."""

    def with_used_validation(
        self, parts: Mapping[str, Part], where: str
    ) -> tuple[dict[str, Part], tuple[str, ...]]:
        """Drop a validation part that cannot be used; return the other parts, and a notice if it was dropped.

        This applies to a validation part that the data contain, but that the scenario does not name.
        """
        if "validation" not in parts:
            return dict(parts), ()
        if self.validation_share:
            reason = f"data.validation_share = {self.validation_share} holds out training samples instead"
        elif not self.partition.deals_validation:
            kind = self.partition.model_dump()["kind"]
            reason = f'data.partition = "{kind}" does not distribute it; iid and natural do'
        else:
            return dict(parts), ()
        used = {name: part for name, part in parts.items() if name != "validation"}
        return used, (f"{where}: the validation part of the data is not used, because {reason}",)

    def misfits(self, clients: int) -> Iterator[SettingError]:
        yield from ()

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        for misfit in self.partition.misfits(clients, dataset.outputs, self.name):
            raise UserError(f"{misfit.key} = {misfit.value}: {misfit.problem}")
        return super().share_out(dataset, clients, seed)


class UserData(UserSamples):
    """Samples with classes, or with numbers to predict."""

    tasks = ("classification", "regression")

    purpose: Literal["classification", "regression"] = Field("classification", alias="task")
    """Task: classification, or regression (prediction of numbers by the mean squared error)."""

    @property
    def task(self) -> str:
        return self.purpose

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.purpose == "regression" and self.partition.needs_classes:
            kind = self.partition.model_dump()["kind"]
            problem = 'distributes samples by class, but data.task = "regression" has no classes'
            yield SettingError("data.partition.kind", kind, problem)


class UserArrays(UserData):
    """Samples that are arrays already."""

    number_of_classes: Count | None = Field(None, alias="classes")
    """Number of classes; by default one more than the largest label."""
    standardise: bool = False
    """True: each number of a sample is standardized to mean 0 and standard deviation 1 in training."""

    def made(self, parts: Mapping[str, ArraysPart], refuse: Refuse) -> Dataset:
        """Return the data set of these parts. Raises the error that `refuse` makes of a problem."""
        classes = None if self.task == "regression" else self.number_of_classes
        found = dataset_from_arrays(parts, self, refuse, classes=classes, standardise=self.standardise)
        shapes = " and ".join(" x ".join(map(str, each)) for each in found.inputs or [found.input_shape])
        return replace(found, features=f"{shapes} numbers for each sample")
