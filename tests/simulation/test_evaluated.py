"""Several models of a client, and ensembles of them: measured under their names, as scikit-learn does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from sim.core.simulation import Simulation
from sim.results.store.run_directory import RunDirectory
from tests.learning.engines import own_samples
from tests.simulation.worlds import DIGITS, QUADRATIC, run, simulation, write

OWN = """\
from protocols import Client

class Own(Client):
    shared = None

    async def step(self):
        update = await self.train()
        self.shared = self.params
        self.params = self.params + update

    def evaluated(self):
        EVALUATED
"""
TWO = 'return {"personal": self.params, "shared": self.shared or self.params}'
MIXED = 'return {"mixture": [(3, self.params), (1, self.shared or self.params)], "personal": self.params}'


def own(folder: Path, evaluated: str) -> str:
    """The override that chooses a protocol with this evaluated()."""
    return f"protocol.name={write(folder, OWN.replace('EVALUATED', evaluated), 'own.py')}:Own"


def probabilities(built: Simulation, client: int, weighted: list[tuple[float, Any]]) -> np.ndarray:
    """Of the classes of each test sample [B, K], one model after the other."""
    x, _ = own_samples(built.engine.data, client, "test")
    kernel, total = built.clients[client].compute.kernel, np.zeros(())
    for weight, model in weighted:
        scores = kernel.outputs(model.tensor()[None], x[None])[0].double()
        total = total + weight * torch.softmax(scores, dim=1).numpy()
    return total


@pytest.mark.parametrize("evaluated", [TWO, MIXED])
def test_each_model_is_measured_as_scikit_learn_does(tmp_path: Path, evaluated: str) -> None:
    with simulation(tmp_path, DIGITS, own(tmp_path, evaluated)) as built:
        built.run()
        metrics = built.observer.metrics
        for client in built.clients:
            learner: Any = client.actor
            models = {"personal": [(1.0, learner.params)], "shared": [(1.0, learner.shared)]}
            if evaluated == MIXED:
                del models["shared"]
                models = {"mixture": [(0.75, learner.params), (0.25, learner.shared)], **models}
            _, y = own_samples(built.engine.data, client.index, "test")
            for place, (name, weighted) in enumerate(models.items()):
                found = probabilities(built, client.index, weighted)
                wanted = {
                    "accuracy": accuracy_score(y, found.argmax(1)),
                    "loss": log_loss(y, found, labels=np.arange(10)),
                }
                for metric, value in wanted.items():
                    measured = metrics.latest(f"{metric}_of_{name}")[client.name]
                    assert measured == pytest.approx(value, rel=1e-5)
                    if place == 0:  # what clients are judged by
                        assert metrics.latest(metric)[client.name] == measured


@pytest.mark.report
def test_summary_and_report_say_which_model_is_which(tmp_path: Path) -> None:
    result = run(tmp_path, DIGITS, own(tmp_path, TWO))
    assert result.directory is not None
    models = RunDirectory.load(result.directory).summary()["models"]
    assert list(models) == ["personal", "shared"]
    assert models["personal"]["mean"] == result.summary["accuracy"]["mean"]
    assert models["personal"]["mean"] != models["shared"]["mean"]
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "several models (personal, shared); the comparison uses personal" in page
    assert "models-over-time" in page


def test_one_model_has_no_second_name(tmp_path: Path) -> None:
    result = run(tmp_path, DIGITS, own(tmp_path, 'return {"mine": self.params}'))
    assert result.directory is not None
    assert result.summary["models"] is None
    names = RunDirectory.load(result.directory).scan("metrics").collect()["name"].unique().to_list()
    assert not [name for name in names if "_of_" in name]


WRONG = {
    "nothing": ("return None", "must return a mapping of names to models, not NoneType"),
    "no model": ("return {}", "must return a mapping of names to models, not an empty one"),
    "a number": ('return {"mine": 3}', "mine must be a model, or a list of pairs"),
    "a part": ('return {"mine": self.params[:4]}', "mine has 4 numbers, but a model of this client has 650"),
    "weights below 0": ('return {"mine": [(-1, self.params)]}', "of mine are [-1.0]; they must be finite"),
    "a name with a blank": ('return {"my model": self.params}', "'my model' must be an identifier"),
    "a reserved name": ('return {"alone": self.params}', "'alone' must be an identifier other than 'alone'"),
    "an error": ('return {"mine": self.nothing}', "no attribute 'nothing'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_model_is_said_once_and_the_run_goes_on(tmp_path: Path, name: str) -> None:
    evaluated, message = WRONG[name]
    with simulation(tmp_path, DIGITS, own(tmp_path, evaluated)) as built:
        built.run()
        failures = built.supervisor.failures
        assert [failure.where for failure in failures] == ["evaluated"] * 6
        assert all(message in failure.error and "own.py:" in str(failure) for failure in failures), failures
        assert len(built.observer.metrics.latest("accuracy")) == 6
        assert all(client.iterations > 5 for client in built.clients)


def test_points_of_quadratic_data_are_not_averaged(tmp_path: Path) -> None:
    """They predict nothing; what is measured is the one model, and the file's line says why."""
    result = run(tmp_path, QUADRATIC, own(tmp_path, MIXED))
    assert result.directory is not None
    summary = RunDirectory.load(result.directory).summary()
    [failure] = [line for line in summary["failures"] if "evaluated" in line]
    assert "mixture has 2 models" in failure and "a point without predictions" in failure
    assert summary["distance"] is not None
