"""A client's computing: exact virtual durations, jobs in a row, and nothing left of a canceled one."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from protocols.framework.compute import TrainRequest
from sim.core import training_history as taken_module
from sim.core.client_training import DeviceCompute
from sim.learning.engine import Optimizer
from sim.world.devices.device import CostModel
from tests.learning.engines import client_data, new_engine, small
from tests.run.computes import (
    BATCH_SIZE,
    gradient,
    initial,
    new_compute,
    new_data_engine,
    now,
    numbers_of,
    train,
)
from tests.virtual_time import run_virtual

MOMENTUM = Optimizer("sgd", momentum=0.9)
ADAM = Optimizer("adam")
pytestmark = pytest.mark.usefixtures("no_garbage_collector")


# --- durations ---


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        ("train", 3 * 0.25),
        ("gradient", 0.25),
        ("batch", 0.25 * (1 / 3)),
        ("all", 0.25 * (2.5 * (1 / 3))),
        ("held back", 0.25 * (1.25 * (1 / 3))),
    ],
)
def test_durations_are_exact(job: str, seconds: float) -> None:
    assert run_virtual(duration(job)) == seconds
    assert run_virtual(duration(job, factor=4.0)) == 4 * seconds


async def duration(job: str, client: int = 0, **options: Any) -> float:
    """The virtual time at which the first job of a client is done."""
    compute = new_compute(client=client, **options)
    match job:
        case "train":
            await train(compute, steps=3)
        case "gradient":
            await gradient(compute, initial(compute))
        case _:
            on = {"batch": "batch", "all": "train", "held back": "validation"}[job]
            await compute.loss(initial(compute), on)
    assert compute.device.busy_s == now()
    return now()


def test_durations_by_flops() -> None:
    """Samples times the model's FLOPs, over the device's speed; 12 weights are 24 FLOPs forward."""
    speed = 1e6
    forward, training = small().forward_flops_per_sample, small().training_flops_per_sample
    assert forward == 24
    cost = CostModel(flops_per_s=speed)
    assert run_virtual(duration("train", cost=cost)) == 3 * BATCH_SIZE * training / speed
    assert run_virtual(duration("gradient", cost=cost)) == BATCH_SIZE * training / speed
    assert run_virtual(duration("batch", cost=cost)) == BATCH_SIZE * forward / speed
    assert run_virtual(duration("all", cost=cost)) == 10 * forward / speed
    assert run_virtual(duration("held back", cost=cost)) == 5 * forward / speed


def test_a_small_client_draws_small_batches() -> None:
    """Client 2 has 3 samples: a step is a batch of 3, which costs 3 samples' FLOPs or one step's time."""
    cost = CostModel(flops_per_s=1e6)
    assert run_virtual(duration("train", client=2, cost=cost)) == 9 * small().training_flops_per_sample / 1e6
    assert run_virtual(duration("train", client=2)) == 0.75
    assert run_virtual(duration("all", client=2)) == 0.25 * (1 / 3)


def test_replacement_draws_full_batches() -> None:
    async def main() -> None:
        compute = new_compute(client=2, sampling="replacement")
        assert (compute.samples, compute.batch_size, compute.steps_per_epoch) == (3, 4, 1)
        (await train(compute)).numpy()
        compute = new_compute(client=1)
        assert (compute.samples, compute.batch_size, compute.steps_per_epoch) == (12, 4, 3)

    run_virtual(main())


def test_jobs_of_a_client_are_done_one_after_the_other() -> None:
    async def main() -> list[tuple[str, float]]:
        engine = new_data_engine()
        first, second = new_compute(engine, 0), new_compute(engine, 1)
        log: list[tuple[str, float]] = []

        async def record(name: str, job: Any) -> None:
            await job
            log.append((name, now()))

        await asyncio.gather(
            record("0 trains", train(first, steps=2)),
            record("0 gradient", first.gradient(initial(first))),
            record("1 trains", train(second, steps=4)),
            record("0 trains again", train(first, steps=2)),
        )
        return log

    expected = [("0 trains", 0.5), ("0 gradient", 0.75), ("1 trains", 1.0), ("0 trains again", 1.25)]
    assert run_virtual(main()) == expected


# --- numbers ---


def test_jobs_are_deferred_and_independent_of_other_clients() -> None:
    async def alone() -> np.ndarray:
        compute = new_compute(client=1)
        return (await train(compute, steps=4)).numpy()

    async def together() -> np.ndarray:
        engine = new_data_engine()
        computes = [new_compute(engine, client) for client in range(3)]
        await computes[1].loss(initial(computes[1]), "batch")
        await computes[1].gradient(initial(computes[1]))
        trained = await asyncio.gather(*(train(compute, steps=4) for compute in computes))
        assert engine.statistics.jobs == 0
        return trained[1].numpy()

    np.testing.assert_allclose(numbers_of(together()), numbers_of(alone()), rtol=1e-6)


@pytest.mark.parametrize("job", ["train", "gradient", "loss"])
def test_jobs_under_way_at_the_same_time_share_a_call(job: str) -> None:
    """Each client reads what its own job resulted in, a little later than another; one call did all."""

    async def result(compute: DeviceCompute) -> float:
        match job:
            case "train":
                found = (await train(compute)).norm()
            case "gradient":
                found = (await gradient(compute, initial(compute))).norm()
            case _:
                found = await compute.loss(initial(compute), "batch")
        return float(found)

    async def main() -> None:
        engine = new_data_engine()
        computes = [new_compute(engine, client, factor=1 + 0.1 * client) for client in range(2)]
        results = await asyncio.gather(*map(result, computes))
        calls = 1 if job == "loss" else 1 + 2  # each norm is wanted when nobody else's can be known
        assert engine.statistics.batches == calls
        assert engine.statistics.jobs == 2 * (1 if job == "loss" else 2)
        for client, found in enumerate(results):
            assert found == pytest.approx(await result(new_compute(client=client)), rel=1e-5)

    run_virtual(main())


def test_what_changes_while_a_job_is_under_way_has_it_done_again() -> None:
    """The learning rate is that of its end; what was submitted at its beginning is never computed."""

    async def main() -> None:
        compute = new_compute()
        job = asyncio.ensure_future(train(compute))
        await asyncio.sleep(0.1)
        compute.change_learning_rate(0.3)
        changed = (await job).numpy()
        assert compute.engine.statistics.jobs == 1
        compute = new_compute()
        assert (await train(compute, learning_rate=0.3)).numpy().tobytes() == changed.tobytes()

    run_virtual(main())


def test_draws_go_on_from_job_to_job() -> None:
    async def main() -> None:
        compute = new_compute()
        whole = (await train(compute, steps=4)).numpy()
        compute = new_compute()
        parts = initial(compute)
        for steps in (1, 2, 1):
            parts = await train(compute, parts, steps)
        np.testing.assert_allclose(parts.numpy(), whole, rtol=1e-5)
        again = (await train(compute, steps=4)).numpy()
        assert abs(again - whole).max() > 1e-4  # other batches

        at = initial(compute)
        gradients = [(await gradient(compute, at)).numpy() for _ in range(3)]
        losses = [float(await compute.loss(at, "batch")) for _ in range(3)]
        assert len({tuple(each) for each in gradients}) == len(set(losses)) == 3

    run_virtual(main())


def test_learning_rate_and_pulls_are_those_of_the_call() -> None:
    """A list that the caller changes while the job runs is not looked at again."""

    async def main() -> None:
        compute = new_compute()
        start = initial(compute)
        plain = (await train(compute, start)).numpy() - start.numpy()
        compute = new_compute()
        start = initial(compute)
        faster = (await train(compute, start, learning_rate=0.2)).numpy() - start.numpy()
        np.testing.assert_allclose(faster, 2 * plain, rtol=1e-4, atol=1e-7)

        compute = new_compute()
        start, anchor = initial(compute), compute.engine.vector(torch.ones(15))
        proximal = [(0.25, anchor), (compute.engine.dot(anchor, anchor) / 60, anchor)]
        job = asyncio.ensure_future(train(compute, start, proximal=proximal))
        await asyncio.sleep(0.1)
        proximal.clear()
        pulled = (await job).numpy() - start.numpy()
        np.testing.assert_allclose(pulled, plain - 0.1 * 0.5 * (start.numpy() - 1), rtol=1e-4, atol=1e-6)

    run_virtual(main())


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM], ids=["momentum", "adam"])
def test_the_optimizer_is_kept_between_jobs_and_forgotten_on_demand(optimizer: Optimizer) -> None:
    async def steps(*jobs: tuple[int, bool], forget_before_last: bool = False) -> np.ndarray:
        compute = new_compute(optimizer=optimizer)
        params = initial(compute)
        for number, (count, fresh) in enumerate(jobs):
            if forget_before_last and number == len(jobs) - 1:
                compute.forget()
            params = await train(compute, params, count, fresh_optimizer=fresh)
        return params.numpy()

    whole = numbers_of(steps((4, False)))
    np.testing.assert_allclose(numbers_of(steps((2, False), (2, False))), whole, rtol=1e-5, atol=1e-6)
    fresh = numbers_of(steps((2, False), (2, True)))
    assert abs(fresh - whole).max() > 1e-3
    forgotten = numbers_of(steps((2, False), (2, False), forget_before_last=True))
    assert forgotten.tobytes() == fresh.tobytes()


def test_a_queued_job_continues_from_the_optimizer_that_the_one_before_it_leaves() -> None:
    async def main() -> None:
        engine = new_data_engine()
        other = engine.vector(torch.ones(15))
        serial, queued, plain = (
            new_compute(engine, optimizer=optimizer) for optimizer in (MOMENTUM, MOMENTUM, Optimizer())
        )
        expected = [await train(serial, steps=2), await train(serial, other, 2)]
        without = [await train(plain, steps=2), await train(plain, other, 2)]
        got = await asyncio.gather(train(queued, steps=2), train(queued, other, 2))
        for one, wanted in zip(got, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), wanted.numpy(), rtol=1e-6)
        assert abs((got[1] - without[1]).numpy()).max() > 1e-2

    run_virtual(main())


@pytest.mark.parametrize("optimizer", [Optimizer(), MOMENTUM, ADAM], ids=["sgd", "momentum", "adam"])
def test_what_a_client_would_be_alone(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same batches and start, but no proximal terms and merges; canceled jobs do not count."""
    monkeypatch.setattr(taken_module, "_STEPS_AT_ONCE", 3)

    async def main() -> None:
        lonely, social = (
            new_compute(client=1, optimizer=optimizer),
            new_compute(client=1, optimizer=optimizer),
        )
        other = new_data_engine()
        assert social.train_alone(other) is None
        expected = await train(lonely, steps=7)
        params = await train(social, steps=2, proximal=[(0.5, 2 * initial(social))])
        cancelled = asyncio.ensure_future(train(social, steps=4))
        await asyncio.sleep(0.1)
        cancelled.cancel()
        await train(social, 0.5 * params, 5)
        alone = social.train_alone(other)
        assert alone is not None
        assert alone.engine is other
        np.testing.assert_allclose(alone.numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)

    run_virtual(main())


@pytest.mark.parametrize("how", ["fresh", "forgotten"])
@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM], ids=["momentum", "adam"])
def test_alone_the_optimizer_begins_anew_where_it_did(
    optimizer: Optimizer, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a job of more steps than are trained at once, after which it continues from its own moments."""
    monkeypatch.setattr(taken_module, "_STEPS_AT_ONCE", 3)

    async def trained(compute: DeviceCompute, anew: bool, social: bool) -> Any:
        params = initial(compute)
        for job, steps in enumerate((4, 5, 2)):
            begins = anew and job == 1
            if begins and how == "forgotten":
                compute.forget()
            start, proximal = (0.5 * params, [(0.5, 2 * params)]) if social else (params, ())
            params = await train(
                compute, start, steps, proximal=proximal, fresh_optimizer=begins and how == "fresh"
            )
        return params

    async def main() -> None:
        social = new_compute(client=1, optimizer=optimizer)
        await trained(social, True, True)
        alone = social.train_alone(new_data_engine())
        assert alone is not None
        anew, kept = [
            (await trained(new_compute(client=1, optimizer=optimizer), anew, False)).numpy()
            for anew in (True, False)
        ]
        np.testing.assert_allclose(alone.numpy(), anew, rtol=1e-5, atol=1e-7)
        assert abs(anew - kept).max() > 1e-3

    run_virtual(main())


# --- canceled jobs, and mistakes ---


@pytest.mark.parametrize("optimizer", [Optimizer(), MOMENTUM, ADAM], ids=["sgd", "momentum", "adam"])
@pytest.mark.parametrize("how", ["task", "crash"])
def test_a_cancelled_job_leaves_nothing_behind(optimizer: Optimizer, how: str) -> None:
    """No pending node, no row, no state: the next job is the one that would have been done instead."""

    async def main() -> None:
        compute = new_compute(optimizer=optimizer)
        params = await train(compute, steps=2)
        params.numpy()
        engine = compute.engine
        rows, jobs, updates = engine.rows_held, engine.statistics.jobs, engine.statistics.updates
        for job in (
            train(compute, params, 3, proximal=[(0.5, 2 * params)]),
            train(compute, params, 3, fresh_optimizer=True),
            compute.gradient(2 * params),
            compute.loss(params, "batch"),
        ):
            task = asyncio.ensure_future(job)
            await asyncio.sleep(0.05)
            if how == "task":
                task.cancel()
            else:
                compute.device.set_down()
            with pytest.raises(asyncio.CancelledError):
                await task
            compute.device.set_up()
            del task, job
        engine.flush()
        assert engine.rows_held == rows
        assert (engine.statistics.jobs, engine.statistics.updates) == (jobs, updates)

        undisturbed = new_compute(optimizer=optimizer)
        expected = await train(undisturbed, await train(undisturbed, steps=2), 3)
        got = await train(compute, params, 3)
        assert got.numpy().tobytes() == expected.numpy().tobytes()
        assert (await gradient(compute, params)).numpy() == pytest.approx(
            (await gradient(undisturbed, undisturbed.engine.vector(params.tensor()))).numpy()
        )

    run_virtual(main())


@pytest.mark.parametrize(
    ("client", "on", "message"),
    [(0, "test", "batch.*train.*validation.*'test'"), (1, "validation", "client 1 .*validation_share")],
)
def test_losses_that_cannot_be_had(client: int, on: str, message: str) -> None:
    async def main() -> None:
        compute = new_compute(client=client)
        with pytest.raises(ValueError, match=message):
            await compute.loss(initial(compute), on)
        assert now() == 0

    run_virtual(main())


@pytest.mark.parametrize(("steps", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError)])
def test_steps_that_are_none(steps: Any, error: type[Exception]) -> None:
    async def main() -> None:
        with pytest.raises(error):
            await train(new_compute(), steps=steps)

    run_virtual(main())


@pytest.mark.parametrize("sampling", ["shuffled", "replacement"])
def test_a_client_without_samples_is_refused(sampling: str) -> None:
    """Its batches would be drawn from the next client's samples."""

    async def main() -> None:
        with pytest.raises(ValueError, match="client 1 has no training samples"):
            new_compute(new_engine(client_data([3, 0, 3])), 1, sampling=sampling)

    run_virtual(main())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([float("nan")] * 10, "weights must be 0 or more and finite, not nan"),
        ([1.0] * 9 + [-1.0], "weights must be 0 or more and finite, not -1.0"),
        ("heavy", "weights must be a handle, or an array of numbers, not 'heavy'"),
        ([1.0] * 9, "weights must be one number for each of the 10 training samples of the client, not 9"),
    ],
)
def test_weights_that_are_none_are_refused_before_any_time_passes(weights: Any, message: str) -> None:
    async def scenario() -> None:
        compute = new_compute()
        with pytest.raises(ValueError, match=message):
            await compute.train(TrainRequest(compute.initial(), weights=weights))
        assert now() == 0.0

    run_virtual(scenario())
