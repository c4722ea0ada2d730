"""Handshake: two endpoints prove to each other, by a secret that neither sends, that they belong to one run.

1. The called endpoint sends a `Challenge`: a number that is used once.
2. The caller answers with an `Introduction`: its name, a number that is used once, and HMAC-SHA256 of both
   numbers under the secret.
3. The called endpoint answers with a `Welcome`, with its own proof.

The proofs differ by their first word and name both endpoints, so that no proof can be sent back, or reused
for another endpoint. The secret does not hide the content: connections to other machines are encrypted
(`TcpTransport`, tls).
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1
_NONCE_BYTES = 32


class Stranger(ValueError):
    """Error: the other end cannot prove that it belongs to this run."""


@dataclass(frozen=True)
class Challenge:
    """First message of the called endpoint."""

    version: int
    nonce: bytes


@dataclass(frozen=True)
class Introduction:
    """Introduction of the caller: its endpoint, and the number of this connection."""

    endpoint: str
    nonce: bytes
    link: int
    proof: bytes


@dataclass(frozen=True)
class Welcome:
    """Acceptance of the caller. `link`: its previous link; `received`: number of frames read from it."""

    proof: bytes
    link: int
    received: int


def new_nonce() -> bytes:
    """Return a random number that is used once."""
    return secrets.token_bytes(_NONCE_BYTES)


def proof(secret: bytes, word: str, caller: str, called: str, nonces: bytes) -> bytes:
    """Return a proof that requires the secret; word: "caller" or "called", the side that proves itself."""
    parts = [part.encode() for part in (word, caller, called)]
    text = b"".join([len(part).to_bytes(4, "big") + part for part in (*parts, nonces)])
    return hmac.digest(secret, text, "sha256")


def require_proof(given: bytes, expected: bytes) -> None:
    """Raise Stranger unless the given proof is the expected one."""
    if not hmac.compare_digest(given, expected):
        raise Stranger("does not have the secret of this run")


def require_certificate_of(certificate: Mapping[str, Any], endpoint: str) -> None:
    """Raise Stranger unless a certificate, as described by `ssl`, belongs to this endpoint."""
    if ("DNS", endpoint) not in certificate.get("subjectAltName", ()):
        raise Stranger(f"has no certificate of {endpoint}")


def require_challenge(message: object) -> Challenge:
    """Return the message if it is a valid challenge. Raises Stranger."""
    match message:
        case Challenge(int(version), bytes(nonce)) if len(nonce) == _NONCE_BYTES:
            if version != VERSION:
                raise Stranger(f"uses version {version} of the protocol; this endpoint uses {VERSION}")
            return message
    raise Stranger("sent no challenge")


def require_introduction(message: object) -> Introduction:
    """Return the message if it is an introduction, before its proof is checked. Raises Stranger."""
    match message:
        case Introduction(str(), bytes(nonce), int(link), bytes()) if len(nonce) == _NONCE_BYTES and link > 0:
            return message
    raise Stranger("sent no introduction")


def require_welcome(message: object) -> Welcome:
    """Return the message if it is a welcome, before its proof is checked. Raises Stranger."""
    match message:
        case Welcome(bytes(), int(link), int(received)) if link >= 0 and received >= 0:
            return message
    raise Stranger("sent no welcome")
