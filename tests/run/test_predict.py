"""Outputs of a client's models on samples that its method has: numbers, durations, refusals."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sim.learning.engine import Engine
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.learning.engines import CLASSES, SHAPES, client_data, generator, new_engine, numbers, plain_module
from tests.own.data_worlds import built as own_world
from tests.protocols.decoupled import own_data
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, ran
from tests.run.computes import BATCH_SIZE, initial, new_compute, now
from tests.simulation.test_language_models import world
from tests.virtual_time import run_virtual

MODELS = ("logistic-regression", "mlp", "cnn", "resnet9")


def engine_of(model: str, **options: Any) -> Engine:
    return new_engine(client_data(shape=SHAPES[model]), **options)


@pytest.mark.parametrize("model", MODELS)
def test_the_outputs_are_those_of_torch(model: str) -> None:
    """Of three clients whose jobs are computed together, on samples of each one's own."""
    engine = engine_of(model)

    async def main() -> None:
        computes = [new_compute(engine, client, model=model) for client in range(3)]
        samples = [torch.randn(7, *SHAPES[model], generator=generator(client)) for client in range(3)]
        pairs = list(zip(computes, samples, strict=True))
        found = [await compute.predict(initial(compute), x) for compute, x in pairs]
        before = engine.statistics.batches
        for (compute, x), logits in zip(pairs, found, strict=True):
            module = plain_module(model, initial(compute).tensor())
            assert logits.shape == (7 * CLASSES,)
            expected = module(x).detach().flatten()
            np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-4, atol=1e-5)
        assert engine.statistics.batches == before + 1

    run_virtual(main())


def test_a_handle_on_the_samples_and_arrays_of_any_kind_do_as_well() -> None:
    async def main() -> None:
        compute = new_compute()
        x = np.arange(12.0).reshape(3, 4)
        first: Any = await compute.predict(initial(compute), x)
        for other in (x.tolist(), torch.tensor(x), compute.engine.vector(torch.tensor(x.ravel()))):
            assert (await compute.predict(initial(compute), other)).numpy().tolist() == first.numpy().tolist()

    run_virtual(main())


def test_more_samples_than_go_in_one_piece() -> None:
    async def main() -> None:
        compute = new_compute()
        x = torch.randn(1100, 4, generator=generator())
        found: Any = await compute.predict(initial(compute), x)
        module = plain_module("logistic-regression", initial(compute).tensor())
        np.testing.assert_allclose(found.numpy(), module(x).detach().flatten(), rtol=1e-4, atol=1e-5)

    run_virtual(main())


def test_it_takes_the_time_of_a_loss_on_so_many_samples() -> None:
    async def main() -> None:
        compute = new_compute()  # whose training step, on a batch, takes 0.25 s
        await compute.predict(initial(compute), np.zeros((3 * BATCH_SIZE, 4)))
        assert now() == pytest.approx(3 * 0.25 / 3)

    run_virtual(main())


def test_the_samples_are_those_of_the_call() -> None:
    async def main() -> None:
        compute = new_compute()
        x = torch.ones(2, 4)
        expected: Any = await compute.predict(initial(compute), x.clone())
        found: Any = await compute.predict(initial(compute), x)
        x.zero_()
        assert found.numpy().tolist() == expected.numpy().tolist()

    run_virtual(main())


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (
            np.zeros(4),
            r"inputs have shape \[4\]; must be \[B, 4\], B at least 1, or a handle on B x 4 numbers",
        ),
        (np.zeros((2, 5)), r"inputs have shape \[2, 5\]; must be"),
        (np.zeros((0, 4)), r"inputs have shape \[0, 4\]; must be"),
        (np.full((1, 4), 1e39), "must be finite"),
        (np.full((1, 4), np.nan), "must be finite"),
    ],
)
def test_what_are_no_samples_is_refused(inputs: np.ndarray, problem: str) -> None:
    async def main() -> None:
        compute = new_compute()
        with pytest.raises(ValueError, match=problem):
            await compute.predict(initial(compute), inputs)
        assert now() == 0

    run_virtual(main())


def test_handles_that_hold_no_samples_are_refused() -> None:
    async def main() -> None:
        compute = new_compute()
        for handle in (compute.engine.vector(numbers(0, 6)), compute.engine.scalar(1.0)):
            with pytest.raises(ValueError, match="or a handle on B x 4 numbers"):
                await compute.predict(initial(compute), handle)
        point = new_compute(engine_of("point"), model="point")
        with pytest.raises(ValueError, match="models of this task have no outputs"):
            await point.predict(initial(point), np.zeros((1, 4)))

    run_virtual(main())


# --- a client's own samples ---


def test_a_client_has_its_own_samples() -> None:
    with ran(DIGITS) as simulation:
        for index in range(6):
            x, y = own_data(simulation, index)
            assert learner(simulation, index).inputs().numpy().tolist() == x.flatten().tolist()
            assert learner(simulation, index).labels().numpy().tolist() == y.tolist()


def test_labels_of_a_regression_are_its_targets(tmp_path: Path) -> None:
    code = "def load():\n    x = np.arange(60.0).reshape(30, 2)\n    return x, x @ [[2.0, 0], [-1, 3]]\n"
    keys = 'name = "mine.py:load"\npartition = { kind = "iid", samples_per_client = 8 }\ntask = "regression"'
    simulation = own_world(tmp_path, keys, code=code)
    _, y = own_data(simulation, 1)
    assert y.shape == (simulation.clients[1].compute.samples, 2)
    assert simulation.clients[1].compute.labels().numpy().tolist() == y.flatten().tolist()


def test_samples_without_numbers_are_refused(tmp_path: Path) -> None:
    texts = load_scenario(world(tmp_path))
    with ran(QUADRATIC) as points, closing(build(texts)) as adapters:
        lacks = "have neither classes nor targets", "are not floating-point numbers"
        for simulation, lack in zip((points, adapters), lacks, strict=True):
            compute = simulation.clients[0].compute
            for what, call in {"inputs": compute.inputs, "labels": compute.labels}.items():
                problem = f"{what}: samples of this task {lack}"
                with pytest.raises(ValueError, match=problem):
                    call()


# --- what a method knows of its model ---


def test_a_client_knows_its_number_and_the_layout_of_its_vectors() -> None:
    with ran(DIGITS, "model.name=mlp", "model.hidden=[7]") as simulation:
        client = learner(simulation, 3)
        assert (client.name, client.context.number) == ("client-3", 3)
        model = client.context.model
        assert model is not None and model.input_shape == (64,)
        layout = [(part.name, part.shape, part.offset) for part in model.slices]
        assert layout == [
            ("1.weight", (7, 64), 0),
            ("1.bias", (7,), 448),
            ("3.weight", (10, 7), 455),
            ("3.bias", (10,), 525),
        ]
        assert client.params.shape == (535,)
        assert np.array_equal(client.part(client.params, "3.weight").numpy(), client.params.numpy()[455:525])


def test_a_server_knows_the_layout_of_the_clients_vectors() -> None:
    with ran(QUADRATIC, "protocol.name=fedavg", "protocol.local_steps=1") as simulation:
        server = simulation.servers[0].actor
        assert server is not None and server.context.number is None
        assert server.context.model is not None
        assert sum(part.numel for part in server.context.model.slices) == server.params.shape[0]
