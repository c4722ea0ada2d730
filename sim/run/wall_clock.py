"""What a run warns of: code of the user's that waits for, or reads, the machine's clock.

Time in a run is virtual: what really passes is not seen by any client, and differs from run to run.
"""

import ast
from collections.abc import Iterable

from actors.source_location import written
from sim.plugins.source_files import full_name, imported_names, syntax_of

_CLOCKS = {f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time")}
_CLOCKS |= {f"{name}_ns" for name in _CLOCKS}
_CLOCKS |= {f"datetime.{kind}.{name}" for kind in ("datetime", "date") for name in ("now", "utcnow", "today")}


def wall_clock(files: Iterable[str]) -> list[str]:
    """A line for each function of the machine's time that code in these files calls, with the first place."""
    found: dict[str, str] = {}
    for file in files:
        tree = syntax_of(file)
        names = dict(imported_names(tree))
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        calls = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: call.lineno):
            found.setdefault(full_name(call.func, names), written(file, call.lineno))
    return [said for name, place in found.items() if (said := _said(name, place))]


def _said(name: str, place: str) -> str:
    if name == "time.sleep":
        return (
            f"time.sleep ({place}) lets no virtual time pass, and holds up all clients: write "
            "`await self.sleep(seconds)`"
        )
    if name in _CLOCKS:
        return (
            f"{name} ({place}) tells the machine's time, which is another one in each run; the run's own is "
            "`self.now`"
        )
    return ""
