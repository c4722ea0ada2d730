"""engine.precision: what bfloat16 changes and what it doesn't, and CUDA's process-wide flags."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sim.learning.engine import Engine, Optimizer
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.backends.precision import allowing_tf32
from tests.learning.engines import (
    MODELS_AND_WAYS,
    SHAPES,
    Jobs,
    client_data,
    new_engine,
    objective_of,
    own_samples,
    small,
)

# Of a whole, by its norm. A factor is rounded by up to 2**-9, but where that turns the sign of a ReLU's input
# or the winner of a maximum, a gradient takes another path.
TOLERANCE = 0.1
COUNTS = [6] * 5


def kernel_and_arguments(
    model: str, backend: str, precision: str, device: str = "cpu"
) -> tuple[ModelKernel, tuple[Tensor, Tensor, Tensor]]:
    data = client_data(COUNTS, shape=SHAPES[model])
    samples = [own_samples(data, client) for client in range(len(COUNTS))]
    generator = torch.Generator().manual_seed(2)
    flat = torch.stack([small(model).initial(generator) for _ in COUNTS])
    x, y = (torch.stack(parts) for parts in zip(*samples, strict=True))
    kernel = ModelKernel(small(model), objective_of(model), backend, precision)
    return kernel, (flat.to(device), x.to(device), y.to(device))


def results(model: str, backend: str, precision: str, device: str = "cpu") -> dict[str, Tensor]:
    kernel, (flat, x, y) = kernel_and_arguments(model, backend, precision, device)
    found = {
        "gradients": kernel.gradients(flat, x, y),
        "losses": kernel.losses(flat, x, y),
        "outputs": kernel.outputs(flat, x),
    }
    moved = flat.clone()
    kernel.descend(moved, x, y, torch.full((len(flat), 1), 0.5, device=device))
    return found | {"steps": flat - moved}


def check(exact: dict[str, Tensor], rounded: dict[str, Tensor], *, differs: bool) -> None:
    for name, values in exact.items():
        assert rounded[name].dtype == torch.float32
        assert (rounded[name] - values).norm() <= TOLERANCE * values.norm(), name
        assert torch.equal(rounded[name], values) is not differs, name


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_bfloat16_is_near_float32_and_differs(model: str, backend: str) -> None:
    # A point has no products to round.
    check(results(model, backend, "float32"), results(model, backend, "bfloat16"), differs=model != "point")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_bfloat16_on_cuda(model: str, backend: str) -> None:
    """Near float32 there, which is near that of the CPU."""
    on_cpu, on_cuda = (results(model, backend, "float32", device) for device in ("cpu", "cuda"))
    for name, values in on_cpu.items():
        torch.testing.assert_close(on_cuda[name].cpu(), values, rtol=1e-3, atol=1e-5)
    check(on_cuda, results(model, backend, "bfloat16", "cuda"), differs=model != "point")


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_training_in_bfloat16_keeps_parameters_and_state_in_float32(model: str, backend: str) -> None:
    def train(precision: str) -> tuple[np.ndarray, np.ndarray]:
        data = client_data(COUNTS, shape=SHAPES[model])
        engine = new_engine(data, backend=backend, precision=precision)
        jobs = Jobs(engine, model, Optimizer("sgd", momentum=0.5))
        starts = [jobs.initial(client) for client in range(len(COUNTS))]
        trained = [jobs.train(client, start, 3, learning_rate=1e-3) for client, start in enumerate(starts)]
        states = [state for _, state in trained if state is not None]
        params = engine.rows([own for own, _ in trained]) - engine.rows(starts)
        return params.cpu().numpy(), engine.rows(states).cpu().numpy()

    for exact, rounded in zip(train("float32"), train("bfloat16"), strict=True):
        assert rounded.dtype == np.float32
        assert np.linalg.norm(rounded - exact) <= TOLERANCE * np.linalg.norm(exact)
        coarse = torch.from_numpy(rounded).bfloat16().float().numpy()
        assert not np.array_equal(rounded, coarse), "the numbers themselves were rounded to bfloat16"


def test_sums_and_inner_products_are_not_rounded() -> None:
    def compute(engine: Engine) -> np.ndarray:
        jobs = Jobs(engine)
        first, second = jobs.initial(0), jobs.initial(1)
        return (engine.dot(first, second) * first + 0.3 * second).numpy()

    assert np.array_equal(compute(new_engine(precision="bfloat16")), compute(new_engine()))


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_flags_of_the_process_are_set_and_put_back(precision: str) -> None:
    before = flags()
    with allowing_tf32(precision):
        assert flags() == (precision == "tf32",) * 2
    assert flags() == before
    with pytest.raises(KeyError), allowing_tf32(precision):
        raise KeyError
    assert flags() == before
