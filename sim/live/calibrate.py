"""Calibration: measurements of this machine as the sections `devices` and `network` of a scenario."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tomli_w

from actors.codec import Codec
from actors.message import Envelope
from actors.scan import Buffer
from actors.tcp.outgoing import Address
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.live.running import LiveOptions, run_live
from sim.live.wire import FrameHeader, Wire, WireCallbacks
from sim.run.options import RunOptions
from sim.run.save.saving import create_directory
from sim.run.setup.builder import building_process
from sim.scenario.reading import toml_tables
from sim.scenario.resolved import resolve_contents
from sim.scenario.scenario import Scenario, load_scenario

_MEASURED_S = 4.0
_WARM_UP = 3
_REPETITIONS = 30
_PINGS = 200
_LARGE_BYTES = 2_000_000


@dataclass(frozen=True)
class Calibration:
    """Measurements. step_time_s: seconds of a training step or a gradient, while all clients run.

    latency_s: one-way seconds of each small message. bandwidth_bps: bits per second of a large message.
    codec_s: seconds to encode and decode a model.
    """

    step_time_s: float
    latency_s: Sequence[float]
    bandwidth_bps: float
    codec_s: float

    def sections(self) -> dict[str, Any]:
        """Return `[devices]` and `[network]` with these values."""
        step_s, latency_s = self.step_time_s, float(np.median(self.latency_s))
        link = f"{self.bandwidth_bps / 1e6:.3g} Mbit/s"
        return {
            "devices": {"step_time": f"{1e3 * step_s:.4g} ms"},
            "network": {
                "latency": f"{1e3 * (latency_s + self.codec_s):.4g} ms",
                "uplink": link,
                "downlink": link,
            },
        }


def calibrate(scenario: Scenario, data_dir: Path | None, processes: int | None = None) -> Calibration:
    """Measure this machine for a scenario: its training, in the processes of a live run, and TCP.

    processes: None for one per core. Raises UserError, and ProcessFailed.
    """
    with TemporaryDirectory() as folder:
        short = _shortened(scenario, Path(folder))
        options = RunOptions(out=Path(folder), data_dir=data_dir)
        summary = run_live(short, options, LiveOptions(processes=processes, raw=True)).summary
    works = [summary["work"][kind]["clients"] for kind in ("steps", "gradients")]
    steps = sum(map(sum, works))
    if not steps:
        raise UserError(f"no client trained within {_MEASURED_S:g} s on this machine: its speed is unknown")
    with building_process(scenario, data_dir, "cpu") as prepared:
        simulation = prepared.simulation
        codec_s = _codec_s(simulation)
    latencies_s, bandwidth_bps = _measure_connection()
    return Calibration(summary["device_time"]["busy"] / steps, latencies_s, bandwidth_bps, codec_s)


def _shortened(scenario: Scenario, folder: Path) -> Scenario:
    """Return a scenario with the same clients for some seconds, without churn and changes."""
    file = create_directory(scenario, folder, "cpu").path / "scenario.toml"
    contents = toml_tables(file)
    contents["run"] |= {"duration": f"{_MEASURED_S:g} s", "evaluate_every": f"{_MEASURED_S:g} s"}
    for key in ("churn", "churn_process", "change", "sweep"):
        contents.pop(key, None)
    for key in ("iterations", "budget", "converged", "compare_alone"):
        contents["run"].pop(key, None)
    file.write_text(tomli_w.dumps(contents), encoding="utf-8")
    return load_scenario(file)


def calibrated(scenario: Scenario, found: Calibration) -> dict[str, Any]:
    """Return the contents of the scenario with the measurements instead of its devices and network.

    Of the two sections, only membership is kept: loss, partitions, slow times and other keys are removed.
    """
    contents = resolve_contents(scenario)
    kept = {key: contents["network"][key] for key in ("membership",) if key in contents["network"]}
    sections = found.sections()
    return contents | {"devices": sections["devices"], "network": sections["network"] | kept}


def _codec_s(simulation: Simulation) -> float:
    """Return the seconds to encode a model as a message and to decode it."""
    model = simulation.clients[0].compute.initial().numpy()
    codec, took = Codec(), []
    envelope = Envelope("client-0", "client-1", model)
    for _ in range(_WARM_UP + _REPETITIONS):
        began_s = time.perf_counter()
        codec.decode(b"".join(codec.pieces(envelope)))
        took.append(time.perf_counter() - began_s)
    return float(np.median(took[_WARM_UP:]))


class _Echo(WireCallbacks):
    """Connection end that returns all messages."""

    wire: Wire

    def message(self, process: str, stamp: FrameHeader, content: Buffer) -> None:
        self.wire.message(process, stamp, [content])


class _ReceivingEnd(WireCallbacks):
    """Connection end that waits for messages."""

    def __init__(self) -> None:
        self.arrived = threading.Event()

    def message(self, process: str, stamp: FrameHeader, content: Buffer) -> None:
        self.arrived.set()


def _measure_connection() -> tuple[list[float], float]:
    """Return one-way seconds of small messages between two local ends, and bits per second of large ones."""
    listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in ("there", "here")}
    addresses = {name: Address(*listener.getsockname()) for name, listener in listeners.items()}
    echo, waits, secret = _Echo(), _ReceivingEnd(), os.urandom(32)
    there = echo.wire = Wire("there", addresses, secret, echo, listener=listeners["there"])
    here = Wire("here", addresses, secret, waits, listener=listeners["here"])
    try:
        here.connected(["there"], 10.0)
        there.connected(["here"], 10.0)

        def half_s(content: bytes) -> float:
            waits.arrived.clear()
            began_s = time.perf_counter()
            here.message("there", FrameHeader(1, 0.0, 0.0), [content])
            waits.arrived.wait(10.0)
            return (time.perf_counter() - began_s) / 2

        small_s = [half_s(bytes(100)) for _ in range(_PINGS)]
        large_s = float(np.median([half_s(bytes(_LARGE_BYTES)) for _ in range(20)]))
    finally:
        here.close()
        there.close()
    return small_s, 8 * _LARGE_BYTES / max(1e-9, large_s - float(np.median(small_s)))
