"""Limits that a transport over TCP sets for its peers and for unauthenticated connections."""

from dataclasses import dataclass

MAILBOX_BYTES = 2**27
"""Limit of the bytes in an actor's mailbox, where messages come from other processes."""


@dataclass(frozen=True)
class Limits:
    """Limits of a `TcpTransport`, in bytes and seconds.

    frame_bytes: the longest frame. backlog_bytes: limit of frames that wait for one endpoint that reads too
    slowly; further frames are dropped and counted. handshake_bytes, handshake_s: for a connection that is not
    yet authenticated. strangers: the maximum number of these connections; one more closes the oldest. beat_s:
    the interval of checks and heartbeats. silence_s: a connection without any bytes for this time is cut.
    least_rate: minimum bytes per second, after `silence_s`, of an unfinished frame. retry_s, retry_max_s:
    pauses before an unreachable endpoint is tried again; they double.
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
