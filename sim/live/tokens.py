"""What a process proves who it is by, from a folder that `sim.live.certificates` has made."""

from __future__ import annotations

from pathlib import Path

from actors.tcp.endpoint import Tls
from sim.errors import UserError

TOKEN_BYTES = 32
TOKEN = "token"
"""The file of the secret that all processes share."""


def read_token(folder: Path) -> bytes:
    """The secret in a folder of certificates. UserError."""
    try:
        secret = bytes.fromhex((folder / TOKEN).read_text(encoding="ascii"))
    except (OSError, ValueError):
        secret = b""
    if len(secret) != TOKEN_BYTES:
        raise UserError(f"--certificates {folder}: has no {TOKEN} that was made by --make-certificates")
    return secret


def tls_of(folder: Path, process: str) -> Tls:
    """The encryption of a process, from a folder of certificates. UserError."""
    try:
        return Tls.of(*[str(folder / name) for name in ("ca.pem", f"{process}.pem", f"{process}.key")])
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"--certificates {folder}: nothing there for {process} ({why})") from error
