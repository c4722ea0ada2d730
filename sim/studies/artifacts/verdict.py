"""Verdicts about a repeated figure, without the imports that computing one takes."""

from enum import StrEnum


class Verdict(StrEnum):
    """Answer to whether a repetition confirms a figure, a run, or an archive."""

    equal = "equal"
    chance = "within chance"
    different = "not equal"
