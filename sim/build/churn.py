"""Who joins, leaves, crashes and comes back, and when."""

from collections.abc import Sequence
from pathlib import Path

from sim.scenario import Scenario
from sim.world.churn import ChurnEvent


def churn_events(
    scenario: Scenario, clusters: Sequence[int] | None, data_dir: Path | None
) -> list[ChurnEvent]:
    """The events of a scenario, in the order of its file."""
    return [ChurnEvent(event.at, event.event, event.clients, event.state) for event in scenario.churn]
