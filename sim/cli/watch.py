"""`coterie watch`: a page about the runs and sweeps below a folder, for this machine alone."""

import json
from collections import Counter
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from plotly.offline import get_plotlyjs

from sim.errors import UserError
from sim.results import text
from sim.results.outcome import headlines, protocol
from sim.results.report.html import SCRIPT, rendered_page
from sim.results.store.output_dir import HIDDEN, PROGRESS, REPORT
from sim.studies.index import INDEX

ADDRESS = "127.0.0.1"
_SHOWN = {".html", ".png", ".svg", ".csv"}
_DEEPEST = 3  # folders below the one that is watched
_MOST_ENDED = 200  # the newest


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
            self._answer(rendered_page("watch.html"), "text/html; charset=utf-8")
        elif path == "/state":
            self._answer(json.dumps(state(Path(self.directory))), "application/json")
        elif path.endswith(f"/{SCRIPT}"):  # of the reports of sweeps, whichever folder is watched
            self._answer(get_plotlyjs(), "text/javascript; charset=utf-8")
        elif _is_shown(path):
            super().do_GET()
        else:
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


def state(base: Path) -> dict[str, list[dict[str, Any]]]:
    """Of all below `base`: runs that go on, sweeps, and runs that have ended, the newest first."""
    running, sweeps, ended = [], [], []
    for folder in _folders(base, _DEEPEST):
        if HIDDEN.fullmatch(folder.name):
            running += _read(folder, PROGRESS, _running)
        else:
            sweeps += _read(folder, INDEX, _sweep)
            ended += _read(folder, "summary.json", _ended)
    ended.sort(key=lambda each: -each["changed"])
    for each in [*running, *sweeps, *ended]:
        each["folder"] = str(Path(each["folder"]).relative_to(base))
    return {"running": running, "sweeps": sweeps, "ended": ended[:_MOST_ENDED]}


def _folders(base: Path, depth: int) -> list[Path]:
    found = [base]
    with suppress(OSError):  # one that goes away meanwhile
        for folder in sorted(base.iterdir()) if depth else ():
            if folder.is_dir() and not folder.is_symlink():
                found += _folders(folder, 0 if HIDDEN.fullmatch(folder.name) else depth - 1)
    return found


def _read(folder: Path, name: str, describe: Any) -> list[dict[str, Any]]:
    """What a file says, by `describe(folder, content, time written)`; nothing if it is not there."""
    try:
        file = folder / name
        changed = file.stat().st_mtime
        content = json.loads(file.read_text(encoding="utf-8"))
        return [describe(folder, content, changed) | {"folder": folder, "changed": changed}]
    except (OSError, ValueError, RecursionError, ArithmeticError, AttributeError, LookupError, TypeError):
        return []  # it is not there, or not whole, or no file of ours


def _running(folder: Path, progress: dict[str, Any], changed: float) -> dict[str, Any]:
    match = HIDDEN.fullmatch(folder.name)
    assert match is not None
    accuracy, left_s = progress["accuracy"], progress["remaining_s"]
    facts = [
        progress["phase"],
        f"virtual time {text.duration(progress['virtual_s'])}",
        f"{progress['clients_up']:,} clients up",
        f"{progress['messages']:,} messages",
    ]
    facts += [f"accuracy {text.share(accuracy)}"] if accuracy is not None else []
    facts += [f"about {text.duration(round(left_s))} left"] if left_s is not None else []
    return {
        "name": match["name"],
        "facts": facts,
        "share": progress["share"],
        "curve": progress["curve"],
    }


def _sweep(folder: Path, sweep: dict[str, Any], changed: float) -> dict[str, Any]:
    states = Counter(cell["state"] for cell in sweep["cells"])
    facts = [f"{count:,} {what}" for what, count in sorted(states.items())]
    pages = [file.name for file in sorted(folder.glob("*.html"))]
    done = sum(cell["directory"] is not None for cell in sweep["cells"])
    return {"name": sweep["name"], "facts": facts, "share": done / len(sweep["cells"]), "pages": pages}


def _ended(folder: Path, summary: dict[str, Any], changed: float) -> dict[str, Any]:
    mean = summary["accuracy"]["mean"]
    facts = [protocol(summary), f"seed {summary['seed']}", text.duration(summary["virtual_seconds"])]
    facts += [f"accuracy {text.share(mean)}"] if mean is not None else []
    facts += ["interrupted"] if summary.get("interrupted") else headlines(summary)
    return {"name": folder.name, "facts": facts, "pages": [REPORT] if (folder / REPORT).is_file() else []}
