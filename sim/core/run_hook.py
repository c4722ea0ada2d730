"""The base class of hooks: code that is called at certain moments of a run."""

from sim.core.hooks import Hook
from sim.core.simulation import Simulation


class RunHook(Hook):
    """Code that is called at certain moments of a run. Override the methods that you need.

    A hook looks at the simulation and must not change it. A hook that raises an error is removed, the run
    goes on without it, and the warnings of the run name it. The error of a hook with `ends_run` ends the run.
    """

    def started(self, simulation: Simulation) -> None:
        """Called before the first event. A run that goes on from a checkpoint begins again, at time 0."""

    def evaluated(self, simulation: Simulation) -> None:
        """Called after each evaluation; `simulation.observer.metrics` has the values."""

    def paused(self, simulation: Simulation) -> None:
        """Called at the end of an instant at which something has called `simulation.loop.pause()`."""

    def ended(self, simulation: Simulation) -> None:
        """Called when the run has reached its duration, before the last evaluation."""

    def closed(self, simulation: Simulation) -> None:
        """Called when the simulation is closed, also after an error."""
