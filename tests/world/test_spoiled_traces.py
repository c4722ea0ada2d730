"""Damaged traces, matrices and tables: each is refused in words that name file, row or array, and value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.world import bandwidths
from sim.world.churn.sessions import read_spot_instance_sessions
from sim.world.devices import speeds
from sim.world.devices.slow_times import MeasuredSlowTimes
from sim.world.latency.matrix import latency_matrix
from sim.world.latency.measured import round_trips

SESSIONS = "run,instance,start_s,end_s,censored"
AWS = "aws_2020-03-15"
P2 = "p2_2020-11-20"


def phone_bandwidths(folder: Path) -> Any:
    return bandwidths.phone_bandwidths("network.uplink", DataFolder(folder))


def phone_scores(folder: Path) -> Any:
    return speeds.relative_scores("devices.speed", DataFolder(folder))


def sessions(folder: Path) -> Any:
    return read_spot_instance_sessions(AWS, "churn_process.0.source", DataFolder(folder))


def curve(folder: Path) -> Any:
    return read_spot_instance_sessions(P2, "churn_process.0.source", DataFolder(folder))


def slow_times(folder: Path) -> Any:
    return MeasuredSlowTimes(file=str(folder / "slow.csv")).trace


def matrix(folder: Path) -> Any:
    return latency_matrix(str(folder / "m.csv"), "network.latency", "ms", 2)


BANDWIDTHS = ("device-traces/phone_bandwidth.csv", phone_bandwidths)
SCORES = ("device-traces/ai_benchmark_2020.csv", phone_scores)
SPOT = ("spot-churn/spot_sessions_2020.csv", sessions)
CURVE = (f"spot-churn/spot_cluster_size_{P2}.csv", curve)
SLOW = ("slow.csv", slow_times)
MATRIX = ("m.csv", matrix)
GOOD = {
    BANDWIDTHS: "device,down_mean,up_mean\n0,100,10\n\n1,200,20\n",
    SCORES: "\ufeffai_score,Model\n5,x\n7,y\n",
    SPOT: f"{SESSIONS}\n{AWS},a,0,50,0\n{AWS},b,10,60,1\nother,c,0,1,0\n",
    CURVE: "0,0\n1,2\n2,0\n88.695,14\n",
    SLOW: "time_s,factor\n0,1\n5,2\n9,0\n",
    MATRIX: "0,1\n2,nan\n# no more\n",
}
Trace = tuple[str, Callable[[Path], Any]]


def put(folder: Path, file: str, content: str | bytes) -> None:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    ("trace", "read"),
    [
        (BANDWIDTHS, [(10, 100), (20, 200)]),
        (SCORES, [5 / 6, 7 / 6]),
        (SPOT, [(0, 50), (10, float("inf"))]),
        (CURVE, [(3600, 7200), (3600, 7200), *[(88.695 * 3600, float("inf"))] * 14]),
        (SLOW, ((0, 5, 9), (1, 2))),
        (MATRIX, [[0, 0.001], [0.002, 0]]),
    ],
)
def test_what_is_intact_is_read(tmp_path: Path, trace: Trace, read: Any) -> None:
    put(tmp_path, trace[0], GOOD[trace])
    found = trace[1](tmp_path)
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == read


@pytest.mark.parametrize("trace", GOOD)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00junk", "is not text in UTF-8"),
        (b"\x00" * 100, "line 1: "),
        (b"<html>not found</html>\n", "line 1: "),
        (b'"never closed\n1,2\n', "line [12]: "),
        (b"\n\n\n", "has no "),
    ],
)
def test_what_is_no_table_at_all(tmp_path: Path, trace: Trace, content: bytes, problem: str) -> None:
    if trace is MATRIX and problem != "is empty":
        problem = "is not rows of comma-separated numbers|the shape is"
    put(tmp_path, trace[0], content)
    with pytest.raises(UserError, match=problem) as refusal:
        trace[1](tmp_path)
    assert str(tmp_path / trace[0]) in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("trace", "content", "problem"),
    [
        (BANDWIDTHS, "a,b\n1,2\n", "line 1: has no column up_mean, but a, b; must have up_mean, down_mean"),
        (BANDWIDTHS, "up_mean,down_mean\n", "has no rows; must have at least one"),
        (BANDWIDTHS, "up_mean,down_mean\n1,2\n\n3", "line 4: has 1 value; must have 2: up_mean, down_mean"),
        (BANDWIDTHS, "up_mean,down_mean\n1,x\n", "line 2: down_mean = 'x': must be a number from 1 to 1e"),
        (BANDWIDTHS, "up_mean,down_mean\n0,5\n", "line 2: up_mean = '0': must be a number from 1"),
        (BANDWIDTHS, f"up_mean,down_mean\n1,{'9' * 6000}\n", r"down_mean = '9+\.\.\.: must be a number"),
        (SCORES, "ai_score\n5\n\n-1\n", "line 4: ai_score = '-1'"),
        (SPOT, f"{SESSIONS}\n{AWS},a,0,50,0\n{AWS},b,10,6", "line 3: has 4 values; must have 5"),
        (SPOT, f"{SESSIONS}\n{AWS},a,0,50,\n", "line 2: censored = '': must be one of 0, 1"),
        (SPOT, f"{SESSIONS}\n{AWS},a,60,50,0\n", "line 2: end_s = '50': must be a number from 60 to"),
        (SPOT, f"{SESSIONS}\nother,a,0,1,0\n", f"contains no session of {AWS}, so no client would ever join"),
        (CURVE, "0,0\n1,2\n2,0\n", "ends at 2 with the size 0; the measurement ends at 88.695 with 14"),
        (
            CURVE,
            "0,0\n1,2\n88.695,1",
            "ends at 88.695 with the size 1; the measurement ends at 88.695 with 14",
        ),
        (CURVE, "0,0\n2,2\n1,0\n88.695,14\n", "line 3: time = '1': must be a number from 2 to"),
        (CURVE, "0,٣\n88.695,14\n", "line 1: size = .*: must be a number from 0"),
        (SLOW, "time_s,factor\n0,1\n", "has one row; at least two are needed"),
        (SLOW, "time_s,factor\n1,1\n2,1\n", "line 2: time_s = 1: must be 0"),
        (SLOW, "time_s,factor\n0,1\n5,1\n5,1\n", "line 4: time_s = 5: must be larger than"),
        (SLOW, "time_s,factor\n0,0\n5,1\n", "line 2: factor = '0': must be a number from 1e-06"),
        (MATRIX, "0,1\n2\n", "is not rows of comma-separated numbers, or is damaged: .* columns changed"),
        (MATRIX, "0,x\n2,0\n", "is not rows of comma-separated numbers, or is damaged: could not convert"),
        (MATRIX, "0,-1\n2,0\n", r"\[0, 1\]: is -1\.0; must be a number from 0 to 8\.64e\+07"),
        (MATRIX, "0\n", r"the shape is \(1, 1\); must be a square of at least 2 rows"),
    ],
)
def test_bad_rows(tmp_path: Path, trace: Trace, content: str, problem: str) -> None:
    put(tmp_path, trace[0], content)
    with pytest.raises(UserError, match=problem) as refusal:
        trace[1](tmp_path)
    assert str(tmp_path / trace[0]) in str(refusal.value)
    assert len(str(refusal.value)) < 400


# --- latencies ----------------------------------------------------------------------------------------------

MEDIANS, SLICES = np.full((3, 3), 80.0, np.float32), np.full((2, 3, 3), 90.0, np.float32)


def spoiled(array: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


def put_planetlab(folder: Path, **arrays: np.ndarray | None) -> None:
    (folder / "net-latency").mkdir()
    whole = {"rtt_ms_median": MEDIANS, "rtt_ms_slices": SLICES} | arrays
    kept = {name: array for name, array in whole.items() if array is not None}
    np.savez(folder / "net-latency/planetlab_rtt_ms.npz", **kept)  # type: ignore[arg-type]


def test_round_trips_are_in_seconds(tmp_path: Path) -> None:
    put_planetlab(tmp_path)
    medians_s, slices_s = round_trips("planetlab", "network.latency", DataFolder(tmp_path))
    assert (medians_s == 0.08).all()
    assert (slices_s == 0.09).all()


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"rtt_ms_median": None}, "has no array rtt_ms_median, but rtt_ms_slices; must have"),
        ({"rtt_ms_slices": SLICES[:0]}, r"rtt_ms_slices: has shape \(0, 3, 3\) without values"),
        ({"rtt_ms_median": MEDIANS.astype(complex)}, "rtt_ms_median: has values of type complex128"),
        ({"rtt_ms_median": MEDIANS.astype(str)}, "rtt_ms_median: has values of type <U32"),
        ({"rtt_ms_median": MEDIANS.astype(object)}, "Object arrays cannot be loaded"),
        ({"rtt_ms_median": spoiled(MEDIANS, (0, 2), np.nan)}, r"rtt_ms_median\[0, 2\]: is nan; must be"),
        ({"rtt_ms_median": spoiled(MEDIANS, (2, 1), -5)}, r"rtt_ms_median\[2, 1\]: is -5\.0; must be"),
        ({"rtt_ms_slices": spoiled(SLICES, (1, 0, 2), np.inf)}, r"rtt_ms_slices\[1, 0, 2\]: is inf"),
        ({"rtt_ms_slices": spoiled(SLICES, (1, 0, 2), 1e12)}, r"is 999\d+\.0; must be a number from 0 to"),
    ],
)
def test_spoiled_round_trips(tmp_path: Path, arrays: dict[str, np.ndarray | None], problem: str) -> None:
    put_planetlab(tmp_path, **arrays)
    with pytest.raises(UserError, match=problem) as refusal:
        round_trips("planetlab", "network.latency", DataFolder(tmp_path))
    assert f"network.latency: {tmp_path / 'net-latency/planetlab_rtt_ms.npz'}" in str(refusal.value)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.array([[0, 1], [2, 0]], dtype=object), "is not a .npy file of numbers"),
        (np.array([["a", "b"], ["c", "d"]]), "has values of type <U1; must be real numbers"),
        (np.ones((2, 2, 2)), r"the shape is \(2, 2, 2\)"),
    ],
)
def test_spoiled_matrices_of_numpy(tmp_path: Path, array: np.ndarray, problem: str) -> None:
    np.save(tmp_path / "m.npy", array)
    with pytest.raises(UserError, match=rf"network\.latency\.file: .*m\.npy.*{problem}"):
        latency_matrix(str(tmp_path / "m.npy"), "network.latency", "s", 2)
