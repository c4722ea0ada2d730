"""Test samples of a client, out of the results of a run."""

from pathlib import Path

import numpy as np
import pytest

import coterie
from tests.resume.test_trained_models import measured, samples_of
from tests.simulation.worlds import DIGITS, run

ARRAYS = 'data={name="arrays",file="made.npz",partition="iid"}'


def made(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    np.savez(folder / "made.npz", x=rng.normal(size=(90, 4)).astype(np.float32), y=np.arange(90) % 3)


@pytest.mark.long
@pytest.mark.parametrize(
    "partition",
    [
        '{kind="permuted-clusters",clusters=2}',
        '{kind="dirichlet",alpha=0.3}',
        '{kind="classes-per-client",classes=3,tests="all"}',
    ],
)
def test_the_test_samples_give_the_accuracy_of_the_run(tmp_path: Path, partition: str) -> None:
    directory = run(tmp_path, DIGITS, f"data.partition={partition}", "model.name=mlp").directory
    assert directory is not None
    of_run = coterie.load(directory)
    for client in (0, "client-5"):
        x, y = of_run.test_samples(client)
        right = of_run.predict(client, x).argmax(axis=1) == y
        assert right.mean() == measured(directory, f"client-{str(client)[-1]}", 4.0)
    for found, expected in zip((x, y), samples_of(directory, 5), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_samples_of_changed_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path, 1)
    directory = run(tmp_path, DIGITS, ARRAYS).directory
    assert directory is not None
    of_run = coterie.load(directory)
    assert len(of_run.test_samples(1)[1]) == 18
    made(tmp_path, 2)
    with pytest.raises(coterie.UserError, match="differ from those of the run: the clients' data was"):
        of_run.test_samples(1)


def test_a_run_without_that_client_has_no_samples_of_it(tmp_path: Path) -> None:
    directory = run(tmp_path, DIGITS, "run.duration=1 s", "run.evaluate_every=1 s").directory
    assert directory is not None
    with pytest.raises(coterie.UserError, match="client = 6: must be from 0 to 5"):
        coterie.load(directory).test_samples(6)
