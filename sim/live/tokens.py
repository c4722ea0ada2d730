"""What a process proves who it is by, from a folder that `sim.live.certificates` has made."""

from __future__ import annotations

from pathlib import Path

from actors.tcp.endpoint import Tls
from sim.errors import UserError
from sim.files.input_file import read_regular, require_regular

TOKEN_BYTES = 32
_BYTES_MAX = 1000  # of the file
TOKEN = "token"
"""The file of the secret that all processes share."""


def read_token(folder: Path) -> bytes:
    """The secret in a folder of certificates. UserError."""
    try:
        secret = bytes.fromhex(read_regular(folder / TOKEN, _BYTES_MAX).decode("ascii"))
    except (OSError, ValueError, UserError):  # a pipe, which is not waited for, is none either
        secret = b""
    if len(secret) != TOKEN_BYTES:
        raise UserError(f"--certificates {folder}: has no {TOKEN} that was made by --make-certificates")
    return secret


def tls_of(folder: Path, process: str) -> Tls:
    """The encryption of a process, from a folder of certificates. UserError."""
    try:
        paths = [folder / name for name in ("ca.pem", f"{process}.pem", f"{process}.key")]
        for path in paths:
            require_regular(path)
        return Tls.of(*map(str, paths))
    except UserError as error:
        raise UserError(f"--certificates {folder}: nothing there for {process} ({error.problem})") from None
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"--certificates {folder}: nothing there for {process} ({why})") from error
