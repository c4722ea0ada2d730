"""The command `coterie`, also as `python -m sim`. Ctrl-C is handled even before torch is imported."""

import codecs
import errno
import gc
import os
import sys
import unicodedata
from io import TextIOWrapper

from sim.run.interrupts import own_process

_OF_OUTPUT = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EBADF)  # where what is printed finds no place


def main() -> None:
    """Entry point of the installed command."""
    own_process()
    # Most of what a command makes are modules, which last: to look through them again and again for garbage
    # would take a tenth of a short run's time. A run has its garbage collected as it says itself.
    gc.set_threshold(1_000_000, 10, 20)
    _require_locks()
    _write_what_can_be_written()
    from sim.cli.live import app

    try:
        try:
            app()
        finally:
            if sys.stdout is not None:  # as where it is closed
                sys.stdout.flush()
            gc.freeze()  # Python would collect all modules, one by one, before the process ends anyway
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_OUTPUT:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _require_locks() -> None:
    """Results are locked while they are written, with what Windows has not."""
    try:
        import fcntl  # noqa: F401
    except ModuleNotFoundError:
        why = "Python's fcntl, which locks folders, is missing, as on Windows; use Linux, WSL or macOS"
        print(f"coterie does not run on this system: {why}", file=sys.stderr)
        sys.exit(2)


def _write_what_can_be_written() -> None:
    """Have an ASCII terminal get an escape for what it has no character for, and spaces as such."""

    def escaped(error: UnicodeError) -> tuple[str | bytes, int]:
        assert isinstance(error, UnicodeEncodeError)
        if unicodedata.category(error.object[error.start]) == "Zs":
            return " ", error.start + 1
        error.end = error.start + 1
        return codecs.backslashreplace_errors(error)

    codecs.register_error("coterie", escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="coterie")


if __name__ == "__main__":
    main()
