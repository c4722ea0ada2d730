"""Odd requests to the page of `coterie watch`, about a folder with damaged results, pipes and links."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from urllib.parse import quote

from tests.fuzz import spoil
from tests.fuzz.case import Commands
from tests.fuzz.results import RESULTS, SWEEP, spoiled
from tests.fuzz.values import TEXTS

_REQUESTS = "requests.json"
_SECRET = "what no page may show"
_CONNECT = socket.socket.connect  # what commands themselves may not do
_HOSTS = ("localhost", "127.0.0.1", "evil.example", "[::1", "[::1]", "", "localhost.evil.example", "\x00")
_METHODS = ("GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "", "get", "\x00")
_ENDS = ("read", "read", "read", "close", "reset")
_FILES = (
    "",
    "state",
    "plotly.min.js",
    "../secret.html",
    "..%2fsecret.html",
    "link.html",
    "linked/secret.html",
)


def requests(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Requests with odd methods, paths, hosts and bodies, some of them broken off; and odd files to show."""
    for name in (RESULTS, SWEEP):
        shutil.copytree(Path("data", name), Path("runs", name), symlinks=True)
    for place in (Path("elsewhere"), Path("runs/.hidden")):
        place.mkdir()
        (place / "secret.html").write_text(_SECRET)
    Path("secret.html").write_text(_SECRET)
    Path("runs/link.html").symlink_to(Path("secret.html").absolute())
    Path("runs/linked").symlink_to(Path("elsewhere").absolute())
    folders = sorted(path for path in Path("runs").rglob("*") if path.is_dir() and not path.is_symlink())
    words = [spoiled(folder, rng) for folder in rng.sample(folders, changes) if folder.is_dir()]
    hidden = Path("runs/.quickstart-1-9f3a1c20.0123abcd")
    hidden.mkdir()
    note = {"phase": "running", "virtual_s": 1.0, "remaining_s": None, "clients_up": 1, "messages": 1}
    note |= {"accuracy": 0.5, "share": 0.5, "curve": [[0.0, 0.5]]}
    words += [spoil.damaged_table(note, rng) for _ in range(changes)]
    (hidden / "progress.json").write_text(json.dumps(note, default=str), encoding="utf-8", errors="replace")
    found = sorted(path for path in Path("runs").rglob("*") if not path.is_dir())
    files = ["linked/secret.html", *(path.relative_to("runs").as_posix() for path in found)]
    asked = [_request(rng, files) for _ in range(20 * changes)]
    Path(_REQUESTS).write_text(json.dumps(asked), encoding="utf-8")
    return words, [["watch", "runs", "--port", "0"]]


def _request(rng: Random, files: list[str]) -> tuple[str, str]:
    """The bytes of one, as a text of latin-1, and how its tab ends."""
    path = rng.choice((*files, *_FILES, *_FILES, *TEXTS))[:70_000]
    path = rng.choice((path, quote(path, errors="replace"), f"{path}.html", f"{path}%00.html", f"/{path}"))
    target = rng.choice((f"/{path}", f"/{path}", f"/{path}", f"http://[::1/{path}", path, "*", f"/?{path}"))
    head = f"{rng.choice(_METHODS)} {target} HTTP/1.{rng.choice('0119')}\r\n"
    head += f"Host: {rng.choice(('localhost',) * 6 + _HOSTS)}\r\n" * rng.choice((1, 1, 1, 1, 0, 2))
    odd = ("Range: bytes=5-1", "Range: x", "Content-Length: -1", "Content-Length: 10", "If-Modified-Since: x")
    head += f"{rng.choice(odd)}\r\n" if rng.random() < 0.2 else ""
    sent = f"{head}Connection: close\r\n\r\n".encode("utf-8", "replace")
    if rng.random() < 0.15:
        sent, _ = spoil.damaged_bytes(sent, rng)
    return sent.decode("latin-1"), rng.choice(_ENDS)


# --- who asks -----------------------------------------------------------------------------------------------


def ask_soon(folder: Path, output: Path) -> None:
    """Ask what a case has written down as soon as `output` says where, and then give Ctrl-C."""
    threading.Thread(target=_ask, args=(folder, output), daemon=True).start()


def _ask(folder: Path, output: Path) -> None:
    while (found := re.search(r"http://127\.0\.0\.1:(\d+)/", output.read_text())) is None:
        time.sleep(0.02)
    port = int(found[1])
    for text, end in json.loads((folder / _REQUESTS).read_text(encoding="utf-8")):
        answer = _answer(port, text.encode("latin-1"), end, patience_s=0.5)  # more may be waited for
        if re.match(rb"HTTP/1\.1 5", answer):
            print(f"fault: answers {answer[:12]!r}\n{text[:200]!r}", flush=True)
        if _SECRET.encode() in answer:
            print(f"fault: shows what is none of its files\n{text[:200]!r}", flush=True)
    for path in ("/", "/state"):
        asked = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        head, _, body = _answer(port, asked.encode(), "read", patience_s=10.0).partition(b"\r\n\r\n")
        if head.split()[1:2] != [b"200"] or b"NaN" in body or (path == "/state" and not json.loads(body)):
            print(f"fault: {path} is no longer shown\n{head!r}", flush=True)
    os.kill(os.getpid(), signal.SIGINT)


def _answer(port: int, sent: bytes, end: str, *, patience_s: float) -> bytes:
    """What is answered until the tab is closed, or nothing comes any more."""
    answer = b""
    with socket.socket() as tab:
        tab.settimeout(patience_s)
        with suppress(OSError):
            _CONNECT(tab, ("127.0.0.1", port))
            tab.sendall(sent)
            if end == "reset":
                tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            while end == "read" and (part := tab.recv(1 << 16)):
                answer += part
    return answer
