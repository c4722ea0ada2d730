"""Latency of each pair, read from a file."""

import io
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from actors.settings.quantities import SigmaOfLog
from sim.files.input_file import InputFile
from sim.files.named_files import BesideFile
from sim.files.rows import DECIMAL_POINT
from sim.world.latency.nodes import LATENCY_MAX_S, LatencyByNode, NodeLatency
from sim.world.participants import Participants

_UNITS_PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6}


class MatrixLatency(LatencyByNode):
    """One-way latency of each pair from a file, from the row's client to the column's."""

    kind: Literal["matrix"]
    file: BesideFile
    """Square matrix, as .npy or as .csv without a header. A relative path starts at the scenario's folder.
    Row i is client i; the last rows are the servers, if there are any. The matrix may be larger than
    needed."""
    unit: Literal["s", "ms", "us"]
    """Unit of the latencies."""
    jitter: SigmaOfLog = 0.0
    """Sigma of a lognormal factor with median 1, drawn for each message and multiplied with the pair's
    latency."""

    def build(self, key: str, participants: Participants) -> NodeLatency:
        """Return the model: clients at the rows of their numbers, servers at the last rows."""
        needed = len(participants.clients) + len(participants.servers)
        seconds = latency_matrix(self.file, key, self.unit, needed)
        rows = {name: row for row, name in enumerate(participants.clients)}
        # Servers count from the end, so that one more client does not take a server's row.
        rows |= {name: len(seconds) - 1 - row for row, name in enumerate(participants.servers)}
        return NodeLatency(seconds[np.newaxis], rows, jitter=self.jitter)


def latency_matrix(file: str, key: str, unit: str, actors: int) -> NDArray[np.float64]:
    """Return one-way latencies in seconds from a .npy or .csv file: square, `actors` rows or more."""
    source = InputFile(f"{key}.file", Path(file))
    if source.path.suffix == ".npy":
        matrix = source.array()
    elif source.path.suffix == ".csv":

        def parse(content: bytes) -> NDArray[np.float64]:
            if b";" in content:
                raise source.refusal(f"contains semicolons; {DECIMAL_POINT}")
            return np.loadtxt(io.StringIO(content.decode("utf-8-sig")), delimiter=",", ndmin=2)

        matrix = source.parsed(parse, "rows of comma-separated numbers")
    else:
        raise source.refusal("the name must end in .npy or .csv")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < actors:
        raise source.refusal(
            f"the shape is {matrix.shape}; must be a square of at least {actors} rows, one for each client "
            "and server"
        )
    if matrix.dtype.kind in "iuf":
        matrix = matrix.astype(np.float64)
        np.fill_diagonal(matrix, 0.0)  # unused, and missing in many files
    source.require_numbers("row, column", matrix, least=0, most=LATENCY_MAX_S * _UNITS_PER_S[unit])
    return matrix / _UNITS_PER_S[unit]
