"""`coterie watch`: what its page says of runs and sweeps, and to whom."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.cli.watch import server_of, state
from sim.results.report.page import write_report
from sim.run.running import run_scenario
from sim.run.save.progress import WRITING, Progress
from tests.results.report.test_browser import BROWSER
from tests.results.synthetic import write_run
from tests.simulation.worlds import DIGITS, load

PROGRESS = {
    "phase": "running",
    "virtual_s": 30.0,
    "remaining_s": 12.0,
    "accuracy": 0.5,
    "clients_up": 3,
    "messages": 1200,
    "share": 0.25,
    "curve": [[0.0, 0.1], [30.0, 0.5]],
}
SWEEP = {
    "name": "delays <b>",
    "cells": [
        {"state": "done", "directory": "quickstart-1-9f3a1c20"},
        {"state": "waiting", "directory": None},
        {"state": "waiting", "directory": None},
    ],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("watched")
    run = write_run(base / "sub", clients=3, clusters=1, evaluations=2, steps=2)
    write_report(run)
    run.finalise()
    for folder, name, content in (
        (".quickstart-2-9f3a1c20.0123abcd", "progress.json", json.dumps(PROGRESS)),
        (".quickstart-3-9f3a1c20.0123abcd", "progress.json", '{"phase": "runn'),
        ("delays-sweep-1", "sweep.json", json.dumps(SWEEP)),
        ("delays-sweep-1", "index.html", "<p>curves</p>"),
        ("other", "summary.json", '{"accuracy": []}'),
        ("other", "secret.txt", "nothing of ours"),
    ):
        (base / folder).mkdir(exist_ok=True)
        (base / folder / name).write_text(content)
    return base


@pytest.fixture
def port(runs: Path) -> Iterator[int]:
    with server_of(runs, 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(timeout=10)


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_what_runs_what_is_swept_and_what_has_ended(runs: Path) -> None:
    found = state(runs)
    (running,) = found["running"]
    assert (running["name"], running["share"]) == ("quickstart-2-9f3a1c20", 0.25)
    facts = ", ".join(running["facts"]).replace("\N{NO-BREAK SPACE}", " ")
    assert facts.startswith(
        "running, virtual time 30 s, 3 clients up, 1,200 messages, accuracy 50.0%, about 12 s left"
    )
    (sweep,) = found["sweeps"]
    assert (sweep["facts"], sweep["share"]) == (["1 done", "2 waiting"], pytest.approx(1 / 3))
    assert (sweep["folder"], sweep["pages"]) == ("delays-sweep-1", ["index.html"])
    (ended,) = found["ended"]
    assert (ended["folder"], ended["pages"]) == ("sub/quickstart-1-9f3a1c20", ["report.html"])
    assert ended["facts"][:2] == ["cobo", "seed 1"]


def test_the_page_its_state_and_reports_are_served(runs: Path, port: int) -> None:
    assert get(port, "/")[1].startswith("<!DOCTYPE html>")
    assert json.loads(get(port, "/state")[1])["ended"] == json.loads(json.dumps(state(runs)["ended"]))
    status, report = get(port, "/sub/quickstart-1-9f3a1c20/report.html")
    assert (status, report) == (200, (runs / "sub/quickstart-1-9f3a1c20/report.html").read_text())


@pytest.mark.parametrize(
    "path",
    [
        "/other/secret.txt",
        "/other/",
        "/sub",
        "/.quickstart-2-9f3a1c20.0123abcd/progress.json",
        "/../report.html",
        "/%2e%2e/report.html",
    ],
)
def test_nothing_else_is(port: int, path: str) -> None:
    assert get(port, path)[0] == 404


def test_pages_of_other_hosts_are_told_nothing(port: int) -> None:
    assert get(port, "/state", Host=f"evil.example:{port}")[0] == 403
    assert get(port, "/state", Host=f"localhost:{port}")[0] == 200


def test_what_cannot_be_watched_is_refused(tmp_path: Path, port: int) -> None:
    missing = CliRunner().invoke(app, ["watch", str(tmp_path / "nothing")])
    assert (missing.exit_code, "must be a folder with results" in missing.stderr) == (2, True)
    taken = CliRunner().invoke(app, ["watch", str(tmp_path), "--port", str(port)])
    assert (taken.exit_code, f"--port {port}: cannot be used" in taken.stderr) == (2, True)


def test_a_run_can_be_watched_while_it_runs_and_leaves_no_note(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look(progress: Progress) -> None:
        if progress.phase == WRITING:
            seen.extend(state(tmp_path / "runs")["running"])

    result = run_scenario(load(tmp_path, DIGITS), out=tmp_path / "runs", progress=look)
    assert result.directory is not None
    assert [each["name"] for each in seen] == [result.directory.name]
    assert seen[0]["facts"][0] == WRITING and len(seen[0]["curve"]) >= 1
    assert not (result.directory / "progress.json").exists()
    assert state(tmp_path / "runs")["running"] == []


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine")
def test_the_page_in_a_browser(port: int, tmp_path: Path) -> None:
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=120
    )
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    shown = done.stdout
    assert "<b>quickstart-2-9f3a1c20</b>" in shown and "<b>delays &lt;b&gt;</b>" in shown
    assert 'href="/sub/quickstart-1-9f3a1c20/report.html"' in shown
    assert 'points="0,88.4 100,50"' in shown
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)
