"""What a process proves who it is by, from a folder that `sim.live.certificates` has made."""

from __future__ import annotations

from pathlib import Path

from actors.tcp.endpoint import Tls
from sim.errors import UserError
from sim.files.input_file import read_regular

TOKEN_BYTES = 32
_FILE_BYTES = 2**16
TOKEN = "token"
"""The file of the secret that all processes share."""


def read_token(folder: Path) -> bytes:
    """The secret in a folder of certificates. UserError."""
    try:
        secret = bytes.fromhex(read_regular(folder / TOKEN, _FILE_BYTES).decode("ascii"))
    except (OSError, ValueError, UserError):
        secret = b""
    if len(secret) != TOKEN_BYTES:
        raise UserError(f"--certificates {folder}: has no {TOKEN} that was made by --make-certificates")
    return secret


def tls_of(folder: Path, process: str) -> Tls:
    """The encryption of a process, from a folder of certificates. UserError."""
    files = [folder / name for name in ("ca.pem", f"{process}.pem", f"{process}.key")]
    try:
        for file in files:
            read_regular(file, _FILE_BYTES)  # which does not open a pipe, and so waits for nobody
        return Tls.of(*map(str, files))
    except (OSError, ValueError, UserError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise UserError(f"--certificates {folder}: nothing there for {process} ({why})") from error
