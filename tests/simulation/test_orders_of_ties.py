"""Events of the same time in other orders: what a method in rounds does must not depend on the order."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pytest

from sim.core.simulation import Simulation
from tests.protocols.test_survival import variants
from tests.protocols.worlds import DIGITS, ran

ORDERS = int(os.environ.get("COTERIE_TEST_ORDERS") or 20)
QUEUES = ("scool", "learn-to-collaborate")
"""Methods whose peers ask for computations: a serial device does first what is asked first."""
Event = tuple[float, str, str, str, str, int]


def events(simulation: Simulation) -> Iterator[Event]:
    for row in simulation.trace.to_table().to_pylist():
        if row["event"] != "checksum":
            yield (
                *(row["time"], row["event"], row["actor"] or "", row["peer"] or "", row["type"] or ""),
                row["bytes"] or 0,
            )


def first_divergence(one: Sequence[Event], other: Sequence[Event]) -> str | None:
    """The first moment at which other events happen, whatever their order, and one of them."""
    at_once = [{time: sorted(group) for time, group in groupby(each, itemgetter(0))} for each in (one, other)]
    for time in sorted(at_once[0].keys() | at_once[1].keys()):
        groups = [each.get(time, []) for each in at_once]
        if groups[0] != groups[1]:
            extra = [
                event
                for event in [*groups[0], *groups[1]]
                if groups[0].count(event) != groups[1].count(event)
            ]
            return (
                f"at {time} s: {extra[0]}, {groups[0].count(extra[0])} and {groups[1].count(extra[0])} times"
            )
    return None


def in_rounds(protocol: Sequence[str]) -> bool:
    name = protocol[0].removeprefix("protocol.name=")
    is_asynchronous = name in ("fedasync", "fedbuff", "gossip") or "protocol.mode=asynchronous" in protocol
    return not is_asynchronous and name not in QUEUES


def test_the_first_divergence_is_named() -> None:
    one = [
        (1.0, "sent", "a", "b", "Model", 8),
        (1.0, "sent", "b", "a", "Model", 8),
        (2.0, "sent", "a", "b", "Note", 1),
    ]
    assert first_divergence(one, [one[1], one[0], one[2]]) is None
    assert first_divergence(one, one[:2]) == "at 2.0 s: (2.0, 'sent', 'a', 'b', 'Note', 1), 1 and 0 times"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", variants(), ids=" ".join)
def test_a_method_works_with_events_of_the_same_time_in_any_order(protocol: Sequence[str]) -> None:
    with ran(DIGITS, *protocol) as simulation:
        stated, models = list(events(simulation)), [each.params.numpy() for each in simulation.clients]
    for order in range(ORDERS):
        with ran(DIGITS, *protocol, f"run.shuffle_ties={order}") as simulation:
            counts = simulation.network.counts
            assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
            for client in simulation.clients:
                assert client.iterations > 0 and np.isfinite(client.params.numpy()).all()
            divergence = first_divergence(stated, list(events(simulation)))
            if not in_rounds(protocol):
                continue  # whose message comes first decides what is mixed with what
            assert divergence is None, f"order {order}: {divergence}"
            for model, client in zip(models, simulation.clients, strict=True):
                np.testing.assert_allclose(client.params.numpy(), model, atol=1e-4, err_msg=f"order {order}")
