"""Origin of tuned settings, which `coterie tune` writes; it has no effect on a run."""

from actors.settings.base import Settings
from actors.settings.quantities import Count, CountOrZero


class Tuned(Settings):
    """Study that selected the settings of the method. Comparisons show which methods are tuned."""

    study: str
    """Name of the study's folder."""
    trial: CountOrZero
    """Number of the selected trial; 0 has the settings of the scenario."""
    trials: Count
    """Number of trials of each method."""
    seeds: tuple[CountOrZero, ...]
    """Seeds of the trials; results with these seeds are not fresh."""
    sampler: str = "sobol"
    """Sampler of the trials."""
    coterie: str | None = None
    """Version of coterie."""
