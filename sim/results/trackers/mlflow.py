"""MLflow: a run in the file store `mlruns` beside the results, which all runs there have in common."""

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
_TEXT_MAX = 500  # characters of a parameter, and
_AT_ONCE = 100  # parameters of a call: MLflow refuses more
_REFUSED = re.compile(r"[^\w\-. :/]")  # in names


@contextmanager
def opened(directory: RunDirectory) -> Iterator[tuple[Callable[[Evaluation, int], None], Path]]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # which would go to a server
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # which newer versions refuse without it
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    def tell(evaluation: Evaluation, step: int) -> None:
        found = evaluation.scalars().items()
        metrics = [Metric(_REFUSED.sub("_", name), value, step, step) for name, value in found]
        client.log_batch(run, metrics=metrics)

    place, name = directory.path.absolute().parent / "mlruns", directory.path.absolute().name
    client = MlflowClient(tracking_uri=place.as_uri())
    known = client.get_experiment_by_name(_EXPERIMENT)
    experiment = client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
    for earlier in client.search_runs([experiment], f"tags.`{_RESULTS}` = '{name}'"):
        client.delete_run(earlier.info.run_id)
    run = client.create_run(experiment, tags={_RESULTS: name}, run_name=name).info.run_id
    stated = _by_key(tomllib.loads(directory.scenario_text()))
    params = [Param(_REFUSED.sub("_", key), text[:_TEXT_MAX]) for key, text in stated]
    for first in range(0, len(params), _AT_ONCE):
        client.log_batch(run, params=params[first : first + _AT_ONCE])
    yield tell, place
    client.set_terminated(run)


def _by_key(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """The values of a scenario as texts, by their keys such as "network.loss"."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _by_key(value, f"{before}{key}.")
        else:
            yield before + key, str(value)
