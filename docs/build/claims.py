"""Claims of the papers about the order of cases of a study, and verdicts on them from paired seeds.

`A > B`, `A < B` and `A = B within MARGIN` compare the values of two cases. B may also be a number, such as
1.0. A metric and a colon before the claim replace the metric of the row: `loss: A < B`. An @ after a case
replaces the metric of this case: `A < B @ loss`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sim.studies.statistics import estimate

YES, IN_PART, NO = VERDICTS = ("yes", "in part", "no")
_FORM = re.compile(r"(?:([a-z_.]+): )?(.+) ([<>=]) (.+?)(?: within ([0-9.]+))?")
_ROUNDING = 1e-9  # of a mean that equals the margin
_LEAST = 3  # seeds that must agree if the interval contains 0


class Claim(NamedTuple):
    """An order of two cases. An empty `metric` is the metric of the row; `margin` belongs to the sign "="."""

    metric: str
    left: str
    sign: str
    right: str
    margin: float | None


def read_claim(text: str) -> Claim:
    """Return the parts of a claim."""
    found = _FORM.fullmatch(text)
    if found is None or (found[3] == "=") != (found[5] is not None):
        raise ValueError(f"claim {text!r}: write 'A > B', 'A < B' or 'A = B within MARGIN'")
    return Claim(found[1] or "", found[2], found[3], found[4], None if found[5] is None else float(found[5]))


def read_side(side: str, metric: str) -> tuple[str, str]:
    """Return the case and the metric of one side of a claim; `metric`: the one that the claim is about."""
    case, _, own = side.partition(" @ ")
    return case, own or metric


def judge(claim: Claim, left: Mapping[int, float], right: Mapping[int, float]) -> str:
    """Return the verdict on a claim, from the values of its cases by seed.

    An order holds if the 95% interval of the paired differences excludes 0, or if all seeds agree and there
    are at least three. It holds in part if only the mean agrees. An equality holds if the mean of the paired
    differences is within the margin.
    """
    signed = -1 if claim.sign == "<" else 1
    differences = [signed * (left[seed] - right[seed]) for seed in sorted(left.keys() & right.keys())]
    if not differences:
        raise ValueError(f"claim {claim.left} {claim.sign} {claim.right}: the cases have no seed in common")
    found = estimate(differences)
    if claim.margin is not None:
        return YES if abs(found.mean) <= claim.margin + _ROUNDING else NO
    if found.low > 0 or (len(differences) >= _LEAST and min(differences) > 0):
        return YES
    return IN_PART if found.mean > 0 else NO


def overall(verdicts: Iterable[str]) -> str:
    """Return the verdict on a row: yes or no if all its claims say so, otherwise in part."""
    found = {*verdicts}
    return found.pop() if len(found) == 1 else IN_PART
