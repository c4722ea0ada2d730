"""A client's losses and gradients on samples of its choice, with weights: durations, numbers, refusals."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from protocols.framework.compute import Batch, TrainRequest
from protocols.framework.objectives import Model, Parameters
from sim.core.client_training import DeviceCompute
from sim.learning.engine import Engine, Optimizer, Vector
from tests.learning.engines import drawn, generator, own_samples, plain_module, small
from tests.run.computes import BATCH_SIZE, COUNTS, HELD_BACK, initial, new_compute, new_data_engine, now
from tests.virtual_time import run_virtual

CLIENTS = range(len(COUNTS))
SAMPLES_OF = {"train": COUNTS, "validation": HELD_BACK}


def plain_losses(compute: DeviceCompute, of: Vector, x: Tensor, y: Tensor) -> Tensor:
    """Loss of each sample, as torch has it."""
    module = plain_module("logistic-regression", of.tensor())
    return nn.functional.cross_entropy(module(x), y, reduction="none").detach()


def plain_gradient(of: Vector, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    module = plain_module("logistic-regression", of.tensor())
    (nn.functional.cross_entropy(module(x), y, reduction="none") * weights).mean().backward()
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def some_weights(count: int) -> Tensor:
    return torch.rand(count, generator=generator(count)) * 2


def each_client(
    engine: Engine, on: str
) -> Iterator[tuple[DeviceCompute, tuple[Tensor, Tensor], Tensor | None]]:
    """The clients with samples in this role, these, and weights of them: none, and then some."""
    for client, count in enumerate(SAMPLES_OF[on]):
        for weights in (None, some_weights(count)) if count else ():
            yield new_compute(engine, client), own_samples(engine.data, client, on), weights


# --- numbers ---


@pytest.mark.parametrize("on", ["train", "validation"])
def test_reductions_on_all_samples_with_and_without_weights(on: str) -> None:
    async def main() -> None:
        for compute, samples, weights in each_client(new_data_engine(), on):
            of = initial(compute)
            expected = plain_losses(compute, of, *samples)
            wanted = expected if weights is None else expected * weights
            each: Any = await compute.loss(of, on, "none", weights)
            assert each.shape == tuple(wanted.shape)
            np.testing.assert_allclose(each.numpy(), wanted, rtol=1e-5)
            for reduction, value in (("mean", wanted.mean()), ("sum", wanted.sum())):
                got: Any = await compute.loss(of, on, reduction, weights)
                assert got.shape == ()
                assert float(got) == pytest.approx(float(value), rel=1e-5)

    run_virtual(main())


@pytest.mark.parametrize("on", ["train", "validation"])
def test_gradients_on_all_samples_are_those_of_the_loss(on: str) -> None:
    async def main() -> None:
        for compute, samples, weights in each_client(new_data_engine(), on):
            at = initial(compute)
            got: Any = await compute.gradient(at, on, weights)
            factors = torch.ones(len(samples[1])) if weights is None else weights
            expected = plain_gradient(at, *samples, factors)
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-6)

    run_virtual(main())


def test_a_batch_is_the_same_for_all_that_is_computed_on_it() -> None:
    """Which samples are in it is found out by losses: those of each on the batch are among those on all."""

    async def main() -> None:
        compute = new_compute()
        of, other = initial(compute), compute.engine.vector(torch.ones(15))
        x, y = own_samples(compute.engine.data, 0)
        everything, of_other = plain_losses(compute, of, x, y), plain_losses(compute, other, x, y)
        seen = []
        for _ in range(3):
            batch = compute.batch()
            assert batch.samples == BATCH_SIZE
            losses: Any = await compute.loss(of, batch, "none")
            apart = (losses.tensor()[:, None] - everything).abs()
            chosen = apart.argmin(dim=1)
            assert float(apart.min(dim=1).values.max()) < 1e-6
            seen.append(tuple(chosen.tolist()))
            again: Any = await compute.loss(other, batch, "none")
            np.testing.assert_allclose(again.numpy(), of_other[chosen], rtol=1e-4, atol=1e-6)
            assert float(await compute.loss(of, batch)) == pytest.approx(float(everything[chosen].mean()))

            weights = some_weights(BATCH_SIZE)
            gradient: Any = await compute.gradient(of, batch, weights)
            expected = plain_gradient(of, x[chosen], y[chosen], weights)
            np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-4, atol=1e-6)
            start, rate = initial(compute), 0.1
            trained: Any = await compute.train(
                TrainRequest(start, 3, learning_rate=rate, on=batch, weights=weights)
            )
            stepped = start.tensor()
            for _ in range(3):
                at = compute.engine.vector(stepped)
                stepped = stepped - rate * plain_gradient(at, x[chosen], y[chosen], weights)
            np.testing.assert_allclose(trained.numpy(), stepped, rtol=1e-4, atol=1e-6)
        assert len(set(seen)) == 3
        assert len({*seen[0], *seen[1]}) == 2 * BATCH_SIZE  # of one pass: none twice

    run_virtual(main())


def test_weights_of_a_fresh_batch_are_those_of_its_samples() -> None:
    """One-hot in turn: a step moves only if that sample is in its batch, and then by its gradient / B."""

    async def main() -> None:
        moved = []
        for sample in range(COUNTS[0]):
            compute = new_compute()
            start = initial(compute)
            weights = torch.zeros(COUNTS[0])
            weights[sample] = 1
            for verb in ("train", "gradient", "loss"):
                x, y = own_samples(compute.engine.data, 0)
                expected = plain_gradient(
                    start, x[sample : sample + 1], y[sample : sample + 1], torch.ones(1)
                )
                if verb == "train":
                    trained: Any = await compute.train(
                        TrainRequest(start, learning_rate=1.0, weights=weights)
                    )
                    got = start.numpy() - trained.numpy()
                elif verb == "gradient":
                    found: Any = await compute.gradient(start, "batch", weights)
                    got = found.numpy()
                else:
                    loss: Any = await compute.loss(start, "batch", "sum", weights)
                    alone = float(plain_losses(compute, start, x, y)[sample])
                    assert float(loss) == 0 or float(loss) == pytest.approx(alone, rel=1e-5)
                    moved.append((verb, float(loss) != 0))
                    continue
                hit = bool(abs(got).max() > 1e-6)
                moved.append((verb, hit))
                np.testing.assert_allclose(got, expected / BATCH_SIZE if hit else 0 * expected, atol=1e-6)
        for verb in ("train", "gradient", "loss"):
            assert sum(hit for name, hit in moved if name == verb) == BATCH_SIZE

    run_virtual(main())


def posterior(*losses: Tensor) -> tuple[Tensor, ...]:
    """Responsibilities of equally likely models: softmax of minus the losses, for each sample."""
    return tuple(torch.stack(losses).neg().softmax(dim=0).unbind(0))


def test_expectation_and_maximisation_of_all_clients_are_deferred_and_batched() -> None:
    """Losses of three models on the same samples, responsibilities of them, and a step with these weights.

    Equal to torch, one client and one model after the other; nothing is computed before it is read.
    """

    async def main() -> None:
        engine = new_data_engine()
        computes = [new_compute(engine, client, optimizer=Optimizer()) for client in CLIENTS]
        models = [engine.vector(small().initial(generator(seed + 3))) for seed in range(3)]
        await asyncio.gather(*[fit(engine, compute, models) for compute in computes])  # prepares `posterior`
        engine.flush()
        before = engine.statistics.jobs, engine.statistics.batches
        trained = await asyncio.gather(*[fit(engine, compute, models) for compute in computes])
        assert (engine.statistics.jobs, engine.statistics.batches) == before
        engine.flush()
        jobs, calls = engine.statistics.jobs - before[0], engine.statistics.batches - before[1]
        # Of each client 3 losses, 1 function and 3 trainings. Clients have different numbers of samples: a
        # call for the losses of each and one for the function of each. Client 2 has smaller batches, too.
        assert (jobs, calls) == (3 * 7, 3 + 3 + 2)
        for client, compute in enumerate(computes):
            x, y = own_samples(engine.data, client)
            losses = torch.stack([plain_losses(compute, model, x, y) for model in models])
            shares = torch.exp(-losses) / torch.exp(-losses).sum(dim=0)
            for number, (model, share) in enumerate(zip(models, shares, strict=True)):
                [chosen] = drawn(engine, client, 3 + number, 1, BATCH_SIZE)
                step = plain_gradient(model, x[chosen], y[chosen], share[chosen])
                expected = model.tensor() - 0.1 * step
                np.testing.assert_allclose(trained[client][number].numpy(), expected, rtol=1e-4, atol=1e-6)

    run_virtual(main())


async def fit(engine: Engine, compute: DeviceCompute, models: list[Vector]) -> list[Any]:
    losses: list[Any] = [await compute.loss(model, "train", "none") for model in models]
    shares = engine.apply(posterior, losses, {})
    return [
        await compute.train(TrainRequest(model, weights=share))
        for model, share in zip(models, shares, strict=True)
    ]


# --- durations, and what counts ---


def test_durations_are_those_of_the_samples() -> None:
    async def main() -> None:
        compute = new_compute()
        of, step, ends = initial(compute), 0.25, [0.0]

        async def took(job: Any) -> float:
            await job
            ends.append(now())
            return ends[-1] - ends[-2]

        batch = compute.batch()
        assert now() == 0
        assert await took(compute.loss(of, batch, "none")) == pytest.approx(step / 3)
        assert await took(compute.loss(of, "train", "none", torch.ones(10))) == pytest.approx(2.5 * step / 3)
        assert await took(compute.gradient(of, batch)) == step
        assert await took(compute.gradient(of, "batch", torch.ones(10))) == step
        assert await took(compute.gradient(of, "train")) == pytest.approx(2.5 * step)
        assert await took(compute.gradient(of, "validation")) == pytest.approx(1.25 * step)
        assert await took(compute.train(TrainRequest(of, 3, on=batch))) == pytest.approx(3 * step)
        assert (compute.training_steps, compute.gradients) == (3, 4)
        assert compute.samples_seen == 3 * 4 + 4 + 4 + 10 + 5

    run_virtual(main())


def test_batches_of_its_own_choice_change_no_others() -> None:
    async def main() -> None:
        plain, choosy = new_compute(), new_compute()
        for compute in (plain, choosy):
            if compute is choosy:
                compute.batch()
                await compute.gradient(initial(compute), compute.batch())
                await compute.loss(initial(compute), compute.batch(), "none")
        for verb in ("gradient", "loss"):
            values = [await getattr(compute, verb)(initial(compute), "batch") for compute in (plain, choosy)]
            np.testing.assert_array_equal(values[0].numpy(), values[1].numpy())

    run_virtual(main())


# --- mistakes ---


@pytest.mark.parametrize(
    ("on", "weights", "message"),
    [
        ("train", torch.ones(4), r"each of the 10 samples of on='train', not 4"),
        ("batch", torch.ones(4), r"each of the 10 training samples of the client, not 4"),
        ("validation", [1.0] * 10, r"each of the 5 samples"),
        ("own", np.ones(10), r"each of the 4 samples"),
        ("train", 2.0, "not a number"),
        ("everything", None, '`on` must be "batch", "train", "validation" or a result'),
        ("other's", None, "this batch belongs to client 1; use one from batch.. of client 0"),
    ],
)
@pytest.mark.parametrize("verb", ["gradient", "loss"])
def test_samples_and_weights_that_cannot_be(verb: str, on: Any, weights: Any, message: str) -> None:
    async def main() -> None:
        compute = new_compute()
        where = {"own": compute.batch(), "other's": Batch(1, 0, 4)}.get(on, on)
        with pytest.raises(ValueError, match=message):
            await getattr(compute, verb)(initial(compute), on=where, weights=weights)
        assert now() == 0

    run_virtual(main())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "train"}, "for training, `on` must be .*, not 'train'"),
        ({"weights": [1.0, 2.0]}, "each of the 10 training samples of the client, not 2"),
        ({"on": Batch(2, 0, 3)}, "this batch belongs to client 2"),
    ],
)
def test_training_that_cannot_be(options: dict[str, Any], message: str) -> None:
    async def main() -> None:
        compute = new_compute()
        with pytest.raises(ValueError, match=message):
            await compute.train(TrainRequest(initial(compute), **options))
        assert (now(), compute.training_steps) == (0, 0)

    run_virtual(main())


@dataclass(frozen=True)
class Whole:
    """An objective that is no mean over samples."""

    views: int = 1

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        return model.forward(parameters, x).square().sum().sqrt()


def test_an_objective_without_a_loss_of_each_sample_is_refused() -> None:
    async def main() -> None:
        compute = new_compute()
        compute.settings = replace(compute.settings, objective=Whole())
        of, weights = initial(compute), torch.ones(10)
        for job in (
            compute.loss(of, "train", "none"),
            compute.loss(of, "train", "mean", weights),
            compute.gradient(of, "train", weights),
            compute.train(TrainRequest(of, weights=weights)),
        ):
            with pytest.raises(ValueError, match="Whole has no method each"):
                await job
        with pytest.raises(ValueError, match='reduction must be "mean", "sum" or "none", not \'max\''):
            await compute.loss(of, "train", "max")  # type: ignore[arg-type]

    run_virtual(main())
