"""Receivers that drop messages with numbers that are not finite."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from actors.message import Envelope
from sim.core.message_contents import has_non_finite
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.learning.engines import new_engine


@dataclass(frozen=True)
class Said:
    content: Any


NAN = float("nan")


@pytest.mark.parametrize(
    "content",
    [NAN, (1, (2.0, NAN)), {"a": [1.0, float("inf")]}, np.array([1.0, NAN]), torch.tensor([NAN]), Said(NAN)],
)
def test_what_is_not_finite_is_found_wherever_it_is(content: Any) -> None:
    assert has_non_finite(Said(content))


@pytest.mark.parametrize(
    "content", [None, 1, 2.5, "nan", b"nan", (1.0, {"a": np.arange(3)}), np.array(["a"])]
)
def test_all_else_passes(content: Any) -> None:
    assert not has_non_finite(Said(content))


def test_vectors_are_looked_at_when_they_are_computed() -> None:
    engine = new_engine()
    vector = engine.vector(torch.tensor([1.0, 2.0]))
    assert not has_non_finite(Said(vector + vector))
    assert has_non_finite(Said(vector / engine.vector(torch.tensor([1.0, 0.0]))))


@pytest.mark.parametrize("finite", [False, True])
def test_a_receiver_drops_them_or_not(finite: bool) -> None:
    overrides = ["clients.count=4", "clients.topology.degree=2", f"network.finite={str(finite).lower()}"]
    simulation = build(load_scenario("gossip", [*overrides, "network.loss=0"]), device="cpu")
    network, came = simulation.network, []
    network.attach("client-0", lambda envelope: came.append(envelope.message.content))
    for content in (NAN, 1.0):
        network.send(Envelope("client-1", "client-0", Said(content)))
    simulation.loop.run_until(10.0)
    assert sorted(map(str, came)) == (["1.0"] if finite else ["1.0", "nan"])
    assert network.counts.reasons == ({"not finite": 1} if finite else {})
    simulation.close()
