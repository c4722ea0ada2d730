"""Draws of batches from a client's samples, and weights of samples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from protocols.framework.compute import Batch, Samples
from sim.core.learning_settings import LearningSettings
from sim.learning.engine import Engine, Vector
from sim.learning.engine.graph.batches import samples_of_batch
from sim.learning.engine.graph.operations import Weighted
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob
from sim.learning.engine.handles import known_values_handle

Purpose = Literal["train", "gradient", "loss", "batch"]
PURPOSES = get_args(Purpose)
_NONE: dict[str, int] = {}  # shared by clients that only train


class Draws:
    """Batches of client number `client`, with a separate random stream for each purpose.

    `batch_size`: samples of a batch; all samples of a client that has fewer, unless batches are drawn with
    replacement. `train`, `gradient`, `loss`, `batch`: batches drawn so far. Raises ValueError for a client
    without training samples.
    """

    __slots__ = ("_keys", "augmented", "batch_size", "client", "engine", "samples", *PURPOSES)

    def __init__(self, engine: Engine, client: int, settings: LearningSettings) -> None:
        self.engine = engine
        self.client = client
        self.samples = int(engine.data.train.counts[client])
        if self.samples == 0:
            raise ValueError(f"client {client} has no training samples")
        kind = settings.sampling
        self.batch_size = samples_of_batch(kind, settings.batch_size, self.samples)
        self.augmented = engine.intern(
            BatchSampler(engine.data.train, self.batch_size, kind, settings.augmentation, settings.views)
        )
        """Sampler of the batches for training."""
        self.train = self.gradient = self.loss = self.batch = 0
        self._keys: dict[str, int] = _NONE  # of the streams in use

    @property
    def drawn(self) -> dict[str, int]:
        """Batches drawn so far, by purpose."""
        return {purpose: getattr(self, purpose) for purpose in PURPOSES}

    def key(self, purpose: Purpose) -> int:
        """Return the key of the random stream for a purpose."""
        found = self._keys.get(purpose)
        if found is None:
            found = self.engine.draw_key(self.client, purpose)
            self._keys = {**self._keys, purpose: found}
        return found

    def sampler(self, on: Samples, *, training: bool) -> BatchSampler:
        """Return the sampler for `on`.

        training: whether batches are augmented; all training or validation samples never are. Raises
        ValueError for a batch of another client, for other values of `on`, and for "validation" if the client
        has no validation samples.
        """
        if on == "batch" or isinstance(on, Batch):
            if isinstance(on, Batch) and on.client != self.client:
                raise ValueError(
                    f"this batch belongs to client {on.client}; use one from batch() of client {self.client}"
                )
            is_plain = training or self.augmented.augmentation is None
            return self.augmented if is_plain else replace(self.augmented, augmentation=None)
        if on not in ("train", "validation"):
            known = '"batch", "train", "validation" or a result of batch()'
            raise ValueError(f"`on` must be {known}, not {on!r}")
        subset = self.engine.data.subset(on)
        count = int(subset.counts[self.client])
        if count == 0:
            raise ValueError(f"client {self.client} has no samples for validation; set data.validation_share")
        return BatchSampler(subset, count, "all", views=self.augmented.views)

    def advance(self, purpose: Purpose, batches: int) -> int:
        """Draw `batches` batches, and return the number of the first one."""
        first: int = getattr(self, purpose)
        setattr(self, purpose, first + batches)
        return first

    def next_job(self, purpose: Purpose, on: Samples) -> GradientOrLossJob:
        """Return the next job of this purpose.

        With `on="batch"`, it has the number of the next undrawn batch.
        """
        if isinstance(on, Batch):
            return GradientOrLossJob(self.client, self.key("batch"), on.number)
        return GradientOrLossJob(
            self.client, self.key(purpose), getattr(self, purpose) if on == "batch" else 0
        )

    def fresh_batch(self) -> Batch:
        """Draw a new batch."""
        return Batch(self.client, self.advance("batch", 1), self.batch_size)

    def _known_weights(self, given: Any) -> Vector:
        """Return a handle on weights given as numbers. Raises ValueError for unsuitable numbers."""
        try:
            numbers = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"weights must be a handle, or an array of numbers, not {given!r:.60}") from None
        if bad := [float(number) for number in numbers.ravel() if not 0 <= number < np.inf]:
            raise ValueError(f"weights must be 0 or more and finite, not {bad[0]}")
        return known_values_handle(self.engine, numbers)

    def weights(self, given: Any, on: Samples, sampler: BatchSampler) -> tuple[Vector | None, Weighted]:
        """Return the weights of samples as a handle, and how they are assigned to samples.

        The samples of a fresh batch are not known in advance, so weights cover all training samples.
        Raises ValueError for a wrong number of weights.
        """
        if given is None:
            return None, None
        vector = given if isinstance(given, Vector) else self._known_weights(given)
        count = self.samples if on == "batch" else sampler.batch_size
        if vector.shape != (count,):
            what = "a number" if not vector.shape else f"{vector.width}"
            of = "training samples of the client" if on == "batch" else f"samples of on={on!r}"
            raise ValueError(f"weights must be one number for each of the {count} {of}, not {what}")
        return vector, "by sample" if on == "batch" else "by position"


def given_samples(engine: Engine, settings: LearningSettings, inputs: Any) -> Vector:
    """Return a vector of samples that a method provides, concatenated. Raises ValueError for other inputs."""
    if not settings.classes:
        raise ValueError(
            "predict: models of this task have no outputs, as its samples have neither classes nor targets"
        )
    shape = settings.architecture.input_shape
    array = f"[B, {', '.join(map(str, shape))}], B at least 1"
    wanted = f"must be {array}, or a handle on B x {math.prod(shape)} numbers"
    if isinstance(inputs, Vector):
        if type(inputs) is not Vector or inputs.width % math.prod(shape):
            raise ValueError(f"predict: inputs are {inputs!r}; {wanted}")
        return inputs
    values = torch.as_tensor(inputs).to(torch.float32)
    if values.shape[1:] != shape or not values.numel():
        raise ValueError(f"predict: inputs have shape {list(values.shape)}; {wanted}")
    if not values.isfinite().all():
        raise ValueError("predict: all inputs must be finite as float32")
    return known_values_handle(engine, values.flatten())
