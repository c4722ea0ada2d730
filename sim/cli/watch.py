"""Server of `coterie watch`: a page about the runs and sweeps in a folder, for this machine only."""

import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from sim.errors import UserError
from sim.results import text
from sim.results.measures import measure_called
from sim.results.outcome import cautions, final_measure_and_mean, fork_origin_text, main_problems, protocol
from sim.results.report.html import SCRIPT, rendered_page
from sim.results.store.formats import LaterFormat
from sim.results.store.output_dir import EXPLORE, HIDDEN, REPORT, is_results, is_under_way
from sim.results.store.run_directory import RunDirectory
from sim.run.save.progress_file import ProgressRecord
from sim.studies.comparison import Comparison
from sim.studies.index import DONE, INDEX, SweepIndex, axis_values_text
from sim.studies.pages import study_page
from sim.studies.study import load_study
from sim.studies.words import key_label

ADDRESS = "127.0.0.1"
_SHOWN = {".html", ".png", ".svg", ".csv"}
LIVE = "live.html"
"""Name of the page of a sweep that this server makes."""
_REFRESH_S = 20  # seconds after which a browser loads the page of an unfinished sweep again
_DEPTH_MAX = 3  # levels of folders below the watched one
_SEEDS_SHOWN = 8
_ENDED_MAX = 200  # the newest ended runs
# Pages load no content from other servers.
_POLICY = "default-src 'self' 'unsafe-inline' data: blob:; base-uri 'none'; form-action 'none'"
# Pages of results may be untrusted; they have a separate origin and cannot request the state.
_OF_FILES = "sandbox allow-scripts allow-downloads allow-popups"
_HEADERS = [
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
]


def listening_socket(folder: Path, port: int) -> socket.socket:
    """Return the listening socket of the page; port 0 is any free port. Raises UserError."""
    if not os.path.isdir(folder):  # unlike Path.is_dir, without an error for impossible names
        raise UserError(f"{folder}: no such folder; name a folder with results")
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        raise UserError(f"--port {port} cannot be used: {error.strerror}") from error


def watch_server(folder: Path) -> uvicorn.Server:
    """Return the web server that serves the page, the page's state, and the reports in the folder."""

    def page(_: Request) -> Response:
        return HTMLResponse(rendered_page("watch.html"))

    def now(_: Request) -> Response:
        return JSONResponse(state(folder))

    def script(_: Request) -> Response:  # for the reports of sweeps in any folder
        return Response(get_plotlyjs(), media_type="text/javascript")

    live = _LivePages(folder)
    routes = [
        Route("/", page),
        Route(f"/{LIVE}", live.answer),
        Route(f"/{{folder:path}}/{LIVE}", live.answer),
        Route("/state", now),
        Route(f"/{{folder:path}}{SCRIPT}", script),
        Mount("/", _Files(directory=folder)),
    ]
    # Reject requests for another host name, against DNS rebinding.
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[ADDRESS, "localhost"], www_redirect=False)
    app = Starlette(routes=routes, middleware=[hosts])
    app.router.redirect_slashes = False
    config = uvicorn.Config(app, headers=_HEADERS, log_level="error", timeout_graceful_shutdown=1)
    return uvicorn.Server(config)


class _LivePages:
    """Comparison pages of sweeps, finished or not; a page is made again when more runs have ended."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._made: dict[str, tuple[float, str]] = {}

    def answer(self, request: Request) -> Response:
        """Return the page of the sweep in a folder, by default the watched one.

        Starlette calls this method in a thread.
        """
        name = request.path_params.get("folder", "")
        folder, hidden = self._base / name, any(part.startswith(".") for part in Path(name).parts)
        base = os.path.realpath(self._base)
        is_itself = os.path.realpath(folder) == (os.path.join(base, name) if name else base)
        if hidden or not is_itself or not os.path.isfile(folder / INDEX):
            return PlainTextResponse("Not Found", status_code=404)
        try:
            page = self._page(name, folder)
        except (UserError, OSError) as error:
            return PlainTextResponse(str(error), status_code=404)
        return HTMLResponse(page, headers={"Content-Security-Policy": _OF_FILES})

    def _page(self, name: str, folder: Path) -> str:
        changed = (folder / INDEX).stat().st_mtime
        if self._made.get(name, (None, ""))[0] != changed:
            is_whole = all(cell.state == DONE for cell in SweepIndex.read(folder).cells)
            comparison = Comparison(load_study([folder]))
            refresh_s = 0 if is_whole else _REFRESH_S
            made = study_page(comparison, folder, pictures={}, texts={}, refresh_s=refresh_s)
            self._made = {name: (changed, made)}
        return self._made[name][1]


class _Files(StaticFiles):
    """Figures, tables and pages, without file lists, hidden files and links."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = _OF_FILES
        return response

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        found, stat = super().lookup_path(path)
        parts = Path(path).parts
        is_itself = found == os.path.join(os.path.realpath(str(self.directory)), path)
        if is_itself and Path(path).suffix in _SHOWN and not any(part.startswith(".") for part in parts):
            return found, stat
        return "", None


def state(base: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the runs in progress, the sweeps, and the newest ended runs below `base`, the newest first."""
    running, sweeps, ended = [], [], []
    for folder in _folders(base, _DEPTH_MAX):
        if HIDDEN.fullmatch(folder.name):
            running += (
                _folder_entries(base, folder, _running_entry) if is_under_way(folder, unknown=True) else []
            )
        else:
            sweeps += _folder_entries(base, folder, _sweep) if os.path.lexists(folder / INDEX) else []
            ended += _folder_entries(base, folder, _ended_run_entry) if is_results(folder) else []
    warned = {each["folder"] for each in ended if each.pop("warned", False)}
    cases: dict[str, str] = {}
    for sweep in sweeps:
        beside = Path(sweep["folder"]).parent
        own = {str(beside / directory): case for directory, case in sweep.pop("cases").items()}
        cases |= own
        if count := len(own.keys() & warned):
            sweep["bad"].append(f"{count:,} of {len(own):,} runs with warnings")
    for each in ended:
        each["facts"][:0] = filter(None, [cases.get(each["folder"])])
    ended.sort(key=lambda each: -each["changed"])
    return {"running": running, "sweeps": sweeps, "ended": ended[:_ENDED_MAX]}


def _folders(base: Path, depth: int) -> list[Path]:
    found = [base]
    with suppress(OSError):  # a folder may be removed meanwhile
        for folder in sorted(base.iterdir()) if depth else ():
            if folder.is_dir() and not folder.is_symlink():
                found += _folders(folder, 0 if HIDDEN.fullmatch(folder.name) else depth - 1)
    return found


def _folder_entries(
    base: Path, folder: Path, describe: Callable[[Path], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the entry of a folder on the page, in a list that is empty if the folder was removed."""
    try:
        where = {"folder": str(folder.relative_to(base)), "changed": folder.stat().st_mtime}
        return [describe(folder) | where]
    except UserError as error:
        if HIDDEN.fullmatch(folder.name):  # the run has only just started
            return []
        entry: dict[str, Any] = {"name": folder.name, "facts": [], "share": None, "pages": [], "cases": {}}
        problem = str(error) if isinstance(error, LaterFormat) else f"damaged: {error}"
        return [entry | where | {"bad": [problem]}]
    except OSError:
        return []


def _running_entry(folder: Path) -> dict[str, Any]:
    match, record = HIDDEN.fullmatch(folder.name), ProgressRecord.read(folder)
    assert match is not None
    provenance: dict[str, Any] = {}
    with suppress(UserError):
        provenance = RunDirectory.found(folder).provenance()
    stated = provenance.get("overrides") or ()
    facts = [
        *filter(None, [fork_origin_text(provenance)]),
        *[each for each in stated if isinstance(each, str) and not each.startswith("run.")],
        record.phase,
        f"virtual time {text.duration(record.virtual_s)}",
        f"{record.clients_up:,} clients up",
        f"{record.messages:,} messages",
    ]
    if record.reached is not None:
        facts.append(f"{record.measure} {measure_called(record.measure).text(record.reached)}")
    facts += (
        [f"about {text.duration(round(record.remaining_s))} left"] if record.remaining_s is not None else []
    )
    return {"name": match["name"], "facts": facts, "share": record.share, "curve": record.curve}


def _sweep(folder: Path) -> dict[str, Any]:
    sweep = SweepIndex.read(folder)
    states = Counter(cell.state for cell in sweep.cells)
    facts = [f"{count:,} {what}" for what, count in sorted(states.items()) if what != "failed"]
    varied = [sweep.labels.get(axis) or key_label(axis) for axis in sweep.axes if len(sweep.axes[axis]) > 1]
    facts += [
        *(["by " + ", ".join(varied)] if varied else []),
        f"seeds {_seeds_text(sweep.seeds)}",
        folder.name,
    ]
    bad = [f"{states['failed']:,} failed"] if states["failed"] else []
    pages = [
        str(file.relative_to(folder)) for at in ("*.html", "*/*.html") for file in sorted(folder.glob(at))
    ]
    pages[:0] = [LIVE] if states[DONE] else []
    cases = {
        cell.directory: axis_values_text(cell.values) for cell in sweep.cells if cell.directory is not None
    }
    share = states["done"] / len(sweep.cells)
    return {"name": sweep.name, "facts": facts, "bad": bad, "share": share, "pages": pages, "cases": cases}


def _seeds_text(seeds: Sequence[int]) -> str:
    shown = ", ".join(map(str, seeds[:_SEEDS_SHOWN]))
    return shown if len(seeds) <= _SEEDS_SHOWN else f"{shown}, ... ({len(seeds):,})"


def _ended_run_entry(folder: Path) -> dict[str, Any]:
    summary = RunDirectory.load(folder).summary()
    facts = [protocol(summary), f"seed {summary['seed']}", text.duration(summary["virtual_seconds"])]
    if (forked := fork_origin_text(summary)) is not None:
        facts.insert(0, forked)
    if (found := final_measure_and_mean(summary)) is not None:
        facts.append(f"{found[0].name} {found[0].text(found[1])}")
    first, warned = ["interrupted"] if summary["interrupted"] else main_problems(summary), cautions(summary)
    bad = list(dict.fromkeys(line.replace("\N{NO-BREAK SPACE}", " ") for line in [*first, *warned]))
    facts.append("finished" if summary["finished"] else "interrupted" if summary["interrupted"] else "failed")
    pages = [page for page in (REPORT, EXPLORE) if (folder / page).is_file()]
    return {"name": folder.name, "facts": facts, "bad": bad, "pages": pages, "warned": bool(warned)}
