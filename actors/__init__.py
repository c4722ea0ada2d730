"""Actors that exchange messages: mailboxes, handlers, supervision, transports. No learning, no simulation."""

from actors.actor import Actor
from actors.codec import Codec, size
from actors.mailbox import Mailbox
from actors.message import ActorError, AskInHandler, Envelope, PeerUnavailable, RemoteError, UnknownPeer
from actors.scan import DecodeError
from actors.supervisor import Failure, Supervisor
from actors.transport import InMemoryTransport, Transport

__all__ = [
    "Actor",
    "ActorError",
    "AskInHandler",
    "Codec",
    "DecodeError",
    "Envelope",
    "Failure",
    "InMemoryTransport",
    "Mailbox",
    "PeerUnavailable",
    "RemoteError",
    "Supervisor",
    "Transport",
    "UnknownPeer",
    "size",
]
