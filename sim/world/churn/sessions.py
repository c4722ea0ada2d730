"""Lengths of sessions: random, or measured at cloud providers."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from actors.settings.quantities import PositiveDuration, SigmaOfLog, Within
from sim.files.data_folder import DataFolder
from sim.files.input_file import InputFile, excerpt
from sim.files.rows import Row, read_rows
from sim.kernel.random import RandomStream
from sim.world.distributions import Distribution, LogNormal

Session = tuple[float, float]
"""Start and end in seconds of virtual time; the end may be infinite."""

_CENTURY_S = 36_500 * 86_400.0  # about as long as a run may be
_MEMBERS_MAX = 1_000_000
_SPOT_RUNS = ("aws_2020-03-15", "gcp_2020-03-01", "gcp_2020-03-04")
# For each step curve: seconds per unit of its time, and its last row. The files have no header and no other
# mark, so only the last row shows that a file is not cut off.
_CURVES = {
    "g4dn_us-east-1c_2020-11-20": (1.0, (88_194.0, 7)),
    "g4dn_us-east-1d_2020-11-23": (1.0, (45_668.0, 8)),
    "p2_2020-11-20": (3600.0, (88.695, 14)),
}


class ExponentialLength(Distribution):
    """Exponential: the session ends with the same probability in each second."""

    kind: Literal["exponential"]
    mean: PositiveDuration
    """Mean length."""

    def sample(self, draws: RandomStream) -> float:
        return self.mean * draws.exponential()


class WeibullLength(Distribution):
    """Weibull. With a shape below 1, as measured in peer-to-peer networks, most sessions are short."""

    kind: Literal["weibull"]
    scale: PositiveDuration
    """63% of the sessions are shorter than this."""
    shape: Annotated[PositiveFloat, Within(0.1, 100)]
    """Shape; 1 is the exponential distribution."""

    def sample(self, draws: RandomStream) -> float:
        return self.scale * draws.exponential() ** (1 / self.shape)


class LogNormalLength(LogNormal[PositiveDuration]):
    """Lognormal."""

    median: PositiveDuration
    """Half of the sessions are shorter than this."""
    sigma: SigmaOfLog
    """Standard deviation of the logarithm."""


SessionLength = Annotated[ExponentialLength | WeibullLength | LogNormalLength, Field(discriminator="kind")]


def read_spot_instance_sessions(source: str, key: str, folder: DataFolder) -> list[Session]:
    """Return the sessions of a measured run or group, by start. An end that was not observed is infinite."""
    if source in _SPOT_RUNS:
        file = folder.trace(key, "spot-churn", "spot_sessions_2020.csv")
        rows = read_rows(file, "run", "start_s", "end_s", "censored")
        sessions = [_session(row) for row in rows if row.values["run"] == source]
    else:
        file = folder.trace(key, "spot-churn", f"spot_cluster_size_{source}.csv")
        sessions = sessions_from_sizes(_sizes(file, *_CURVES[source]))
    if not any(end_s > start_s for start_s, end_s in sessions):
        raise file.refusal(
            f"contains no session of {source}, so no client would ever join; at least one is needed"
        )
    return sorted(sessions)


def read_client_sessions(file: InputFile, pool: Sequence[int], until_s: float) -> dict[int, list[Session]]:
    """Return the sessions in a table for each client of a pool.

    Raises UserError for an invalid table, and if no session starts before `until_s`.
    """
    found: dict[int, list[Session]] = {client: [] for client in pool}
    first_s = math.inf
    for row in read_rows(file, "client", "start_s", "end_s"):
        number = row.number("client")
        if number not in found:
            is_range = len(found) == 1 + max(found) - min(found)
            of = (
                f"a whole number from {min(found)} to {max(found)}" if is_range else "a client of the process"
            )
            raise row.refusal(f"client = {excerpt(row.values['client'])}: must be {of}")
        own = found[int(number)]
        start_s, end_s = row.number("start_s", 0, _CENTURY_S), row.number("end_s", 0, _CENTURY_S)
        if end_s <= start_s:
            raise row.refusal(f"end_s = {end_s:g}: must be larger than start_s, {start_s:g}")
        if own and start_s <= own[-1][1]:
            raise row.refusal(
                f"start_s = {start_s:g}: must be larger than {own[-1][1]:g}, the end_s in the last row of "
                f"client {int(number)}; the sessions of a client must be in order and must not overlap"
            )
        own.append((start_s, end_s))
        first_s = min(first_s, start_s)
    if first_s >= until_s:
        raise file.refusal(
            f"has no session that starts before {until_s:g}, the end of the process; the first one starts at "
            f"{first_s:g}. Times must be seconds from the start of the run; set speedup if their unit differs"
        )
    return found


def _sizes(file: InputFile, unit_s: float, end: tuple[float, int]) -> list[tuple[float, int]]:
    """Return the steps of a measured curve, as (time in seconds, size)."""
    time, size = 0.0, 0
    sizes = []
    for row in read_rows(file, "time", "size", head=False):
        time = row.number("time", time, _CENTURY_S / unit_s)
        size = int(row.number("size", 0, _MEMBERS_MAX))
        sizes.append((time * unit_s, size))
    if (time, size) != end:
        raise file.refusal(
            f"ends at {time:g} with the size {size}; the measurement ends at {end[0]:g} with {end[1]}: the "
            "file is truncated, or is a different file"
        )
    return sizes


def _session(row: Row) -> Session:
    start_s = row.number("start_s", 0, _CENTURY_S)
    end_s = row.number("end_s", start_s, _CENTURY_S)
    return start_s, math.inf if row.word("censored", "0", "1") == "1" else end_s


def sessions_from_sizes(steps: Iterable[tuple[float, int]]) -> list[Session]:
    """Return the sessions of a group from its size over time, the step function `steps` of (time_s, size).

    The measurements do not state which member goes when the group shrinks. Here the oldest member goes.
    """
    up: deque[float] = deque()
    sessions: list[Session] = []
    for time_s, members in steps:
        up.extend([time_s] * (members - len(up)))
        while len(up) > members:
            sessions.append((up.popleft(), time_s))
    return sorted(sessions + [(start_s, math.inf) for start_s in up])
