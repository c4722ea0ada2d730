"""A process with another hash seed that does what each line of its input says: a command of `coterie`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class GoesOn(Protocol):
    def __call__(self, *words: object) -> None: ...


@contextmanager
def other_process(hash_seed: int = 77) -> Iterator[GoesOn]:
    """A function that has the other process do a command, which must succeed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.resume.other_process"],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    commands, answers = process.stdin, process.stdout

    def do(*words: object) -> None:
        commands.write(json.dumps([str(word) for word in words]) + "\n")
        commands.flush()
        code, output = json.loads(answers.readline())
        assert code == 0, output

    try:
        yield do
    finally:
        commands.close()
        process.wait(100)


def main() -> None:
    """Do what comes in, and say what came of it."""
    from typer.testing import CliRunner

    from sim.cli.commands import app

    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        result = CliRunner().invoke(app, json.loads(line))
        print(json.dumps([result.exit_code, result.output]), file=answers, flush=True)


if __name__ == "__main__":
    main()
