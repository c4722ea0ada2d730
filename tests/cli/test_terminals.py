"""A run has ended well however its words are received: by an ASCII terminal, a full disk, or nobody."""

import errno
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sim.__main__ import main
from sim.results.store.run_directory import load_checked
from tests.simulation.worlds import QUADRATIC, write

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "1", "TERM": "dumb"}


def finished(folder: Path, environment: Mapping[str, str], after: str = "", before: str = "") -> str:
    """What a run says of which there are results, and exit code 0."""
    file = write(folder, QUADRATIC)
    command = ["-m", "sim", "run", str(file), "--trace", "--out", str(folder / "runs")]
    done = subprocess.run(
        ["sh", "-c", f'{before} "$@" {after}', "sh", sys.executable, *command],
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [directory] = (folder / "runs").iterdir()
    assert load_checked(directory).summary()["finished"] is True
    assert (directory / "trace.pftrace").is_file()
    return done.stdout.decode("ascii")


@pytest.mark.long
def test_any_terminal_will_do(tmp_path: Path) -> None:
    assert f"report: {tmp_path / 'runs'}" in finished(tmp_path, ASCII)


@pytest.mark.long
@pytest.mark.parametrize("redirections", [">/dev/full 2>&1", ">&- 2>&-"])
def test_what_nobody_can_read_ends_no_run(tmp_path: Path, redirections: str) -> None:
    finished(tmp_path, {}, redirections)


@pytest.mark.long
def test_a_list_that_cannot_be_written_is_no_success() -> None:
    command = [sys.executable, "-m", "sim", "list", "scenarios"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "cannot write the output: No space left on device\n"


@pytest.mark.long
def test_who_reads_need_not_stay(tmp_path: Path) -> None:
    code = tmp_path / "code"
    finished(tmp_path, {}, f"; echo $? >{code}; }} | true", before="{")
    assert code.read_text() == "0\n"


@pytest.mark.long
def test_a_name_that_the_system_cannot_write_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, QUADRATIC.replace("[run]", '[run]\nname = "größe"'))
    command = [sys.executable, "-m", "sim", "run", str(file), "--out", str(tmp_path / "runs")]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "this system encodes file names in ascii; set PYTHONUTF8=1" in done.stderr


def test_an_error_that_is_not_of_the_output_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr("sim.cli.live.app", fails)
    monkeypatch.setattr("sim.__main__.end_process_on_signal", lambda: None)  # the test's own signals stay
    with pytest.raises(ConnectionRefusedError):
        main()
