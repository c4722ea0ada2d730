"""Speed of devices, or their time for a training step: drawn for each client, or measured."""

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

from actors.settings.quantities import Compute, Duration, PositiveDuration
from actors.settings.tables import allow_plain_quantity
from sim.files.data_folder import DataFolder
from sim.files.rows import read_rows
from sim.kernel.random import RandomStream
from sim.plugins.point import PluginPoint
from sim.world.distributions import NormalTime, RandomQuantity, distributions
from sim.world.plugins import QuantityPlugin


class MeasuredTime(RandomQuantity):
    """Times with the spread of real phones: the AI Benchmark ranking of early 2020."""

    kind: Literal["trace"]
    source: Literal["ai-benchmark"] = "ai-benchmark"
    """Name of the trace."""
    median: PositiveDuration
    """Time of the median phone; the times of the others are inverse to their scores."""

    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        phones = relative_scores(key, folder)
        return lambda draws: self.median / phones[int(draws.uniform() * len(phones))]


class MeasuredSpeed(RandomQuantity):
    """Speeds with the spread of real phones: the AI Benchmark ranking of early 2020."""

    kind: Literal["trace"]
    source: Literal["ai-benchmark"] = "ai-benchmark"
    """Name of the trace."""
    median: Compute
    """Speed of the median phone; the speeds of the others are proportional to their scores."""

    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        phones = relative_scores(key, folder)
        return lambda draws: self.median * phones[int(draws.uniform() * len(phones))]


class OwnStepTime(QuantityPlugin):
    """Your own function returns each client's time for a training step, in seconds.

    It may have any of these parameters: `rng` (a numpy generator for this client), `client` (the client's
    number) and `clients` (the number of clients).
    """

    least, most, unit = 1e-9, 3e9, "seconds"


class OwnSpeed(QuantityPlugin):
    """Your own function returns each client's speed, in floating-point operations per second.

    It may have any of these parameters: `rng` (a numpy generator for this client), `client` (the client's
    number) and `clients` (the number of clients).
    """

    least, most, unit = 1.0, 1e21, "FLOP/s"


if TYPE_CHECKING:
    StepTime = RandomQuantity | OwnStepTime
    Speed = RandomQuantity | OwnSpeed
else:
    # A latency may always be 0; the time of a training step may not.
    StepTime = Annotated[
        distributions(
            "StepTime", Duration, PositiveDuration, NormalTime, MeasuredTime, largest=PositiveDuration
        ),
        PluginPoint(OwnStepTime),
        allow_plain_quantity(PositiveDuration),
    ]
    Speed = Annotated[
        distributions("Speed", Compute, Compute, MeasuredSpeed),
        PluginPoint(OwnSpeed),
        allow_plain_quantity(Compute),
    ]


def relative_scores(key: str, folder: DataFolder) -> list[float]:
    """Return the AI Benchmark scores of all phones over their median; higher is faster. Raises UserError."""
    file = folder.trace(key, "device-traces", "ai_benchmark_2020.csv")
    scores = [row.number("ai_score", 1, 1e9) for row in read_rows(file, "ai_score")]
    middle = median(scores)
    return [score / middle for score in scores]
