"""How the command's process ends."""

import subprocess
import sys

import pytest

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
