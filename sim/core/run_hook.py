"""Base class of hooks: code that is called when events of a run occur."""

from sim.core.hooks import Hook
from sim.core.simulation import Simulation


class RunHook(Hook):
    """Code that is called when events of a run occur. Override the methods that you need.

    A hook can read the simulation and must not change it. If a hook raises an error, the hook is removed, the
    run continues, and a warning of the run names the hook. If the hook's `ends_run` is True, the error ends
    the run instead.
    """

    def started(self, simulation: Simulation) -> None:
        """Called before the first event; also in a resumed run, which is replayed from time 0."""

    def evaluated(self, simulation: Simulation) -> None:
        """Called after each evaluation; `simulation.observer.metrics` has the values."""

    def paused(self, simulation: Simulation) -> None:
        """Called at the end of an instant in which `simulation.loop.pause()` was called."""

    def ended(self, simulation: Simulation) -> None:
        """Called before the last evaluation if the run has reached its duration; not if it ended earlier."""

    def closed(self, simulation: Simulation) -> None:
        """Called when the simulation is closed, also after an error; not after a second signal."""
