"""The command `coterie`, also `python -m sim`. It handles Ctrl-C even before torch is imported."""

import codecs
import errno
import gc
import os
import sys
import unicodedata
from io import TextIOWrapper

from sim.run.interrupts import end_process_on_signal

_OF_OUTPUT = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EBADF)  # errors of writing the output


def main() -> None:
    """Run the installed command."""
    end_process_on_signal()
    # Most objects of a command are modules, which stay alive: scanning them repeatedly for garbage would take
    # a tenth of a short run's time. A run configures garbage collection itself.
    gc.set_threshold(1_000_000, 10, 20)
    _require_locks()
    _escape_unprintable()
    from sim.cli.live import app

    try:
        try:
            app()
        finally:
            if sys.stdout is not None:  # None if it is closed
                sys.stdout.flush()
            gc.freeze()  # otherwise Python collects all modules one by one at exit
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_OUTPUT:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _require_locks() -> None:
    """Exit on systems without fcntl, such as Windows: coterie locks results by fcntl during writing."""
    try:
        import fcntl  # noqa: F401
    except ModuleNotFoundError:
        reason = (
            "the Python module fcntl, which locks folders, is missing (as on Windows); use Linux, WSL or "
            "macOS"
        )
        print(f"coterie does not run on this system: {reason}", file=sys.stderr)
        sys.exit(2)


def _escape_unprintable() -> None:
    """Print characters that the terminal's encoding lacks as escapes, and special spaces as spaces."""

    def escaped(error: UnicodeError) -> tuple[str | bytes, int]:
        assert isinstance(error, UnicodeEncodeError)
        if unicodedata.category(error.object[error.start]) == "Zs":
            return " ", error.start + 1
        error.end = error.start + 1
        return codecs.backslashreplace_errors(error)

    codecs.register_error("coterie", escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None if it is closed
            stream.reconfigure(errors="coterie")


if __name__ == "__main__":
    main()
