"""A run's evaluations for the trackers that people have, from its results and by the trackers' own clients.

A tracker is a function that is told each `Evaluation` and its step, a millisecond of virtual time, in a
context that opens and closes what it writes. Module, package and extra of a tracker have its name.
"""

from importlib import import_module
from pathlib import Path

from sim.errors import one_line
from sim.results.evaluations import evaluations
from sim.results.store.run_directory import RunDirectory


class TrackerFailed(Exception):
    """A tracker could not be told of a run, whose results are complete."""


def write_for(tracker: str, directory: RunDirectory) -> Path:
    """Tell a tracker what a run has measured, in place of what it was told of it before; returns where.

    Raises TrackerFailed for whatever the tracker raises, but OSError as it is.
    """
    opened = import_module(f"{__name__}.{tracker}").opened
    try:
        with opened(directory) as (tell, place):
            for evaluation in evaluations(directory):
                tell(evaluation, round(evaluation.time * 1000))
    except OSError:
        raise
    except Exception as error:  # of other people's packages
        problem = one_line(f"{type(error).__name__}: {error}")
        where = f"the run's results are in {directory.path}"
        raise TrackerFailed(f"--track {tracker} failed: {problem}; {where}") from error
    assert isinstance(place, Path)
    return place
