"""Warnings about code of the user that waits for, or reads, the machine's clock.

Time in a run is virtual. Wall-clock time differs between runs, so a method must not use it.
"""

import ast
from collections.abc import Iterable

from actors.source_location import location_text
from sim.plugins.source_files import full_name, imported_names, parse_source

_CLOCKS = {f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time")}
_CLOCKS |= {f"{name}_ns" for name in _CLOCKS}
_CLOCKS |= {f"datetime.{kind}.{name}" for kind in ("datetime", "date") for name in ("now", "utcnow", "today")}


def clock_call_warnings(files: Iterable[str]) -> list[str]:
    """Return a line for `time.sleep` and each clock that functions in these files call, with the place."""
    found: dict[str, str] = {}
    for file in files:
        tree = parse_source(file)
        names = dict(imported_names(tree))
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        calls = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: call.lineno):
            found.setdefault(full_name(call.func, names), location_text(file, call.lineno))
    return [warning for name, line in found.items() if (warning := _warning(name, line))]


def _warning(name: str, line: str) -> str:
    if name == "time.sleep":
        return (
            f"time.sleep ({line}) takes no virtual time and blocks all clients: write "
            "`await self.sleep(seconds)`"
        )
    if name in _CLOCKS:
        return (
            f"{name} ({line}) reads the machine's clock, which differs in each run: use `self.now`, the "
            "virtual time"
        )
    return ""
