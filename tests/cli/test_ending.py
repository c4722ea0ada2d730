"""How the command's process ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.worlds import QUADRATIC

_COMMAND = """
import atexit, os, sys
import sim.cli.live
from sim.__main__ import main

class Module:
    def __del__(self, write=os.write):
        write(1, b"taken down\\n")

module = Module()

def app():
    atexit.register(print, "called at the end")
    print("said")
    print("and why", end="", file=sys.stderr)
    {ends}

sim.cli.live.app = app
main()
"""


@pytest.mark.parametrize(("ends", "code"), [("sys.exit(0)", 0), ("sys.exit(3)", 3)])
def test_it_leaves_with_its_exit_code_once_all_is_said_and_done(ends: str, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _COMMAND.format(ends=ends)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code
    assert ended.stdout == "said\ncalled at the end\n", "modules are not taken down"
    assert ended.stderr == "and why"


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("sys.exit('no')", 1, "no"),
        ("sys.exit()", 0, ""),
        ("pass", 0, ""),
    ],
)
def test_what_says_no_exit_code_ends_as_python_has_it(ends: str, code: int, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _COMMAND.format(ends=ends)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == code
    assert ended.stdout == "said\ncalled at the end\ntaken down\n"
    assert ended.stderr.startswith("and why") and ended.stderr.rstrip().endswith(said)


def test_what_a_users_file_has_written_is_there_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from coterie import Client\n"
        'log = open("log.txt", "w")\n'
        'print("loaded", file=log)\n'
        "class Own(Client):\n"
        "    async def step(self): await self.sleep(1.0)\n"
    )
    (tmp_path / "world.toml").write_text(QUADRATIC, encoding="utf-8")
    command = [sys.executable, "-m", "sim", "check", "world.toml", "--set", "protocol.name=own.py:Own"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "log.txt").read_text() == "loaded\n"
