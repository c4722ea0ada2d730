"""A partition of the user's own: a function that shares the samples out."""

from __future__ import annotations

from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels
from sim.learning.partitions.lists import partition_of
from sim.learning.partitions.partition import Partition, PartitionSection
from sim.plugins.section import FAILURES, PluginSection, in_short


class OwnPartition(PluginSection, PartitionSection):
    """A function of your own that returns the numbers of each client's samples."""

    provided = ("rng", "labels", "test_labels", "clients")

    needs_classes = False

    kind: str
    overlap: bool = False
    """Whether a training sample may belong to several clients."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Calls the function with a generator of the seed, the labels and the number of clients."""
        try:
            found = self.call(
                rng=stream(seed, "partition", "own"),
                labels=labels.train.copy(),  # what it does to them is its own affair
                test_labels=labels.test.copy(),
                clients=clients,
            )
        except FAILURES as error:
            raise self.refusal(f"failed: {in_short(error)}", error) from error
        return partition_of(found, labels, clients, overlap=self.overlap, refuse=self._refuse)

    def _refuse(self, problem: str) -> UserError:
        return self.refusal(f"returned what cannot be used: {problem}")
