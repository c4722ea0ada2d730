"""`coterie watch`: a page about the runs and sweeps below a folder, for this machine alone."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from sim.errors import UserError
from sim.results.watching import page, state

ADDRESS = "127.0.0.1"
_SHOWN = {".html", ".png", ".svg", ".csv"}


def server_of(folder: Path, port: int) -> ThreadingHTTPServer:
    """The server, bound and not yet serving; port 0 takes any. Raises UserError."""
    if not folder.is_dir():
        raise UserError(f"{folder}: must be a folder with results; there is none")
    try:
        return ThreadingHTTPServer((ADDRESS, port), partial(_Handler, directory=str(folder)))
    except OSError as error:
        raise UserError(f"--port {port}: cannot be used: {error.strerror}") from error


class _Handler(SimpleHTTPRequestHandler):
    """The page, its state, and reports below the folder; no lists of files, and nothing hidden."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        # A page elsewhere whose name was made to lead here has another host, and is told nothing.
        if self.headers.get("Host", "").partition(":")[0] not in (ADDRESS, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif path == "/":
            self._answer(page(), "text/html; charset=utf-8")
        elif path == "/state":
            self._answer(json.dumps(state(Path(self.directory))), "application/json")
        elif _is_shown(path):
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are no news."""

    def _answer(self, content: str, kind: str) -> None:
        body = content.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


def _is_shown(path: str) -> bool:
    parts = PurePosixPath(path).parts[1:]
    return PurePosixPath(path).suffix in _SHOWN and not any(part.startswith(".") for part in parts)
