"""Verdicts about a repeated figure, separate from their computation, whose imports are slow."""

from enum import StrEnum


class Verdict(StrEnum):
    """Answer to whether a repetition confirms a figure, a run, or an archive."""

    equal = "equal"
    chance = "within chance"
    different = "not equal"
