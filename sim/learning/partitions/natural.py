"""Clients that the data set defines: for example hospitals, writers or phones."""

from typing import Literal, assert_never

import numpy as np

from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import Labels, Owners, rows_by_class
from sim.learning.partitions.partition import Partition, PartitionSection

_NAMES_SHOWN = 8


class Natural(PartitionSection):
    """Each client has its own samples; the data set defines the client of each sample."""

    needs_classes = False
    deals_validation = True

    kind: Literal["natural"]
    choose: Literal["all", "largest", "random"] = "all"
    """Clients in the data set that take part if `clients.count` is smaller: the clients with the most
    training samples, or random clients."""

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Deal the data's samples: client i is the i-th of the chosen clients, in the order of the data."""
        owners = labels.owners
        if owners is None:
            raise UserError(
                'data.partition.kind = "natural": the data set has no owners of samples; name the column '
                "or array with the clients, or use another kind"
            )
        chosen = self._chosen(owners, clients, seed)
        train = _rows_of_chosen_clients(owners.train, owners, chosen, "training")
        test: tuple[np.ndarray, ...] = ()  # all samples
        if self.tests == "own":
            if owners.test is None:
                problem = 'the data set does not give the client of each test sample; must be "all"'
                raise UserError(f'data.partition.tests = "own": {problem}')
            test = _rows_of_chosen_clients(owners.test, owners, chosen, "test")
        validation = None
        if len(labels.validation):
            own = _rows_of_chosen_clients(owners.validation, owners, chosen, "validation")
            validation = tuple([len(labels.train) + rows for rows in own])
        return Partition(train, test, validation=validation)

    def _chosen(self, owners: Owners, clients: int, seed: int) -> np.ndarray:
        """Return the indices of the clients that take part, ascending."""
        there = len(owners.names)
        if clients > there or (clients < there and self.choose == "all"):
            names = ", ".join(owners.names[:_NAMES_SHOWN]) + (", ..." if there > _NAMES_SHOWN else "")
            limit = f"at most {there:,}" if self.choose != "all" else f"{there:,}"
            if clients < there:
                limit += ' (fewer with data.partition.choose = "largest" or "random")'
            raise UserError(
                f'clients.count = {clients}: data.partition.kind = "natural", but the data set has {there:,} '
                f"clients ({names}); must be {limit}"
            )
        match self.choose:
            case "all":
                return np.arange(there)
            case "random":
                return np.sort(stream(seed, "partition", "natural").choice(there, clients, replace=False))
            case "largest":
                counts = np.bincount(owners.train, minlength=there)
                return np.sort(np.argsort(-counts, kind="stable")[:clients])
            case _:
                assert_never(self.choose)


def _rows_of_chosen_clients(
    samples: np.ndarray, owners: Owners, chosen: np.ndarray, purpose: str
) -> tuple[np.ndarray, ...]:
    """Return the rows of each chosen client. Raises UserError if a client has no rows."""
    rows = rows_by_class(samples, len(owners.names))
    for client, index in enumerate(chosen):
        if not len(rows[index]):
            instead = (
                '; data.partition.tests = "all" tests each client on all of them' if purpose == "test" else ""
            )
            raise UserError(
                f'data.partition: client {client} ("{owners.names[index]}" in the data) has no {purpose} '
                f"samples{instead}"
            )
    return tuple([rows[index] for index in chosen])
