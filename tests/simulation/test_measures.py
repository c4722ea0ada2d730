"""What models are measured by: what is named, by scikit-learn, and a method's own objective."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn import metrics
from torch.nn import functional

from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.results.metrics import Metrics
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.setup.builder import build
from sim.run.summary import _quality_at_best_validation, undefined_metric_lines
from tests.own.data_worlds import built, load, owned

TAGS = """
def load(rng):
    x = rng.normal(size=(240, 4))
    return x, (x[:, :3] + 0.3 * rng.normal(size=(240, 3)) > 0).astype(float)
"""
CLASSES = """
def load(rng):
    x = rng.normal(size=(240, 4))
    return x, np.argmax(x[:, :3] + 0.3 * rng.normal(size=(240, 3)), axis=1)
"""
NUMBERS = """
def load(rng):
    x = rng.normal(size=(240, 4))
    return x, x[:, :2] + 0.1 * rng.normal(size=(240, 2))
"""
OBJECTIVE = """
from dataclasses import dataclass
from torch.nn import functional
from protocols import Client

@dataclass(frozen=True)
class Own:
    views: int = 1

    def __call__(self, model, parameters, x, y):
        return LOSS

class Mine(Client):
    @classmethod
    def objective(cls, settings):
        return Own()

    async def step(self):
        update = await self.train(5)
        self.params = self.params + update
"""
LOSSES = {
    "tags": (TAGS, "functional.binary_cross_entropy_with_logits(model.forward(parameters, x), y)"),
    "numbers": (NUMBERS, "functional.huber_loss(model.forward(parameters, x), y)"),
    "classes": (
        CLASSES,
        "functional.cross_entropy(model.forward(parameters, x), y, label_smoothing=0.2)",
    ),
}
IID = 'name = "mine.py:load"\npartition = "iid"'
REGRESSION = IID + '\ntask = "regression"'


def ended(folder: Path, data: str, *overrides: str, code: str) -> Simulation:
    """The scenario, at its end."""
    simulation = build(load(folder, data, *overrides, code=code), device="cpu")
    simulation.run()
    simulation.close()
    return simulation


def outputs(simulation: Simulation, role: str = "test") -> list[tuple[np.ndarray, np.ndarray]]:
    """The final models' outputs, and the targets, of each client's samples in this role."""
    found = []
    for client, (x, y) in zip(simulation.clients, owned(simulation, role), strict=True):
        compute = client.compute
        flat = compute.engine.rows([client.params])[0]
        found.append((compute.kernel.architecture.forward(flat, torch.from_numpy(x)).double().numpy(), y))
    return found


def measured(simulation: Simulation, name: str) -> list[float]:
    latest = simulation.observer.metrics.latest(name)
    return [latest[client.name] for client in simulation.clients]


@pytest.mark.parametrize("task", ["classes", "tags"])
def test_measures_that_are_named_are_those_of_scikit_learn(tmp_path: Path, task: str) -> None:
    data, code = (IID, CLASSES) if task == "classes" else (REGRESSION, TAGS)
    names = ["f1", "accuracy", "auc", "precision", "recall", "loss"]
    simulation = ended(tmp_path, data, f"run.metrics={json.dumps(names)}", code=code)
    assert simulation.observer.measure.name == "f1"
    expected: dict[str, list[float]] = {name: [] for name in names}
    for scores, y in outputs(simulation):
        average: dict[str, Any] = {"average": "macro", "zero_division": 0}
        if task == "classes":
            predicted, chances = scores.argmax(axis=1), torch.from_numpy(scores).softmax(dim=1).numpy()
            expected["accuracy"].append(metrics.accuracy_score(y, predicted))
            expected["auc"].append(metrics.roc_auc_score(y, chances, multi_class="ovr"))
            expected["loss"].append(metrics.log_loss(y, chances, labels=[0, 1, 2]))
        else:
            predicted = (scores > 0).astype(int)
            expected["accuracy"].append(float((predicted == y).mean()))
            expected["auc"].append(metrics.roc_auc_score(y, scores, average="macro"))
            expected["loss"].append(metrics.mean_squared_error(y, scores))
        expected["f1"].append(metrics.f1_score(y, predicted, **average))
        expected["precision"].append(metrics.precision_score(y, predicted, **average))
        expected["recall"].append(metrics.recall_score(y, predicted, **average))
    for name in names:
        np.testing.assert_allclose(measured(simulation, name), expected[name], rtol=1e-5, err_msg=name)


def test_measures_of_numbers(tmp_path: Path) -> None:
    simulation = ended(tmp_path, REGRESSION, 'run.metrics=["r2", "mae"]', code=NUMBERS)
    found = outputs(simulation)
    np.testing.assert_allclose(
        measured(simulation, "r2"), [metrics.r2_score(y, s) for s, y in found], rtol=1e-5
    )
    errors = [metrics.mean_absolute_error(y, s) for s, y in found]
    np.testing.assert_allclose(measured(simulation, "mae"), errors, rtol=1e-5)
    assert not simulation.observer.metrics.latest("loss")


@pytest.mark.parametrize("task", ["classes", "numbers"])
@pytest.mark.parametrize(("role", "name"), [("train", "train_loss"), ("validation", "validation_loss")])
def test_the_loss_of_other_samples_is_that_of_the_training_or_validation_samples(
    tmp_path: Path, task: str, role: str, name: str
) -> None:
    data, code = (IID, CLASSES) if task == "classes" else (REGRESSION, NUMBERS)
    keys = (f'run.metrics=["loss", "{name}"]', "data.validation_share=0.25")
    simulation = ended(tmp_path, data, *keys, code=code)
    expected = []
    for scores, y in outputs(simulation, role):
        if task == "classes":
            chances = torch.from_numpy(scores).softmax(dim=1).numpy()
            expected.append(metrics.log_loss(y, chances, labels=[0, 1, 2]))
        else:
            expected.append(metrics.mean_squared_error(y, scores))
    np.testing.assert_allclose(measured(simulation, name), expected, rtol=1e-5)
    assert not np.allclose(measured(simulation, "loss"), expected)
    assert simulation.observer.measure.name == "loss"


def test_what_clients_had_when_their_validation_loss_was_least(tmp_path: Path) -> None:
    keys = ("data.validation_share=0.5", "data.test_share=0.25", "training.learning_rate=3")
    metrics = 'run.metrics=["accuracy", "validation_loss"]'
    scenario = load(tmp_path, IID, metrics, "run.evaluate_every=125 ms", *keys, code=CLASSES)
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs"))
    assert result.directory is not None
    rows = pl.read_parquet(result.directory / "metrics.parquet").pivot("name", values="value")
    expected, times_s = [], []
    for client in result.summary["client_names"]:
        of_client = rows.filter(pl.col("actor") == client).sort("validation_loss")
        expected.append(of_client["accuracy"][0])
        times_s.append(of_client["time"][0])
    assert min(times_s) < 2.0
    assert result.summary["accuracy"]["stopped"] == pytest.approx(np.mean(expected))
    assert "stopped" not in result.summary["validation_loss"]


def test_to_find_the_least_validation_losses_looks_at_what_was_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not once for each client, of whom there may be 100,000."""
    metrics = 'run.metrics=["accuracy", "validation_loss"]'
    simulation = ended(tmp_path, IID, metrics, "data.validation_share=0.5", code=CLASSES)
    looks, recorded = [], Metrics._recorded

    def look(self: Metrics, name: str) -> Any:
        looks.append(name)
        return recorded(self, name)

    monkeypatch.setattr(Metrics, "_recorded", look)
    names = [client.name for client in simulation.clients]
    assert len(_quality_at_best_validation(simulation, names)) == len(names) > 2
    assert len(looks) <= 2


@pytest.mark.parametrize("kind", LOSSES)
def test_an_objective_of_ones_own_is_tested_by_itself(tmp_path: Path, kind: str) -> None:
    code, loss = LOSSES[kind]
    (tmp_path / "method.py").write_text(OBJECTIVE.replace("LOSS", loss))
    data = IID if kind == "classes" else REGRESSION
    simulation = ended(tmp_path, data, 'protocol.name="method.py:Mine"', code=code)
    expected = []
    for scores, labels in outputs(simulation):
        s, y = torch.from_numpy(scores), torch.from_numpy(labels)
        if kind == "tags":
            expected.append(functional.binary_cross_entropy_with_logits(s, y.double()).item())
        elif kind == "numbers":
            expected.append(functional.huber_loss(s, y.double()).item())
        else:
            expected.append(functional.cross_entropy(s, y, label_smoothing=0.2).item())
    np.testing.assert_allclose(measured(simulation, "objective"), expected, rtol=1e-4)
    assert simulation.observer.measure.name == ("accuracy" if kind == "classes" else "objective")
    found = simulation.observer.metrics.mean("objective").values
    assert found[-1] < found[0]


def test_classes_that_a_client_lacks_leave_its_curve_undefined_and_its_model_sound(tmp_path: Path) -> None:
    code = "def load():\n    y = np.arange(60) // 20\n    return np.arange(60.0)[:, None] / 60, y, y"
    data = 'name = "mine.py:load"\npartition = "natural"'
    simulation = ended(tmp_path, data, 'run.metrics=["auc", "f1"]', code=code)
    assert np.isnan(measured(simulation, "auc")).all() and np.isfinite(measured(simulation, "f1")).all()
    assert simulation.observer.divergence.first is None


def test_an_absent_class_is_left_out_of_the_area_and_a_client_of_one_class_is_said(tmp_path: Path) -> None:
    """Hospitals, of which one has no case: as scikit-learn says of the classes that are there."""
    code = """
def load(rng):
    owner = np.arange(120) // 40
    y = np.where(owner == 0, rng.integers(0, 3, 120), np.where(owner == 1, rng.integers(0, 2, 120), 2))
    return rng.normal(size=(120, 4)) + y[:, None], y, owner
"""
    scenario = load(
        tmp_path, 'name = "mine.py:load"\npartition = "natural"', 'run.metrics=["auc"]', code=code
    )
    with closing(build(scenario, device="cpu")) as simulation:
        simulation.run()
        found = measured(simulation, "auc")
        for value, (scores, y) in zip(found[:2], outputs(simulation)[:2], strict=True):
            chances = torch.from_numpy(scores).softmax(dim=1).numpy()
            areas = [metrics.roc_auc_score(y == each, chances[:, each]) for each in np.unique(y)]
            assert value == pytest.approx(np.mean(areas)) and (len(areas) == 3) == (value == found[0])
        assert np.isnan(found[2])
        [said] = undefined_metric_lines(simulation)
    assert said == (
        "auc is undefined for 1 of 3 clients (client-2), whose test samples are all of one class; "
        "its mean is over the other clients"
    )
    result = run_scenario(scenario, RunOptions(out=tmp_path / "out", device="cpu"))
    assert result.summary["auc"] == {"mean": pytest.approx(np.mean(found[:2])), "clients": 2}
    assert said in result.summary["warnings"]


@pytest.mark.report
def test_the_summary_and_the_report_are_of_what_is_named_first(tmp_path: Path) -> None:
    scenario = load(tmp_path, IID, 'run.metrics=["f1", "accuracy"]', "run.compare_alone=true", code=CLASSES)
    result = run_scenario(scenario, RunOptions(out=tmp_path / "out", device="cpu"))
    assert result.summary["measure"] == "f1" and result.summary["f1"]["clients"] == 3
    assert result.summary["accuracy"]["mean"] is not None
    assert result.directory is not None
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "Mean F1 score" in page and "The F1 score is 0." in page


REFUSED = {
    "no such measure": (IID, '["f2"]', "run.metrics"),
    "twice": (IID, '["f1", "f1"]', "must be different metrics out of"),
    "of numbers, for classes": (IID, '["mae"]', "out of accuracy, loss, objective, f1, auc, precision"),
    "of classes, for numbers": (REGRESSION, '["f1"]', '"f1" needs classes, or regression targets that'),
    "of what nobody holds out": (IID, '["accuracy", "validation_loss"]', "set data.validation_share"),
    "none at all": (IID, "[]", "run.metrics"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_measures_that_do_not_fit_are_refused(tmp_path: Path, name: str) -> None:
    data, value, message = REFUSED[name]
    code = NUMBERS if data == REGRESSION else CLASSES
    with pytest.raises(UserError) as refused:
        built(tmp_path, data, f"run.metrics={value}", code=code)
    assert message in str(refused.value) and "run.metrics" in str(refused.value)
