"""What a transport over TCP allows its peers, and strangers."""

from dataclasses import dataclass

MAILBOX_BYTES = 2**27
"""What may wait in the mailbox of one actor, where messages come from other processes."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a `TcpTransport`; bytes and seconds.

    frame_bytes: the longest frame. backlog_bytes: what may wait for one endpoint that reads too slowly; more
    is dropped, and counted. handshake_bytes, handshake_s: for a connection that has not proved yet whose it
    is. strangers: how many such connections there may be; a further one ends the oldest. beat_s: how often
    connections are looked at, and say that they are there. silence_s: a connection on which nothing comes for
    so long is cut. least_rate: bytes per second, after `silence_s`, of a frame that is under way. retry_s,
    retry_max_s: pauses before an endpoint that was not to be reached is tried again, which double.
    """

    frame_bytes: int = 2**28
    backlog_bytes: int = 2**26
    handshake_bytes: int = 2**12
    handshake_s: float = 5.0
    strangers: int = 64
    beat_s: float = 1.0
    silence_s: float = 10.0
    least_rate: float = 10_000.0
    retry_s: float = 0.05
    retry_max_s: float = 5.0
