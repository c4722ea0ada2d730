"""The types that settings are made of."""

import pickle

import pytest
from pydantic import ValidationError

from actors.settings.base import Settings, default
from actors.settings.quantities import (
    Bandwidth,
    BandwidthOrUnlimited,
    Compute,
    Duration,
    PositiveDuration,
    Size,
    Span,
    parse_span,
)
from sim.learning.partitions.clusters import MaplClusters
from sim.scenario.sections.clients import Clients
from sim.scenario.sections.network import Network
from sim.scenario.sections.run import Run
from sim.world.distributions import Constant, LogNormal
from sim.world.topology.kinds import Complete
from tests.world.quantities import constant


class Example(Settings):
    """One field of each type."""

    patience: Duration = default("2 s")
    """How long to wait."""
    period: PositiveDuration = default("1 min")
    rate: Bandwidth = default("10 Mbit/s")
    link: BandwidthOrUnlimited = default("unlimited")
    limit: Size = default("4 MB")
    speed: Compute = default("10 GFLOP/s")
    steps: tuple[int, ...] = (1, 2)
    nested: tuple[tuple[int, ...], ...] = ()


def test_quantities_become_numbers_also_as_defaults() -> None:
    assert Example(nested=[[1], [2, 3]]).model_dump() == {  # type: ignore[arg-type]
        "patience": 2.0,
        "period": 60.0,
        "rate": 1e7,
        "link": None,
        "limit": 4_000_000,
        "speed": 1e10,
        "steps": (1, 2),
        "nested": ((1,), (2, 3)),
    }


def test_quantities_are_written_with_their_unit_and_read_again() -> None:
    settings = Example.model_validate({"patience": "35 ms", "link": "8 kbit/s", "steps": [3]})
    written = settings.model_dump(mode="json")
    assert written["patience"] == "35 ms"
    assert written["period"] == "1 min"
    assert written["limit"] == "4 MB"
    assert Example.model_validate(written) == settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("patience", 2),
        ("patience", "-1 s"),
        ("period", 0),
        ("period", "0 s"),
        ("link", "infinite"),
        ("limit", "0.5 B"),
        ("steps", ["1"]),
        ("steps", [True]),
        ("steps", [1.0]),
        ("unknown", 1),
    ],
)
def test_nothing_is_converted_silently(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        Example.model_validate({key: value})


def test_settings_are_frozen_hashable_and_picklable() -> None:
    settings = Example()
    with pytest.raises(ValidationError, match="frozen"):
        settings.patience = 1.0
    assert hash(settings) == hash(Example())
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("15 s", Span("second", seconds=15.0)),
        ("100 iterations", Span("iteration", count=100)),
        ("1 iteration", Span("iteration", count=1)),
    ],
)
def test_evaluate_every(text: str, every: Span) -> None:
    assert Run.model_validate({"duration": "1 min", "evaluate_every": text}).evaluate_every == every
    assert parse_span(str(every), "iteration") == every


def test_shorthands_stand_for_tables() -> None:
    assert Clients(count=3).topology == Complete(kind="complete")
    assert Clients.model_validate({"count": 3, "topology": "complete"}) == Clients(count=3)
    links = {"uplink": "unlimited", "downlink": "1 kbit/s"}
    network = Network.model_validate({"latency": "20 ms", **links})
    assert network.latency == constant(0.02)
    assert isinstance(network.uplink, Constant) and isinstance(network.downlink, Constant)
    assert (network.uplink.value, network.downlink.value) == (None, 1000.0)
    table = {"kind": "lognormal", "median": "20 ms", "sigma": 0.5}
    assert isinstance(Network.model_validate({"latency": table, **links}).latency, LogNormal)


def test_the_smaller_amount_matters_only_where_amounts_differ() -> None:
    assert MaplClusters(kind="mapl", scenario=1, images_per_class=50).images_per_class == 50
    with pytest.raises(ValidationError, match="at most images_per_class"):
        MaplClusters(kind="mapl", scenario=3, images_per_class=50)
