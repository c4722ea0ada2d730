"""CPU seconds of short commands, each in its own process: their imports and their first work."""

import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.measuring import Effort, Say, interleaved, table

TINY = ("quickstart", "--set", "run.duration=10 s", "--unset", "churn")
COMMANDS: Mapping[str, Sequence[str]] = {
    "`import coterie`": ("-c", "import coterie"),
    "`import torch`, for comparison": ("-c", "import torch"),
    "`coterie --help`": ("-m", "sim", "--help"),
    "`coterie list protocols`": ("-m", "sim", "list", "protocols"),
    "`coterie check quickstart`": ("-m", "sim", "check", "quickstart"),
    "`coterie run quickstart`, first 10 s": ("-m", "sim", "run", *TINY, "--quiet", "--overwrite"),
}

TEXT = f"""\
The table gives the CPU seconds (user and system) of a whole process. The commands were run alternately. The
run is
`coterie run {" ".join(f'"{each}"' if " " in each else each for each in TINY)}`; it also writes its report."""


def cpu_s(arguments: Sequence[str], folder: Path) -> float:
    """Return the CPU seconds of a Python process with these arguments, in this folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(effort: Effort, say: Say) -> str:
    """Return the section on starting up, in Markdown."""
    with TemporaryDirectory() as folder:
        contenders = {name: partial(cpu_s, of, Path(folder)) for name, of in COMMANDS.items()}
        measured = interleaved(contenders, effort.repetitions)
    rows = [[name, f"{median(seconds):.2f}"] for name, seconds in measured.items()]
    for name, seconds in rows:
        say(f"start-up, {name}: {seconds} s")
    return "\n\n".join(["## Start-up", TEXT, table(["", "CPU seconds"], rows)])
