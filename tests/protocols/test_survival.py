"""Every protocol goes on under churn and losses, and does the same thing twice."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from sim.scenario.protocol_lookup import list_protocols, load_protocol
from tests.protocols.worlds import DIGITS, churn, ran

CHURN = "".join(
    [
        churn("join", 5, "1.1 s"),
        churn("crash", 0, "1.7 s"),
        churn("leave", 1, "2 s"),
        churn("crash", 2, "2.2 s"),
        churn("rejoin", 0, "3.3 s", "keep"),
        churn("rejoin", 1, "4 s", "fresh"),
        churn("rejoin", 2, "4.6 s", "fresh"),
        churn("crash", 4, "5.5 s"),
    ]
)
LOSSY = (
    DIGITS.replace(
        'latency = "250 ms"',
        'latency = { kind = "lognormal", median = "100 ms", sigma = 0.5 }\nlink = "datagram"\nloss = 0.1',
    )
    .replace('"unlimited"', '"1 Mbit/s"')
    .replace('step_time = "500 ms"', 'step_time = { kind = "lognormal", median = "200 ms", sigma = 0.5 }')
    + CHURN
)

DECOUPLED = ('model={ name = "decoupled", backbones = ["small-mlp"], features = 8, projection_hidden = 8 }',)
"""The model of methods that share parts of it."""

ADAPTERS = Path(__file__).parents[2] / "docs/examples/models/low_rank.py"
RANKS = (
    f'model={{ name = "{ADAPTERS}:LowRank" }}',
    f'model_group=[{{ clients = [1, 4], model = {{ name = "{ADAPTERS}:LowRank", rank = 1 }} }}]',
    'clients.newcomers={ kind = "fresh" }',
)
"""Adapters of two ranks, for methods that average their products."""

HELD_BACK = ("data.validation_share=0.25",)
OWN = {
    "dfedavgm": ("training.momentum=0.9",),
    "fedfomo": HELD_BACK,
    "flexlora": RANKS,
    "flora": RANKS,
    "flt": ("protocol.embedding=2",),  # else they are encoded for most of the run
    "meta-l2c": HELD_BACK,
    "validation-trust": HELD_BACK,
    "scool": ("protocol.local_steps=2", "protocol.patience=2 s"),  # five epochs are most of the run
    "learn-to-collaborate": (
        *(*HELD_BACK, "protocol.rounds=3", "protocol.newcomer_rounds=1"),
        *("protocol.search_steps=2", "protocol.hidden=[4]", "protocol.local_steps=1"),
        *("protocol.patience=4 s", "run.duration=60 s"),  # a broker is replaced, and a search takes its time
    ),
}
"""What else a method requires."""


def exchanges_parts(method: str) -> bool:
    return load_protocol(method).found.parts is not None


def variants() -> list[tuple[str, ...]]:
    """Overrides for each protocol that comes with coterie, in each of its modes."""
    found = []
    for name in list_protocols():
        fields: dict[str, Any] = load_protocol(name).found.Settings.model_fields
        modes = get_args(fields["mode"].annotation) if "mode" in fields else ()
        for mode in modes or ("",):
            options = {"name": name} | ({"mode": mode} if mode else {})
            options |= {"patience": "700 ms"} if "patience" in fields else {}
            options |= {"warm_up": "1"} if "warm_up" in fields else {}
            overrides = [f"protocol.{key}={value}" for key, value in options.items()]
            decoupled = DECOUPLED if exchanges_parts(name) else ()
            found.append((*overrides, *decoupled, *OWN.get(name, ())))
    return found


@pytest.mark.long
@pytest.mark.parametrize("protocol", variants(), ids=" ".join)
def test_every_protocol_survives_churn_and_losses_and_repeats_itself(protocol: tuple[str, ...]) -> None:
    hashes = []
    for _ in range(2):
        with ran(LOSSY, *protocol) as world:
            counts = world.network.counts
            assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
            assert [client.index for client in world.clients_up] == [0, 1, 2, 3, 5]
            if protocol[0] != "protocol.name=local":
                assert counts.lost > 0 and counts.dropped > 0
            for client in world.clients_up:
                assert client.actor is not None and client.actor.iterations > 0
                assert np.isfinite(client.actor.params.numpy()).all()
            hashes.append(world.trace.hash())
    assert hashes[0] == hashes[1]


def test_settings_are_stated_for_methods_that_exist() -> None:
    gone = OWN.keys() - list_protocols().keys()
    assert not gone, f"remove {gone} from OWN in {__file__}: there is no such method"
