"""Equal distribution of samples for all clients."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import model_validator

from actors.settings.base import SettingError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, StatedCount, deal, deal_repeatedly
from sim.learning.partitions.partition import Partition, SampledPartition


class Iid(SampledPartition):
    """All clients draw from the same distribution."""

    needs_classes = False
    deals_validation = True

    kind: Literal["iid"]
    repeat: bool = False
    """True: deal the training samples repeatedly, so that they suffice for any number of clients. Clients
    then share samples, and samples that one client holds out for validation may be training samples of
    another. Needs `samples_per_client`."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Iid:
        if self.repeat and self.samples_per_client is None:
            problem = "needs samples_per_client; also set this key"
            raise SettingError("repeat", True, problem)
        return self

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Deal at random: `samples_per_client` each, or equal parts; all clients use all test samples.

        With `repeat`, the shuffled samples are dealt from the front again after all of them have been dealt.
        """
        if not self.repeat:
            return deal_at_random(labels, clients, seed, self.of_each)
        assert self.of_each is not None
        train = deal_repeatedly(_shuffled(labels, seed), clients, self.of_each)
        return _with_common_test_set(labels, seed, train)


def deal_at_random(labels: Labels, clients: int, seed: int, each: StatedCount | None) -> Partition:
    """Deal the shuffled training samples, and the validation part of the data, if any.

    Every client is tested on all test samples.
    """
    return _with_common_test_set(labels, seed, deal(_shuffled(labels, seed), clients, each))


def _shuffled(labels: Labels, seed: int) -> np.ndarray:
    return stream(seed, "partition", "rows").permutation(len(labels.train))


def _with_common_test_set(labels: Labels, seed: int, train: tuple[np.ndarray, ...]) -> Partition:
    validation, clients = None, len(train)
    if count := len(labels.validation):
        mixed = stream(seed, "partition", "validation rows").permutation(count)
        validation = deal(len(labels.train) + mixed, clients, None)
    return Partition(train, (np.arange(len(labels.test)),) * clients, validation=validation)
