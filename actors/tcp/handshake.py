"""How two endpoints prove to each other that they are of one run: by a secret that neither sends.

1. Who was called sends a `Challenge`: a number that is used once.
2. The caller answers with an `Introduction`: its name, a number of its own, and HMAC-SHA256 of both under
   the secret.
3. Who was called answers with a `Welcome`, which proves the same of itself.

The proofs differ by their first word and name both endpoints, so that none can be sent back or elsewhere. The
secret does not hide what is sent: beyond one machine, connections are encrypted (`TcpTransport`, tls).
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1
_NONCE_BYTES = 32


class Stranger(ValueError):
    """Who is at the other end cannot prove that it is of this run."""


@dataclass(frozen=True)
class Challenge:
    """The first word of who was called."""

    version: int
    nonce: bytes


@dataclass(frozen=True)
class Introduction:
    """The caller: its endpoint, and the number of this connection among all that it has begun to this one."""

    endpoint: str
    nonce: bytes
    link: int
    proof: bytes


@dataclass(frozen=True)
class Welcome:
    """The caller is known. `link`: its last connection before, of which `received` frames were read here."""

    proof: bytes
    link: int
    received: int


def new_nonce() -> bytes:
    """A number that is used once."""
    return secrets.token_bytes(_NONCE_BYTES)


def proof(secret: bytes, word: str, caller: str, called: str, nonces: bytes) -> bytes:
    """What only who has the secret can say; word: which of the two says it."""
    said = [part.encode() for part in (word, caller, called)]
    text = b"".join([len(part).to_bytes(4, "big") + part for part in (*said, nonces)])
    return hmac.digest(secret, text, "sha256")


def require_proof(given: bytes, expected: bytes) -> None:
    """Raises Stranger."""
    if not hmac.compare_digest(given, expected):
        raise Stranger("has not the secret of this run")


def require_named(certificate: Mapping[str, Any], endpoint: str) -> None:
    """Raises Stranger unless a certificate, as `ssl` describes it, is one of this endpoint."""
    if ("DNS", endpoint) not in certificate.get("subjectAltName", ()):
        raise Stranger(f"has no certificate of {endpoint}")


def require_challenge(message: object) -> Challenge:
    """What came as a challenge. Raises Stranger."""
    match message:
        case Challenge(int(version), bytes(nonce)) if len(nonce) == _NONCE_BYTES:
            if version != VERSION:
                raise Stranger(f"speaks version {version} of the protocol, and this is version {VERSION}")
            return message
    raise Stranger("sent no challenge")


def require_introduction(message: object) -> Introduction:
    """What came as a introduction, before its proof is looked at. Raises Stranger."""
    match message:
        case Introduction(str(), bytes(nonce), int(link), bytes()) if len(nonce) == _NONCE_BYTES and link > 0:
            return message
    raise Stranger("sent no introduction")


def require_welcome(message: object) -> Welcome:
    """What came as a welcome, before its proof is looked at. Raises Stranger."""
    match message:
        case Welcome(bytes(), int(link), int(received)) if link >= 0 and received >= 0:
            return message
    raise Stranger("sent no welcome")
