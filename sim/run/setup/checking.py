"""Checks of a scenario without running it."""

from pathlib import Path

from sim.files.data_folder import DataFolder
from sim.learning.models.mlp import FullyConnected
from sim.run.setup.plan import RunPlan, plan_run
from sim.scenario.scenario import Scenario


def check(scenario: Scenario, data_dir: Path | None = None, *, download: bool = False) -> RunPlan:
    """Check a scenario beyond its file, and return its plan. Raises UserError.

    Files are read and checked as for a run. download: whether a missing data set is downloaded. Torch is
    imported only if a check needs it.
    """
    folder = DataFolder(data_dir, download)
    if _plan_reveals_errors(scenario):
        return plan_run(scenario, folder, made=False)
    from sim.run.setup.builder import plan_by_building

    return plan_by_building(scenario, folder)


def _plan_reveals_errors(scenario: Scenario) -> bool:
    """Return True if the plan reveals all errors: for fully connected models without the user's code.

    Settings other than the defaults can fail later: a model may not support the stated backend, a machine may
    lack the stated precision or device, and metrics or an objective may not fit the data.
    """
    engine, protocol = scenario.engine, scenario.protocol
    return (
        isinstance(scenario.model, FullyConnected)
        and scenario.model.start is None
        and not scenario.model_group
        and not scenario.plugins
        and engine.way in ("auto", "fastest")
        and (engine.precision, engine.micro_batch, engine.devices) == ("float32", None, None)
        and scenario.run.metrics is None
        and scenario.training.augmentation is None
        and protocol.objective is None
    )
