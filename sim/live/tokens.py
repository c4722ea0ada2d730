"""Credentials of a process, from a folder that `sim.live.certificates` has written."""

from __future__ import annotations

from pathlib import Path

from actors.tcp.endpoint import Tls
from sim.errors import UserError
from sim.files.input_file import read_regular

TOKEN_BYTES = 32
_FILE_BYTES = 2**16
TOKEN = "token"
"""File with the secret that all processes share."""


def read_token(folder: Path) -> bytes:
    """Read the secret in a folder of certificates. Raises UserError."""
    try:
        secret = bytes.fromhex(read_regular(folder / TOKEN, _FILE_BYTES).decode("ascii"))
    except (OSError, ValueError, UserError):
        secret = b""
    if len(secret) != TOKEN_BYTES:
        raise UserError(f"--certificates {folder} has no valid {TOKEN}; create one with --make-certificates")
    return secret


def tls_settings(folder: Path, process: str) -> Tls:
    """Return the TLS settings of a process, from a folder of certificates. Raises UserError."""
    files = [folder / name for name in ("ca.pem", f"{process}.pem", f"{process}.key")]
    try:
        for file in files:
            read_regular(file, _FILE_BYTES)  # rejects a pipe, which could block
        return Tls.of(*map(str, files))
    except (OSError, ValueError, UserError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(f"--certificates {folder}: no valid files for {process} ({reason})") from error
