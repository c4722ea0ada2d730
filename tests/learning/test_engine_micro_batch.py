"""engine.micro_batch: batches that are computed part by part."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sim.errors import UserError
from sim.learning.engine.backends.kernels import ModelKernel
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.learning.engines import MODELS_AND_WAYS, SHAPES, client_data, generator, objective_of, small
from tests.simulation.worlds import DIGITS, write

SIZES = (1, 3, 4)  # of batches of 7 samples: equal parts, a smaller last one


@pytest.mark.long
@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_parts_of_a_batch_add_up_to_the_whole(model: str, backend: str) -> None:
    x, y = client_data([7, 7], shape=SHAPES[model], device="cpu").train.gather(*_all_of(2, 7))
    drawn = generator()
    flat = torch.stack([small(model).initial(drawn) for _ in range(2)])
    weights = torch.rand(2, 7, generator=drawn)
    whole = ModelKernel(small(model), objective_of(model), backend)
    for size in SIZES:
        parts = ModelKernel(small(model), objective_of(model), backend, micro_batch=size)
        for given in (None, weights):
            expected = whole.gradients(flat, x, y, given)
            torch.testing.assert_close(parts.gradients(flat, x, y, given), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(parts.losses(flat, x, y), whole.losses(flat, x, y), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(parts.outputs(flat, x), whole.outputs(flat, x), rtol=1e-5, atol=1e-5)
        for rate in (0.5, torch.full((2, 1), 0.5)):
            moved, wanted = flat.clone(), flat.clone()
            parts.descend(moved, x, y, rate)
            whole.descend(wanted, x, y, rate)
            torch.testing.assert_close(moved, wanted, rtol=1e-5, atol=1e-5)


def test_no_more_samples_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, seen = ModelKernel(small("mlp"), objective_of("mlp"), "vmap", micro_batch=3), []
    backend = kernel._backend
    for name in ("gradients", "losses_of_each", "outputs"):
        compute = getattr(backend, name)

        def watched(flat, x, *others, compute=compute):  # type: ignore[no-untyped-def]
            seen.append(x.shape[1])
            return compute(flat, x, *others)

        monkeypatch.setattr(backend, name, watched)
    x, y = client_data([7, 7], shape=SHAPES["mlp"], device="cpu").train.gather(*_all_of(2, 7))
    flat = torch.stack([small("mlp").initial(generator()) for _ in range(2)])
    kernel.gradients(flat, x, y)
    kernel.descend(flat, x, y, 0.1)
    kernel.losses(flat, x, y)
    kernel.outputs(flat, x)
    assert seen == [3, 3, 1] * 4


NORMED = """\
from torch import nn

def net(classes):
    return nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, classes))
"""


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["model={name='net.py:net'}"], "its batch normalization or dropout layers"),
        (
            ["protocol={name='mapl'}", "model={name='decoupled', backbones=['small-mlp']}"],
            "the method's loss",
        ),
    ],
)
def test_what_takes_batches_whole_is_refused(overrides: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NORMED)
    file = write(tmp_path, DIGITS)
    scenario = load_scenario(file, [*overrides, "engine.micro_batch=4"])
    with pytest.raises(UserError, match=rf"engine.micro_batch = 4: .* needs whole batches, because of {why}"):
        build(scenario)


def _all_of(clients: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(clients), np.broadcast_to(np.arange(count), (clients, count))
