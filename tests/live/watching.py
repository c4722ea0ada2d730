"""What a test sees of a live run while it goes on, so that it waits for what happens and not for a time."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.live.logs import log_path
from sim.live.parts import ProcessResults
from sim.run.interrupts import Interrupted


def hidden(out: Path) -> Path:
    """The folder of the only run under way."""
    (folder,) = out.glob(".*")
    return folder


def told(folder: Path, process: str, life: int = 0) -> list[tuple[Any, ...]]:
    """The events that a process has told so far, as rows of a run's table."""
    log = log_path(folder, process, life)
    return ProcessResults.read(process, log).events.rows() if log.is_file() else []


def has_trained(folder: Path, process: str, life: int = 0) -> bool:
    """Whether each client of a process that has told anything has told of training steps."""
    log = log_path(folder, process, life)
    latest = ProcessResults.read(process, log).lives if log.is_file() else {}
    return bool(latest) and all(facts["work"]["drawn"]["train"] > 0 for facts in latest.values())


def ended_when(condition: Callable[[], object]) -> Callable[[float], None]:
    """What ends a run early, by a signal, as soon as a condition holds."""

    def progress(now_s: float) -> None:
        if condition():
            raise Interrupted(signal.SIGINT)

    return progress
