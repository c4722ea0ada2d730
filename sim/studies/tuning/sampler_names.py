"""Names of the samplers, which the command line reads without importing numpy."""

from enum import StrEnum


class SamplerName(StrEnum):
    """Samplers of `coterie tune`."""

    sobol = "sobol"
    tpe = "tpe"
