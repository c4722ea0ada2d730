"""The measured traces of the data folder, and the tables that a scenario names: read, checked, in SI units.

Each function raises a UserError that names the file, the row or the array, and what is allowed there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.files.data_folder import trace_file
from sim.files.input_file import InputFile, Row, shown
from sim.world.churn_processes import Session, sessions_of_size

Floats = NDArray[np.float64]

_DAY_S = 86_400.0
_CENTURY_S = 36_500 * _DAY_S  # about as long as a run may be
_MEMBERS_MAX = 1_000_000
_FACTOR_MIN, _FACTOR_MAX = 1e-6, 1e6  # of slow times: a second that takes between a microsecond and 12 days

# Of each source: its file, then what the file calls the medians and the slices, with their units per second.
_ROUND_TRIPS = {
    "planetlab": ("planetlab_rtt_ms.npz", ("rtt_ms_median", 1e3), ("rtt_ms_slices", 1e3)),
    "seattle": ("seattle_rtt_s.npz", ("rtt_s_median", 1.0), ("rtt_centiseconds", 100.0)),
}
_UNITS_PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6}
_SPOT_RUNS = ("aws_2020-03-15", "gcp_2020-03-01", "gcp_2020-03-04")
_SIZE_UNITS_S = {"p2_2020-11-20": 3600.0}  # of the time in a step curve; the others are in seconds


# --- devices ------------------------------------------------------------------------------------------------


def phone_scores(key: str, data_dir: Path | None) -> list[float]:
    """The scores of all phones in the AI Benchmark ranking; higher is faster."""
    file = trace_file(key, data_dir, "device-traces", "ai_benchmark_2020.csv")
    return [row.number("ai_score", 1, 1e9) for row in file.table("ai_score")]


def phone_bandwidths(key: str, data_dir: Path | None) -> list[tuple[float, float]]:
    """Mean up- and downlink of each phone, in the trace's own unit."""
    file = trace_file(key, data_dir, "device-traces", "phone_bandwidth.csv")
    rows = file.table("up_mean", "down_mean")
    return [(row.number("up_mean", 1, 1e9), row.number("down_mean", 1, 1e9)) for row in rows]


def slow_times(file: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Times, ascending from 0, and factors of `devices.measured.file`; one time more than factors."""
    source = InputFile("devices.measured.file", Path(file))
    rows = source.table("time_s", "factor")
    if len(rows) < 2:
        raise source.refusal("has one row; needs two at least, the last of which ends the cycle")
    times_s = [row.number("time_s", 0, _CENTURY_S) for row in rows]
    if times_s[0] != 0:
        raise rows[0].refusal(f"time_s = {times_s[0]:g}: must be 0, the begin of the cycle")
    for row, (before_s, time_s) in zip(rows[1:], pairwise(times_s), strict=True):
        if time_s <= before_s:
            raise row.refusal(f"time_s = {time_s:g}: must be more than that of the row before, {before_s:g}")
    # The last factor is the one of no time at all.
    factors = [row.number("factor", _FACTOR_MIN, _FACTOR_MAX) for row in rows[:-1]]
    return tuple(times_s), tuple(factors)


# --- latencies ----------------------------------------------------------------------------------------------


def round_trips(source: str, key: str, data_dir: Path | None) -> tuple[Floats, Floats]:
    """Round trips in seconds: medians (nodes, nodes) and slices (slices, nodes, nodes); 0: not measured."""
    name, medians, slices = _ROUND_TRIPS[source]
    file = trace_file(key, data_dir, "net-latency", name)
    arrays = file.arrays(medians[0], slices[0])
    for array, (array_name, units_per_s), axes in zip(arrays, (medians, slices), (2, 3), strict=True):
        if array.ndim != axes or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
            wanted = "(slices, nodes, nodes)" if axes == 3 else "(nodes, nodes)"
            raise file.refusal(
                f"has the shape {array.shape}; must be {wanted} of two nodes or more", array_name
            )
        file.require_numbers(array_name, array, least=0, most=_DAY_S * units_per_s)
        if not array.any():
            raise file.refusal("is 0 everywhere; must have a time that was measured", array_name)
    if arrays[0].shape != arrays[1].shape[1:]:
        raise file.refusal(
            f"has the shape {arrays[1].shape}, but {medians[0]} {arrays[0].shape}; must be of as many nodes",
            slices[0],
        )
    medians_s, slices_s = (
        array.astype(np.float64) / units for array, (_, units) in zip(arrays, (medians, slices), strict=True)
    )
    return medians_s, slices_s


def latency_matrix(file: str, key: str, unit: str, actors: int) -> Floats:
    """One-way latencies in seconds from a .npy or .csv file, square, at least `actors` rows; diagonal 0."""
    source = InputFile(f"{key}.file", Path(file))
    match source.path.suffix:
        case ".npy":
            matrix = source.array()
        case ".csv":
            matrix = _csv_matrix(source)
        case _:
            raise source.refusal("its name must end in .npy or .csv")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < actors:
        raise source.refusal(
            f"its shape is {matrix.shape}; must be a square of at least {actors} rows, one for each client "
            "and server"
        )
    if matrix.dtype.kind in "iuf":
        matrix = matrix.astype(np.float64)
        np.fill_diagonal(matrix, 0.0)  # nobody is its own neighbour, and many a file has nothing here
    source.require_numbers("row, column", matrix, least=0, most=_DAY_S * _UNITS_PER_S[unit])
    return matrix / _UNITS_PER_S[unit]


def _csv_matrix(source: InputFile) -> Floats:
    text = source.text()
    numbered = enumerate((line.partition("#")[0] for line in text.splitlines()), start=1)
    lines = [(number, line) for number, line in numbered if line.strip()]
    rows = []
    for number, line in lines:
        try:
            rows.append(np.array(line.split(","), dtype=np.float64))
        except ValueError as error:
            raise source.refusal(
                f"must be numbers with commas between: {shown(str(error))}", f"line {number}"
            ) from None
        if len(rows[-1]) != len(lines):
            raise source.refusal(
                f"has {len(rows[-1])} values; must have {len(lines)}, as there are rows", f"line {number}"
            )
    return np.array(rows).reshape(len(rows), len(rows))


# --- churn --------------------------------------------------------------------------------------------------


def spot_sessions(source: str, key: str, data_dir: Path | None) -> list[Session]:
    """The sessions of a measured run or group, by start; those that were not seen to end have no end."""
    if source in _SPOT_RUNS:
        file = trace_file(key, data_dir, "spot-churn", "spot_sessions_2020.csv")
        sessions = [_session(row) for row in _rows_of_run(file, source)]
    else:
        file = trace_file(key, data_dir, "spot-churn", f"spot_cluster_size_{source}.csv")
        sessions = sessions_of_size(_steps(file, _SIZE_UNITS_S.get(source, 1.0)))
    if not any(end_s > start_s for start_s, end_s in sessions):
        raise file.refusal(
            f"has no session of {source}, so that nobody would ever come; must have one at least"
        )
    return sorted(sessions)


def _rows_of_run(file: InputFile, run: str) -> list[Row]:
    # What is wrong anywhere means that the file is damaged, so all rows are read as sessions.
    rows = file.table("run", "start_s", "end_s", "censored")
    for row in rows:
        _session(row)
    return [row for row in rows if row.values["run"] == run]


def _session(row: Row) -> Session:
    start_s = row.number("start_s", 0, _CENTURY_S)
    end_s = row.number("end_s", start_s, _CENTURY_S)
    return start_s, math.inf if row.word("censored", "0", "1") == "1" else end_s


def _steps(file: InputFile, unit_s: float) -> Iterable[tuple[float, int]]:
    before_s = 0.0
    for row in file.table_without_head("time", "size"):
        time_s = row.number("time", 0, _CENTURY_S / unit_s) * unit_s
        if time_s < before_s:
            raise row.refusal(f"time = {row.values['time']}: must not be less than that of the row before")
        size = row.number("size", 0, _MEMBERS_MAX)
        if size != int(size):
            raise row.refusal(f"size = {row.values['size']}: must be a whole number")
        yield time_s, int(size)
        before_s = time_s
