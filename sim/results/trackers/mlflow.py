"""MLflow: a run in the file store `mlruns` next to the results, shared by all runs in the folder."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.results.evaluations import Evaluation
from sim.results.store.run_directory import RunDirectory

_EXPERIMENT, _RESULTS = "coterie", "coterie.results"
_TEXT_MAX = 500  # MLflow's limit of characters of a parameter
_AT_ONCE = 100  # MLflow's limit of parameters per call
_REFUSED = re.compile(r"[^\w\-. :/]")  # characters that MLflow rejects in names


@contextmanager
def open_tracker(directory: RunDirectory) -> Iterator[tuple[Callable[[Evaluation, int], None], Path]]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no telemetry to a server
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # required by newer versions
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    def write(evaluation: Evaluation, step: int) -> None:
        found = evaluation.scalars().items()
        metrics = [Metric(_REFUSED.sub("_", name), value, step, step) for name, value in found]
        client.log_batch(run, metrics=metrics)

    store, name = directory.path.absolute().parent / "mlruns", directory.path.absolute().name
    client = MlflowClient(tracking_uri=store.as_uri())
    known = client.get_experiment_by_name(_EXPERIMENT)
    experiment = client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
    for earlier in client.search_runs([experiment], f"tags.`{_RESULTS}` = '{name}'"):
        client.delete_run(earlier.info.run_id)
    run = client.create_run(experiment, tags={_RESULTS: name}, run_name=name).info.run_id
    stated = _by_key(tomllib.loads(directory.scenario_text()))
    params = [Param(_REFUSED.sub("_", key), text[:_TEXT_MAX]) for key, text in stated]
    for first in range(0, len(params), _AT_ONCE):
        client.log_batch(run, params=params[first : first + _AT_ONCE])
    yield write, store
    client.set_terminated(run)


def _by_key(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a scenario, such as "network.loss", with their values as text."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _by_key(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value)
