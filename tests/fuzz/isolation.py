"""Commands in processes of their own that need not import anything: forks of one that has it all.

What must hold of a command is watched: its time, its memory, and that it ends.
"""

import faulthandler
import gc
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

MOST_S = 30.0
"""Of a command on a machine that has a core for it; on a busy one as many times as cores are shared."""
MOST_BYTES = 2_000_000_000
_MOST_OUTPUT_BYTES = 1_000_000
_LARGEST_FILE_BYTES = 1_000_000_000
_AGAIN_AFTER_S = 8.0  # the first Ctrl-C ends a run after its present event, the next one at once
_OUTPUT = ".stdout"
_NETWORK_NOTE = "network-was-used"
_TIME_IS_OVER = "Timeout ("  # how faulthandler begins


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    code: its exit code, minus the signal's number if one ended it. stopped: "time" or "memory" if it took too
    much of that. interrupted: whether it was sent Ctrl-C. network: whether it tried to connect to anything.
    """

    code: int
    output: str
    errors: str
    stopped: str | None = None
    interrupted: bool = False
    network: bool = False


def warm_up(folder: Path, command: Sequence[str]) -> None:
    """Import all that `command` imports when it is run in `folder`, which a process of its own finds out.

    Nothing but importing is done here: a process that has computed with several threads can't be forked.
    """
    script = (
        "import json, sys; from sim.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "open('modules.json', 'w').write(json.dumps([name for name in sys.modules if name != '__main__']))"
    )
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    arguments = [sys.executable, "-c", script, *command]
    subprocess.run(arguments, cwd=folder, env=os.environ | path, capture_output=True, check=False)
    for name in json.loads((folder / "modules.json").read_text(encoding="utf-8")):
        with suppress(Exception):  # some modules can only be imported by others
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that the forks' collectors do not touch, and so copy, every page


def _held_bytes() -> int:
    """The private memory that this process has, as RLIMIT_DATA counts it."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _resident_bytes() -> int:
    """The memory that this process has in use, with which the peak of a fork begins."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def command(arguments: Sequence[str], folder: Path, *, interrupt_after_s: float | None = None) -> Outcome:
    """Run `coterie` with these arguments in `folder`, in a fork; Ctrl-C after some seconds, if asked for."""

    def main() -> None:
        from sim.__main__ import main

        os.environ.pop("COTERIE_DATA", None)
        most = MOST_BYTES + _held_bytes()  # else a fork of a large process could take nothing
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE_BYTES, _LARGEST_FILE_BYTES))
        if arguments[0] == "call":
            from tests.fuzz.calls import make_calls

            make_calls()
            return
        sys.argv = ["coterie", *arguments]
        if arguments[0] == "watch":
            from tests.fuzz.requests import ask_soon

            ask_soon(folder, folder / _OUTPUT)
        main()

    return watched(main, folder, interrupt_after_s)


def watched(body: Callable[[], object], folder: Path, interrupt_after_s: float | None = None) -> Outcome:
    """Call a function in a fork; Ctrl-C after some seconds, if asked for, and again if it goes on."""
    errors, output = folder / ".stderr", folder / _OUTPUT
    started, most_bytes = time.monotonic(), MOST_BYTES + _resident_bytes()
    pid = os.fork()
    if pid == 0:
        _child(body, folder, output, errors, interrupt_after_s)
    _, status, used = os.wait4(pid, 0)
    passed_s, said = time.monotonic() - started, _read(errors)
    stopped = "time" if _TIME_IS_OVER in said else "memory" if used.ru_maxrss * 1024 > most_bytes else None
    return Outcome(
        os.waitstatus_to_exitcode(status),
        _read(output),
        said,
        stopped,
        interrupt_after_s is not None and passed_s > interrupt_after_s,
        (folder / _NETWORK_NOTE).exists(),
    )


def _read(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(_MOST_OUTPUT_BYTES).decode("utf-8", "replace")
    path.unlink()
    return text


def _child(
    body: Callable[[], object], folder: Path, output: Path, errors: Path, interrupt_after_s: float | None
) -> NoReturn:
    """The life of a fork: as a process that was started by a shell, without a network, and with an end."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        for number, path in ((0, "/dev/null"), (1, output), (2, errors)):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, flags, 0o644), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs that a shell put behind
        faulthandler.enable(sys.stderr)
        crowd = max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))  # processes for each core
        faulthandler.dump_traceback_later(MOST_S * crowd, exit=True, file=sys.stderr)
        if interrupt_after_s is not None:
            for after_s in (interrupt_after_s, interrupt_after_s + _AGAIN_AFTER_S):
                interrupt = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT))
                interrupt.daemon = True
                interrupt.start()
        _forbid_network(folder / _NETWORK_NOTE)
        code = _exit_code(body)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(body: Callable[[], object]) -> int:
    """What the interpreter would exit with."""
    try:
        body()
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
            return 1
        return ending.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _forbid_network(note: Path) -> None:
    def refuse(self: socket.socket, address: Any) -> NoReturn:
        note.touch()
        raise ConnectionRefusedError(f"no network in here, so not {address}")

    def resolve(*arguments: Any, **options: Any) -> NoReturn:
        note.touch()
        raise socket.gaierror(socket.EAI_NONAME, "no network in here")

    socket.socket.connect = refuse  # type: ignore[assignment, method-assign]
    socket.getaddrinfo = resolve
