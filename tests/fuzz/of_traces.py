"""Measured traces with damaged files: latencies, bandwidths, speeds, sessions, slow times, topologies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import tomli_w

from tests.fuzz import damage, data
from tests.fuzz.case import Commands, Kind
from tests.fuzz.tables import put

_SCENARIO: dict[str, Any] = {
    "run": {"duration": "2 s", "evaluate_every": "1 s"},
    "clients": {"count": 6},
    "data": {"name": "quadratic", "clusters": 2, "dimension": 4, "samples": 20},
    "model": {"name": "point"},
    "training": {"learning_rate": 0.1, "batch_size": 1},
    "protocol": {"name": "gossip", "period": "500 ms"},
    "network": {"latency": "20 ms", "uplink": "1 Mbit/s", "downlink": "1 Mbit/s"},
    "devices": {"step_time": "100 ms"},
}
_PHONES = {"kind": "trace", "source": "phones"}
# What a scenario says to use a trace, the trace's file, and whether that is in the data folder.
_USES: tuple[tuple[dict[str, Any], str, bool], ...] = (
    ({"network.latency": {"kind": "trace", "source": "planetlab"}}, "net-latency/planetlab_rtt_ms.npz", True),
    (
        {"network.latency": {"kind": "trace", "source": "planetlab", "slice": "1 s"}},
        "net-latency/planetlab_rtt_ms.npz",
        True,
    ),
    (
        {"network.latency": {"kind": "trace", "source": "seattle", "slice": "500 ms", "jitter": 0.1}},
        "net-latency/seattle_rtt_s.npz",
        True,
    ),
    ({"network.latency": {"kind": "matrix", "file": "matrix.npy", "unit": "ms"}}, "matrix.npy", False),
    ({"network.latency": {"kind": "matrix", "file": "matrix.csv", "unit": "ms"}}, "matrix.csv", False),
    ({"network.uplink": _PHONES, "network.downlink": _PHONES}, "device-traces/phone_bandwidth.csv", True),
    (
        {"devices.step_time": {"kind": "trace", "source": "ai-benchmark", "median": "100 ms"}},
        "device-traces/ai_benchmark_2020.csv",
        True,
    ),
    *(
        (
            {
                "churn_process": [
                    {"kind": "trace", "source": source, "speedup": 4000, "clients": [2, 3, 4, 5]}
                ]
            },
            f"spot-churn/{file}.csv",
            True,
        )
        for source, file in (
            ("aws_2020-03-15", "spot_sessions_2020"),
            ("gcp_2020-03-01", "spot_sessions_2020"),
            ("g4dn_us-east-1c_2020-11-20", "spot_cluster_size_g4dn_us-east-1c_2020-11-20"),
            ("p2_2020-11-20", "spot_cluster_size_p2_2020-11-20"),
        )
    ),
    ({"devices.measured": {"file": "slow.csv"}}, "slow.csv", False),
    ({"clients.topology": {"kind": "edge-list", "file": "edges.txt"}}, "edges.txt", False),
)


@dataclass
class Trace:
    """A scenario, and the file that it needs: arrays, text, or bytes that are no longer either."""

    scenario: dict[str, Any]
    file: Path
    content: Any
    afterwards: list[Callable[[Path], object]] = field(default_factory=list)


class Traces(Kind):
    """A scenario that needs a measured trace or a file of its own, with that file spoiled."""

    name = "trace"

    def begin(self, folder: Path, rng: Random) -> Trace:
        settings, file, is_data = rng.choice(_USES)
        scenario = {section: dict(table) for section, table in _SCENARIO.items()}
        for key, value in settings.items():
            put(scenario, tuple(key.split(".")), value)
        content = _valid(file, np.random.default_rng(rng.randrange(2**32)))
        return Trace(scenario, Path("data", file) if is_data else Path(file), content)

    def change(self, state: Trace, rng: Random) -> str:
        content = state.content
        match rng.choice(("meaning",) * 6 + ("bytes", "file")):
            case "bytes":
                state.content, how = damage.of_bytes(_bytes(content), rng)
            case "file":
                state.afterwards.append(lambda path: damage.of_file(path, rng))
                how = "something else in its place"
            case _ if isinstance(content, str):
                state.content, how = damage.of_csv(content, rng, " " if state.file.suffix == ".txt" else ",")
            case _ if isinstance(content, np.ndarray):
                state.content, how = damage.of_array(content, rng)
            case _ if isinstance(content, dict):
                state.content, how = _other_arrays(content, rng)
            case _:
                state.content, how = damage.of_bytes(content, rng)
        return f"{state.file.name}: {how}"

    def commands(self, state: Trace) -> Commands:
        Path("data").unlink()
        state.file.parent.mkdir(parents=True, exist_ok=True)
        Path("data").mkdir(exist_ok=True)
        state.file.write_bytes(_bytes(state.content))
        for spoil in state.afterwards:
            spoil(state.file)
        Path("scenario.toml").write_text(tomli_w.dumps(state.scenario), encoding="utf-8")
        return [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


def _valid(file: str, rng: np.random.Generator) -> Any:
    match Path(file).suffix:
        case ".npz":
            return data.round_trips(rng, Path(file).name.partition("_")[0])
        case ".npy":
            return rng.lognormal(3, 0.5, (6, 6))
    own = {
        "matrix.csv": "\n".join(",".join(f"{ms:.3f}" for ms in row) for row in rng.lognormal(3, 0.5, (6, 6))),
        "slow.csv": "time_s,factor\n0,1\n0.5,4\n1.5,1\n3,1\n",
        "edges.txt": "# a ring\n" + "".join(f"{client} {(client + 1) % 6}\n" for client in range(6)),
    }
    return own[file] if file in own else data.tables(rng)[file]


def _bytes(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    if isinstance(content, np.ndarray):
        return data.npy(content)
    return data.npz(content) if isinstance(content, dict) else content


def _other_arrays(arrays: dict[str, np.ndarray], rng: Random) -> tuple[dict[str, np.ndarray], str]:
    if not arrays:
        return arrays, "nothing"
    name = rng.choice(list(arrays))
    match rng.choice(("array", "array", "array", "array", "without", "renamed")):
        case "without":
            return {other: array for other, array in arrays.items() if other != name}, f"without {name}"
        case "renamed":
            return {f"{other}_": array for other, array in arrays.items()}, "other names"
    array, how = damage.of_array(arrays[name], rng)
    return {**arrays, name: array}, f"{name}: {how}"
