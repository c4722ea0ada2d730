"""Export of a run's evaluations from its results to experiment trackers, with the trackers' packages.

A tracker is a function that receives each `Evaluation` and its step (virtual time in milliseconds), inside a
context that opens and closes its files. The module, the package and the extra for a tracker have the
tracker's name.
"""

from importlib import import_module
from pathlib import Path

from sim.errors import one_line
from sim.results.evaluations import evaluations
from sim.results.store.run_directory import RunDirectory


class TrackerFailed(Exception):
    """Failure of a tracker after a run with complete results."""


def write_for(tracker: str, directory: RunDirectory) -> Path:
    """Write a run's evaluations for a tracker, replacing earlier ones of the run; return their path.

    Raises OSError, and TrackerFailed for all other errors of the tracker.
    """
    open_tracker = import_module(f"{__name__}.{tracker}").open_tracker
    try:
        with open_tracker(directory) as (write, path):
            for evaluation in evaluations(directory):
                write(evaluation, round(evaluation.time * 1000))
    except OSError:
        raise
    except Exception as error:  # raised by a tracker's package
        problem = one_line(f"{type(error).__name__}: {error}")
        where = f"the run's results are in {directory.path}"
        raise TrackerFailed(f"--track {tracker} failed: {problem}; {where}") from error
    assert isinstance(path, Path)
    return path
