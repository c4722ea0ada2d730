"""What comes from strangers, and from peers that lie, harms nobody but them, and is counted."""

import asyncio
import shutil
import socket
import subprocess
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.codec import Codec
from actors.message import Envelope, LastingQuestion, Question, RepeatRequest, RoundMark
from actors.tcp.endpoint import Tls
from actors.tcp.frames import with_length_header
from actors.tcp.handshake import Challenge, Introduction
from actors.tcp.meaning import Meaningless, require_valid_envelope
from actors.tcp.transport import TcpTransport
from tests.actors.tcp.endpoints import (
    CODEC,
    LIMITS,
    SECRET,
    Note,
    accounted,
    addresses,
    endpoint_of,
    endpoints,
    note,
    until,
)


async def works(a: TcpTransport, b: TcpTransport) -> None:
    """Messages still pass between two endpoints."""
    before = a.counts.delivered
    for number in range(100):
        a.send(note(number))
    await until(lambda: a.counts.delivered == before + 100)
    assert accounted(a) and accounted(b)


async def connected_to(transport: TcpTransport) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", transport.port)


INTRODUCTION = Introduction("a", bytes(32), 1, bytes(32))
SAID: dict[str, tuple[bytes, str]] = {
    "garbage": (
        b"GET / HTTP/1.1\r\n\r\n",
        "a stranger a frame of 1,195,725,856 bytes; at most 4,096 are allowed",
    ),
    "2 GB announced": (b"\x80\x00\x00\x00", "a stranger a frame of 2,147,483,648 bytes"),
    "no message": (b"\x00\x00\x00\x01\xc1", "a stranger no object starts with the byte c1"),
    "nothing in it": (b"\x00\x00\x00\x00", "a stranger the bytes end too early"),
    "another message": (
        b"".join(with_length_header([Codec(Challenge).encode(Challenge(1, bytes(32)))])),
        "a stranger sent no introduction",
    ),
    "a wrong proof": (
        b"".join(with_length_header([Codec(Introduction).encode(INTRODUCTION)])),
        "a stranger does not have the secret of this run",
    ),
    "a map for a name": (
        b"".join(with_length_header([Codec(Introduction).encode(replace(INTRODUCTION, endpoint={"a": 1}))])),  # type: ignore[arg-type]
        "a stranger sent no introduction",
    ),
    "goodbye": (b"", "a stranger closed by the other end"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("what", SAID)
async def test_a_stranger_is_cut_and_counted(what: str) -> None:
    said, reason = SAID[what]

    async with endpoints("ab") as (a, b):
        b.attach("b.1", lambda envelope: None)
        _, writer = await connected_to(b)
        writer.write(said)
        writer.write_eof()
        await until(lambda: any(each.startswith(reason) for each in b.counts.reasons))
        writer.close()
        await works(a, b)
        assert sum(b.counts.reasons.values()) == 1


@pytest.mark.asyncio
async def test_strangers_that_say_nothing_or_too_little_are_cut_in_time() -> None:
    async with endpoints("ab", replace(LIMITS, handshake_s=0.2)) as (a, b):
        b.attach("b.1", lambda envelope: None)
        # On a busy machine the other end may have been too slow as well, at first.
        before = b.counts.reasons.get("a stranger did not authenticate in time", 0)
        mute, dripping = await connected_to(b), await connected_to(b)
        dripping[1].write(b"\x00\x00\x0f\x00")
        reason = "a stranger did not authenticate in time"

        def are_gone() -> bool:
            dripping[1].write(b"\x00")
            return b.counts.reasons.get(reason, 0) == before + 2

        await until(are_gone)
        assert set(b.counts.reasons) == {reason}
        for _, writer in (mute, dripping):
            writer.close()
        await works(a, b)


@pytest.mark.asyncio
async def test_many_mute_connections_hinder_nobody() -> None:
    async with endpoints("ab", replace(LIMITS, strangers=16, handshake_s=60.0)) as (a, b):
        b.attach("b.1", lambda envelope: None)
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(closing(socket.create_connection(("127.0.0.1", b.port))))
                await asyncio.sleep(0)
            await until(lambda: sum(b.counts.reasons.values()) >= 184)
            assert len(b._strangers) <= 16
            await works(a, b)
            for link in [each for each in b._accepted if each.peer]:
                link.cut("a test")  # who is known comes back all the same
            await until(lambda: a._outgoing["b"].link is None)
            await a.connected(10)
            await works(a, b)


@pytest.mark.asyncio
async def test_another_secret_opens_nothing() -> None:
    where = addresses("ab")
    other = bytes(reversed(SECRET))
    async with (
        TcpTransport("a", where, endpoint_of, CODEC, SECRET, limits=LIMITS) as a,
        TcpTransport("b", where, endpoint_of, CODEC, other, limits=LIMITS) as b,
    ):
        reason = "a stranger does not have the secret of this run"
        await until(lambda: all(each.counts.reasons.get(reason, 0) > 1 for each in (a, b)))
        assert a._outgoing["b"].link is b._outgoing["a"].link is None


@pytest.mark.asyncio
async def test_who_proves_nothing_of_itself_is_not_believed() -> None:
    """A false endpoint, which lets everybody in: its welcome has no proof."""

    where = addresses("ab")

    async def false(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        codec = Codec(Challenge, Introduction)
        writer.write(b"".join(with_length_header([codec.encode(Challenge(1, bytes(32)))])))
        await reader.read(1000)
        writer.write(b"".join(with_length_header([msgpack.packb(["Welcome", bytes(32), 0, 0])])))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(false, "127.0.0.1", where["b"].port)
    async with TcpTransport("a", where, endpoint_of, CODEC, SECRET, limits=LIMITS) as a:
        await until(lambda: list(a._outgoing["b"].ends)[-2:] == ["sent no welcome"] * 2)
        assert a._outgoing["b"].link is None
    server.close()
    await asyncio.sleep(0.05)


LIES: dict[str, Any] = {
    "a sender of another endpoint": note(1, sender="c.1"),
    "a sender of this endpoint": note(1, sender="b.2"),
    "nobody's name": note(1, sender="zoe"),
    "a receiver of another endpoint": note(1, receiver="a.1"),
    "a map as receiver": Envelope("a.1", {"b.1": 1}, Note(1)),  # type: ignore[arg-type]
    "no envelope": Note(1),
    "a number": 3,
}


@pytest.mark.asyncio
@pytest.mark.parametrize("lie", LIES)
async def test_lies_of_a_peer_are_refused_and_counted(lie: str) -> None:
    async with endpoints("ab") as (a, b):
        log: list[Envelope] = []
        b.attach("b.1", log.append)
        a._outgoing["b"].send([CODEC.encode(LIES[lie])])
        a._outgoing["b"].send([b"\xc1"])
        a.counts.sent += 2  # as they passed by the transport
        a.counts.in_flight += 2
        await until(lambda: b.counts.refused == 2)
        assert b.counts.reasons == {"refused: Meaningless": 1, "refused: DecodeError": 1}
        await works(a, b)
        assert len(log) == 100


NUMBERS = st.integers(-3, 3) | st.booleans() | st.none() | st.floats() | st.text(max_size=3) | st.just((1,))
QUESTIONS = st.builds(Question, NUMBERS, NUMBERS, NUMBERS, NUMBERS) | st.builds(
    LastingQuestion, NUMBERS, NUMBERS, NUMBERS, NUMBERS
)
MARKS = st.builds(RoundMark, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
REQUESTS = NUMBERS | QUESTIONS | MARKS | st.builds(RepeatRequest, NUMBERS, NUMBERS, NUMBERS, NUMBERS)


@pytest.mark.long
@given(NUMBERS | st.just("a"), NUMBERS | st.just("b"), REQUESTS, REQUESTS, REQUESTS, NUMBERS)
def test_what_passes_is_what_actors_send(
    sender: Any, receiver: Any, message: Any, request: Any, answer_to: Any, error: Any
) -> None:
    envelope = Envelope(sender, receiver, message, request, answer_to, error)
    try:
        require_valid_envelope(envelope)
    except Meaningless:
        return
    assert type(sender) is type(receiver) is str
    assert error is None or type(error) is str
    for asked in (request, answer_to):
        if isinstance(asked, Question):
            assert asked.number + asked.attempt + asked.open_from + asked.repeat_s >= 0
        elif not isinstance(asked, RoundMark):
            assert asked is None or (type(asked) is int and asked >= 0)
    assert not isinstance(answer_to, RoundMark)
    if isinstance(message, RepeatRequest):
        assert isinstance(request, RoundMark) and type(message.kind) is str and message.number >= 0


# --- encryption ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """What openssl made."""

    folder: Path

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def authority(self, name: str) -> None:
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        self.openssl(
            "req", "-x509", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"
        )

    def certificate(self, endpoint: str, authority: str) -> Tls:
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self.openssl(
            "req", *new, "-subj", f"/CN={endpoint}", "-keyout", f"{endpoint}.key", "-out", f"{endpoint}.csr",
            "-addext", f"subjectAltName=DNS:{endpoint}",
        )  # fmt: skip
        self.openssl(
            "x509", "-req", "-in", f"{endpoint}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-days", "2", "-copy_extensions", "copyall", "-out", f"{endpoint}.pem",
        )  # fmt: skip
        paths = [str(self.folder / name) for name in ("run.pem", f"{endpoint}.pem", f"{endpoint}.key")]
        return Tls.of(*paths)


@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates of this test")
async def test_encrypted_connections_need_the_certificate_of_the_endpoint(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for name in ("run", "other"):
        files.authority(name)
    tls = {name: files.certificate(name, "run") for name in "abc"} | {"d": files.certificate("d", "other")}

    where = addresses("abcd")
    ab = {name: where[name] for name in "ab"}

    def made(name: str, certificate: str, known: Any) -> TcpTransport:
        return TcpTransport(name, known, endpoint_of, CODEC, SECRET, tls=tls[certificate], limits=LIMITS)

    async with made("a", "a", ab) as a, made("b", "b", ab) as b:
        log: list[Envelope] = []
        b.attach("b.1", log.append)
        await asyncio.gather(a.connected(10), b.connected(10))
        await works(a, b)
        a.send(note(np.zeros(200_000)))
        await until(lambda: len(log) == 101)
        for name, certificate in (("a", "c"), ("a", "d")):  # another's, and one of another authority
            false = {"a": where["c"], "b": where["b"]}
            async with made(name, certificate, false) as liar:
                await until(lambda liar=liar: len(liar._outgoing["b"].ends) > 1)
                assert liar._outgoing["b"].link is None
        assert b.counts.reasons.get("a stranger has no certificate of a", 0) > 0
        await works(a, b)
