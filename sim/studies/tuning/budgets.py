"""Budgets that the selected trials of a tuning study used."""

from sim.studies.comparison import Comparison
from sim.studies.index import DONE, SweepIndex
from sim.studies.study import StudiedRun, Study
from sim.studies.tuning.tuning import TuningResult


def unequal_budgets(result: TuningResult) -> list[str]:
    """Return the warnings of a comparison of the selected trials about unequal budgets."""
    best = {(name, trial.number) for name in result.trials if (trial := result.best(name)) is not None}
    index = SweepIndex.read(result.directory)
    runs = [
        StudiedRun(
            result.directory.parent / cell.directory,
            {axis: value for axis, value in cell.values.items() if axis != "trial"},
        )
        for cell in index.cells
        if cell.state == DONE
        and cell.directory is not None
        and (cell.values["method"], cell.values["trial"]) in best
    ]
    if not runs:
        return []
    axes = {axis: values for axis, values in index.axes.items() if axis != "trial"}
    study = Study(index.name, index.question, axes, index.labels, tuple(runs))
    return Comparison(study, metrics=[study.measure]).unequal_budgets()
