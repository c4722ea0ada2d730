"""`coterie watch`: what its page says of runs and sweeps, and to whom."""

import fcntl
import json
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.cli.watch import listening_socket, state, watch_server
from sim.results.report.html import rendered_page
from sim.results.report.page import write_report
from sim.results.store.manifest import Manifest
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.save.progress import WRITING, Progress
from sim.run.save.progress_file import saving_progress
from tests.results.explore.unpacked import facts_and_columns
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
CELL = {"values": {}, "error": None}
SWEEP = {
    "name": "delays <b>",
    "question": "",
    "axes": {},
    "seeds": [1, 2, 3],
    "labels": {},
    "compare": {},
    "cells": [
        CELL | {"seed": 1, "state": "done", "directory": "quickstart-1-9f3a1c20"},
        CELL | {"seed": 2, "state": "waiting", "directory": None},
        CELL | {"seed": 3, "state": "waiting", "directory": None},
    ],
}


@contextmanager
def locked(*folders: Path) -> Iterator[None]:
    """As a process holds folders into which it writes."""
    held = [os.open(folder, os.O_RDONLY) for folder in folders]
    for folder in held:
        fcntl.flock(folder, fcntl.LOCK_EX)
    yield
    for folder in held:
        os.close(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("watched")
    run = write_run(base / "sub", clients=3, clusters=1, evaluations=2, steps=2)
    write_report(run)
    run.finalise()
    for folder, name, content in (
        (".quickstart-2-9f3a1c20.0123abcd", "progress.json", json.dumps(PROGRESS)),
        (".quickstart-3-9f3a1c20.0123abcd", "progress.json", '{"phase": "runn'),
        (".quickstart-5-9f3a1c20.0123abcd", "progress.json", json.dumps(PROGRESS | {"share": math.nan})),
        (".quickstart-6-9f3a1c20.0123abcd", "progress.json", json.dumps(PROGRESS)),
        ("delays-sweep-1", "sweep.json", json.dumps(SWEEP)),
        ("delays-sweep-1", "index.html", "<p>curves</p>"),
        ("other", "summary.json", '{"accuracy": []}'),
        ("other", "secret.txt", "nothing of ours"),
    ):
        (base / folder).mkdir(exist_ok=True)
        (base / folder / name).write_text(content)
    (base / "other" / "link.html").symlink_to("/etc/passwd")
    (base / "linked").symlink_to(run.path)
    os.mkfifo(base / "other" / "pipe.html")
    (base / "other" / "folder.html").mkdir()
    for name in ("progress.json", "sweep.json", "summary.json", "checksums.json"):
        folder = base / (".quickstart-4-9f3a1c20.0123abcd" if name == "progress.json" else f"pipe-{name}")
        folder.mkdir()
        os.mkfifo(folder / name)
    forged = shutil.copytree(run.path, base / "forged-1-0123abcd")
    (forged / "summary.json").write_text("{}")
    Manifest.of(forged, [file.name for file in forged.iterdir()]).write()
    with locked(*[base / f".quickstart-{n}-9f3a1c20.0123abcd" for n in (2, 3, 4, 5)]):
        yield base


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """Serve a folder, and return the port."""
    server = watch_server(folder)
    with listening_socket(folder, 0) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        yield place.getsockname()[1]
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def port(runs: Path) -> Iterator[int]:
    with served(runs) as number:
        yield number


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self'") and " form-action 'none'" in policy
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
    sweep, *piped = sorted(found["sweeps"], key=lambda each: each["folder"])
    assert piped and all(each["bad"][0].startswith("damaged: ") for each in piped)
    facts = ["1 done", "2 waiting", "seeds 1, 2, 3", "delays-sweep-1"]
    assert (sweep["facts"], sweep["share"]) == (facts, pytest.approx(1 / 3))
    assert (sweep["folder"], sweep["pages"]) == ("delays-sweep-1", ["live.html", "index.html"])
    ended, forged, *others = sorted(found["ended"], key=lambda each: (-len(each["pages"]), each["folder"]))
    assert all(each["bad"][0].startswith("damaged: ") for each in others)
    assert (ended["folder"], ended["pages"]) == ("sub/quickstart-1-9f3a1c20", ["report.html"])
    assert ended["facts"][:2] == ["cobo", "seed 1"]
    assert forged["folder"] == "forged-1-0123abcd"
    assert forged["bad"][0].startswith("damaged: ") and "is not the summary of a run" in forged["bad"][0]


def test_a_page_of_results_has_an_origin_of_its_own(port: int) -> None:
    """It may be a stranger's, and must not ask for what stands beside it."""
    with urlopen(f"http://127.0.0.1:{port}/sub/quickstart-1-9f3a1c20/report.html") as answer:
        policies = answer.headers.get_all("Content-Security-Policy")
    assert any("sandbox" in policy and "allow-same-origin" not in policy for policy in policies)


def test_the_case_of_a_run_the_failures_and_the_comparison_of_a_sweep(tmp_path: Path) -> None:
    run = write_run(tmp_path, clients=3, clusters=1, evaluations=2, steps=2)
    run.write_summary(run.summary() | {"ended_by": "a full disk"})
    run.finalise()
    axes = {"method": ["gossip", "alone"], "network.loss": [0.2]}
    cells = [
        {"values": {"method": method, "network.loss": 0.2}, "seed": 1, "state": state, "error": None}
        | {"directory": "quickstart-1-9f3a1c20" if state == "done" else None}
        for method, state in (("gossip", "done"), ("alone", "failed"))
    ]
    sweep = tmp_path / "sweep-1"
    (sweep / "comparison").mkdir(parents=True)
    (sweep / "comparison" / "comparison.html").write_text("<p>curves</p>")
    (sweep / "sweep.json").write_text(json.dumps(SWEEP | {"axes": axes, "cells": cells}))
    begun = tmp_path / ".quickstart-2-9f3a1c20.0123abcd"
    begun.mkdir()
    (begun / "progress.json").write_text(json.dumps(PROGRESS))
    overrides = ["protocol.name=gossip", "run.seed=2"]
    (begun / "provenance.json").write_text(json.dumps({"overrides": overrides}))
    with locked(begun):
        found = state(tmp_path)
    (swept,), (ended,), (running,) = found["sweeps"], found["ended"], found["running"]
    assert (swept["facts"], swept["bad"]) == (
        ["1 done", "by method", "seeds 1, 2, 3", "sweep-1"],
        ["1 failed", "1 of 1 runs with warnings"],
    )
    assert swept["pages"] == ["live.html", "comparison/comparison.html"]
    assert ended["facts"][0] == "method = gossip, network.loss = 0.2"
    assert "a full disk" in " ".join(ended["bad"]) and "a full disk" not in " ".join(ended["facts"])
    assert running["facts"][0] == "protocol.name=gossip" and not any(
        "seed" in one for one in running["facts"]
    )
    assert 'class: "bad"' in rendered_page("watch.html")


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
        "//etc/passwd.html",
        "/other/link.html",
        "/linked/report.html",
        "/other/pipe.html",
        "/other/folder.html",
        "/%00.html",
        f"/{'x' * 300}.html",
        "*",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nothing_else_is(port: int, path: str, method: str, capfd: pytest.CaptureFixture[str]) -> None:
    status, said = get(port, path, method)
    assert status in (400, 404) and "root:" not in said
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("line", ["GET http://[::1/ HTTP/1.1", "GET", "\0", "X" * 100_000])
def test_what_is_no_request_is_refused(port: int, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as tab:
        tab.sendall(f"{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert tab.recv(100).split()[1] in (b"400", b"404")
    assert get(port, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_tab_that_is_closed_is_no_news(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    report = b"GET /sub/quickstart-1-9f3a1c20/report.html HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for said in (report, b"GET /st"):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as tab:
                tab.sendall(said)
                tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at once
    assert get(port, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_pages_of_other_hosts_are_told_nothing(port: int) -> None:
    for path in ("/state", "/", "/sub/quickstart-1-9f3a1c20/report.html"):
        for method in ("GET", "HEAD"):
            assert get(port, path, method, Host=f"evil.example:{port}")[0] == 400
            assert get(port, path, method, Host="[::1")[0] == 400
            assert get(port, path, method, Host=f"localhost:{port}")[0] == 200


def test_what_cannot_be_watched_is_refused(tmp_path: Path, port: int) -> None:
    missing = CliRunner().invoke(app, ["watch", str(tmp_path / "nothing")])
    assert (missing.exit_code, "no such folder; name a folder with results" in missing.stderr) == (2, True)
    taken = CliRunner().invoke(app, ["watch", str(tmp_path), "--port", str(port)])
    assert (taken.exit_code, f"--port {port} cannot be used" in taken.stderr) == (2, True)


def test_a_run_can_be_watched_while_it_runs_and_leaves_no_note(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look(progress: Progress) -> None:
        if progress.phase == WRITING:
            seen.extend(state(tmp_path / "runs")["running"])

    result = run_scenario(load(tmp_path, DIGITS), RunOptions(out=tmp_path / "runs", progress=look))
    assert result.directory is not None
    assert [each["name"] for each in seen] == [result.directory.name]
    assert seen[0]["facts"][0] == WRITING and len(seen[0]["curve"]) >= 1
    assert not (result.directory / "progress.json").exists()
    assert state(tmp_path / "runs")["running"] == []


def test_what_diverges_is_noted_without_its_numbers(tmp_path: Path) -> None:
    progress = Progress(WRITING, 1.0, math.inf, 2.0, None, None, None, None, math.nan, 1, 1, 1, 1.0)
    saving_progress(lambda: tmp_path, None)(progress)
    found = json.loads((tmp_path / "progress.json").read_text(), parse_constant=pytest.fail)
    assert (found["reached"], found["remaining_s"], found["curve"]) == (None, None, [])


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


@pytest.mark.long
def test_ctrl_c_ends_it_as_it_should(runs: Path) -> None:
    command = [sys.executable, "-m", "sim", "watch", str(runs), "--port", "0"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout is not None and watching.stdout.readline().startswith("http://127.0.0.1:")
    watching.send_signal(signal.SIGINT)
    assert (watching.communicate(timeout=60)[1], watching.returncode) == ("", 0)


def test_the_page_of_an_unfinished_sweep_is_made_from_its_finished_runs(tmp_path: Path) -> None:
    write_run(tmp_path, clients=3, clusters=1, evaluations=2, steps=2).finalise()
    sweep = tmp_path / "sweep-1"
    sweep.mkdir()
    (sweep / "sweep.json").write_text(json.dumps(SWEEP | {"name": "delays"}))
    (tmp_path / "linked").symlink_to(sweep)
    (tmp_path / ".hidden").mkdir()
    shutil.copy(sweep / "sweep.json", tmp_path / ".hidden")
    with served(tmp_path) as number:
        status, page = get(number, "/sweep-1/live.html")
        facts, _ = facts_and_columns(page)
        assert status == 200 and [run["place"] for run in facts["runs"]] == ["../quickstart-1-9f3a1c20"]
        assert 'http-equiv="refresh" content="20"' in page
        assert get(number, "/sweep-1/live.html") == (200, page)
        with urlopen(f"http://127.0.0.1:{number}/sweep-1/live.html") as answer:
            assert any("sandbox" in one for one in answer.headers.get_all("Content-Security-Policy"))
        cells = [cell | {"state": "waiting", "directory": None} for cell in SWEEP["cells"]]
        (sweep / "sweep.json").write_text(json.dumps(SWEEP | {"cells": cells}))
        os.utime(sweep / "sweep.json", (1, 1))
        status, said = get(number, "/sweep-1/live.html")
        assert status == 404 and "no run is finished" in said
        for other in ("linked", ".hidden", "quickstart-1-9f3a1c20", "nothing", "%2e%2e"):
            assert get(number, f"/{other}/live.html")[0] == 404


def test_the_page_of_a_watched_sweep_is_served(tmp_path: Path) -> None:
    write_run(tmp_path, clients=3, clusters=1, evaluations=2, steps=2).finalise()
    sweep = tmp_path / "sweep-1"
    sweep.mkdir()
    (sweep / "sweep.json").write_text(json.dumps(SWEEP | {"name": "delays"}))
    (listed,) = state(sweep)["sweeps"]
    assert (listed["folder"], listed["pages"]) == (".", ["live.html"])
    with served(sweep) as number:
        status, page = get(number, "/live.html")
        assert status == 200 and facts_and_columns(page)[0]["runs"]
    with served(tmp_path) as number:
        assert get(number, "/live.html")[0] == 404  # no sweep


def test_the_list_has_a_search_field() -> None:
    page = rendered_page("watch.html")
    assert 'type="search"' in page and "search();" in page
