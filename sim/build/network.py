"""The network of a scenario."""

from pathlib import Path

from sim.build.distributions import distribution
from sim.build.names import client_name
from sim.scenario import Scenario
from sim.world.network import NetworkModel
from sim.world.partitions import Partition


def network_model(scenario: Scenario, data_dir: Path | None) -> NetworkModel:
    """The network of a scenario, its clients by name."""
    settings = scenario.network
    return NetworkModel(
        distribution(settings.latency),
        settings.uplink,
        settings.downlink,
        settings.link,
        settings.loss,
        settings.retransmission_delay,
        tuple(
            Partition(
                cut.start,
                cut.end,
                groups=tuple(tuple(map(client_name, group)) for group in cut.groups or ()),
                sources=tuple(map(client_name, cut.sources or ())),
                targets=tuple(map(client_name, cut.to or ())),
            )
            for cut in settings.partition
        ),
    )
