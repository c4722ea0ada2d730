"""The latency of each pair, from a file."""

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
    """The one-way latency of each pair from a file, from the row's client to the column's."""

    kind: Literal["matrix"]
    file: BesideFile
    """A square matrix, as .npy or as .csv without a header, beside the scenario file or by its full path.
    Row i is client i; the last rows are the servers, if there are any. It may be larger than needed."""
    unit: Literal["s", "ms", "us"]
    """Unit of its numbers."""
    jitter: SigmaOfLog = 0.0
    """Each message's latency is the pair's times a lognormal factor with this sigma and median 1."""

    def build(self, key: str, participants: Participants) -> NodeLatency:
        """Each client at the row of its number, servers at the last rows."""
        needed = len(participants.clients) + len(participants.servers)
        seconds = latency_matrix(self.file, key, self.unit, needed)
        rows = {name: row for row, name in enumerate(participants.clients)}
        # From the end, so that one more client does not take a server's row.
        rows |= {name: len(seconds) - 1 - row for row, name in enumerate(participants.servers)}
        return NodeLatency(seconds[np.newaxis], rows, jitter=self.jitter)


def latency_matrix(file: str, key: str, unit: str, actors: int) -> NDArray[np.float64]:
    """One-way latencies in seconds from a .npy or .csv file, square, at least `actors` rows; diagonal 0."""
    source = InputFile(f"{key}.file", Path(file))
    if source.path.suffix == ".npy":
        matrix = source.array()
    elif source.path.suffix == ".csv":

        def parse(content: bytes) -> NDArray[np.float64]:
            if b";" in content:
                raise source.refusal(f"has semicolons; {DECIMAL_POINT}")
            return np.loadtxt(io.StringIO(content.decode("utf-8-sig")), delimiter=",", ndmin=2)

        matrix = source.parsed(parse, "rows of numbers with commas between")
    else:
        raise source.refusal("its name must end in .npy or .csv")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < actors:
        raise source.refusal(
            f"its shape is {matrix.shape}; must be a square of at least {actors} rows, one for each client "
            "and server"
        )
    if matrix.dtype.kind in "iuf":
        matrix = matrix.astype(np.float64)
        np.fill_diagonal(matrix, 0.0)  # unused, and many files have no number here
    source.require_numbers("row, column", matrix, least=0, most=LATENCY_MAX_S * _UNITS_PER_S[unit])
    return matrix / _UNITS_PER_S[unit]
