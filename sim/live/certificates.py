"""Certificate authority of one live run, for mutual authentication of its processes."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from sim.errors import UserError
from sim.live.tokens import TOKEN, TOKEN_BYTES

_VALID = timedelta(days=30)


def make_certificates(folder: Path, processes: list[str]) -> None:
    """Write an authority, a certificate and a key for each process, and a secret. Raises UserError.

    The authority's key is not kept, so no process can be added later.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if existing := sorted(each.name for each in folder.iterdir()):
            raise UserError(
                f"--make-certificates {folder}: the folder contains {existing[0]}; must be empty or new"
            )
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _name("coterie run")
        _write(folder / "ca.pem", _signed(authority, authority_key, authority, authority_key, None))
        for process in processes:
            key = ec.generate_private_key(ec.SECP256R1())
            _write(folder / f"{process}.pem", _signed(_name(process), key, authority, authority_key, process))
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            _write(folder / f"{process}.key", pem)
        _write(folder / TOKEN, secrets.token_hex(TOKEN_BYTES).encode())
    except OSError as error:
        raise UserError(f"--make-certificates {folder}: {error.strerror}") from error


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    process: str | None,
) -> bytes:
    """Return a certificate as PEM, of a process or, with None, of the authority."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=process is None, path_length=None), critical=True)
    )
    if process is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(process)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
