"""Simulate decentralized collaborative learning, from a script or a notebook.

    import coterie

    run = coterie.run("quickstart", seed=2)
    run.summary["accuracy"]["mean"], run.metrics, run.graph, run.report

`run` runs a scenario, `load` reads the results of an earlier run, `resume` and `fork` continue one, `sweep`
runs many and `compare` compares them. The names for writing methods are also here: `from coterie import
Client, Vector`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import protocols
from sim.errors import require_current_folder

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from coterie.results import Run as Run
    from coterie.results import RunFailed as RunFailed
    from coterie.runs import fork as fork
    from coterie.runs import load as load
    from coterie.runs import resume as resume
    from coterie.runs import run as run
    from coterie.sweeps import Compared as Compared
    from coterie.sweeps import Sweep as Sweep
    from coterie.sweeps import SweepFailed as SweepFailed
    from coterie.sweeps import compare as compare
    from coterie.sweeps import sweep as sweep
    from protocols import *  # noqa: F403
    from sim.core.hooks import MessageEvent as MessageEvent
    from sim.core.run_hook import RunHook as RunHook
    from sim.errors import UserError as UserError
    from sim.results.evaluations import Evaluation as Evaluation

_MODULES = {
    **dict.fromkeys(("Run", "RunFailed"), "coterie.results"),
    **dict.fromkeys(("fork", "load", "resume", "run"), "coterie.runs"),
    **dict.fromkeys(("Compared", "Sweep", "SweepFailed", "compare", "sweep"), "coterie.sweeps"),
    "MessageEvent": "sim.core.hooks",
    "RunHook": "sim.core.run_hook",
    "UserError": "sim.errors",
    "Evaluation": "sim.results.evaluations",
    **dict.fromkeys(protocols.__all__, "protocols"),
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a name on first use: torch, polars and plotly take seconds."""
    if name in _MODULES:
        require_current_folder()  # without one, some libraries end the process when they are imported
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
