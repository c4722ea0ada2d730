"""Devices: durations, slowdowns, the queue, cancellation, and the accounts of a device's time."""

import asyncio
from contextlib import suppress
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.clock import VirtualLoop
from sim.kernel.random import RandomStream
from sim.world.devices.device import CostModel, Device, DeviceDown
from sim.world.devices.slowness import Slowness, random_slow_times, single_slow_time
from sim.world.timeline import State, Timeline
from tests.virtual_time import run_virtual


def new_device(slowness: Slowness | None = None, *, up: bool = True, limit: int = 1_000) -> Device:
    return Device(asyncio.get_running_loop(), slowness, up=up, timeline=Timeline(limit))


async def work(device: Device, seconds: float) -> None:
    await device.run(seconds)


def now() -> float:
    return asyncio.get_running_loop().time()


def accounts(device: Device) -> dict[str, float]:
    return {"busy": device.busy_s, "waiting": device.waiting_s, "down": device.down_s}


# --- cost ---


def test_cost_by_steps_or_by_flops() -> None:
    assert CostModel(step_time_s=0.25).seconds(steps=10, flops=1e9) == 2.5
    assert CostModel(step_time_s=0.25).seconds(steps=0.5) == 0.125
    assert CostModel(flops_per_s=4e9).seconds(steps=10, flops=1e9) == 0.25
    assert CostModel(flops_per_s=4e9).seconds(flops=2e9) == 0.5


@pytest.mark.parametrize(
    ("cost", "job", "missing"),
    [
        (CostModel(step_time_s=1.0), {"flops": 1e9}, "steps"),
        (CostModel(flops_per_s=1e9), {"steps": 1}, "flops"),
        (CostModel(step_time_s=1.0), {"steps": 0}, "steps"),
        (CostModel(flops_per_s=1e9), {"flops": 0}, "flops"),
    ],
)
def test_a_missing_duration_is_an_error_and_never_0(
    cost: CostModel, job: dict[str, float], missing: str
) -> None:
    with pytest.raises(ValueError, match=missing):
        cost.seconds(**job)


# --- slowness ---


def test_a_constant_factor() -> None:
    assert Slowness().finish_s(3.0, 2.0) == 5.0
    assert Slowness(5.0).finish_s(3.0, 2.0) == 13.0


@pytest.mark.parametrize(
    ("start_s", "work_s", "finish_s"),
    [
        (0.0, 10.0, 10.0),  # ends where the slowdown begins
        (8.0, 3.0, 14.0),  # 2 s of work before it, 1 s in it
        (9.0, 8.0, 24.5),  # 1 s before it, 2.5 s in it, 4.5 s after it
        (12.0, 2.0, 20.0),  # exactly the rest of it
        (20.0, 1.0, 21.0),  # its end does not belong to it
        (10.0, 0.0, 10.0),
    ],
)
def test_the_finish_is_integrated_over_a_scheduled_slowdown(
    start_s: float, work_s: float, finish_s: float
) -> None:
    assert Slowness(1.0, single_slow_time(10.0, 20.0, 4.0)).finish_s(start_s, work_s) == finish_s


def test_slowdowns_in_force_together_multiply() -> None:
    # 1 until 2 s, 4 until 4 s, 2 until 6 s, 1/2 from there on
    slowness = Slowness(0.5, single_slow_time(0.0, 4.0, 2.0), single_slow_time(2.0, 6.0, 4.0))
    assert slowness.finish_s(0.0, 5.5) == 7.0


def test_a_slowdown_without_an_end() -> None:
    assert Slowness(1.0, single_slow_time(1.0, inf, 3.0)).finish_s(0.0, 2.0) == 4.0


def test_a_job_that_was_cancelled_early_does_not_use_up_the_slowdowns_ahead() -> None:
    slowness = Slowness(1.0, single_slow_time(10.0, 20.0, 4.0))
    assert slowness.finish_s(0.0, 100.0) == 107.5
    assert slowness.finish_s(8.0, 3.0) == 14.0


def test_transient_episodes_come_from_the_draws() -> None:
    draws = RandomStream(1, "slowdown", 0)
    begin_s = draws.exponential() * 10.0
    end_s = begin_s + draws.exponential() * 2.0
    slowness = Slowness(1.0, random_slow_times(10.0, 2.0, 4.0, RandomStream(1, "slowdown", 0)))
    assert slowness.finish_s(0.0, begin_s) == begin_s
    in_episode_s = (end_s - begin_s) / 8
    assert slowness.finish_s(begin_s, in_episode_s) == begin_s + in_episode_s * 4
    assert slowness.finish_s(begin_s, (end_s - begin_s) / 4) == end_s


works_s = st.floats(0.0, 30.0)
slowdowns = st.builds(
    lambda start_s, length_s, factor: (start_s, start_s + length_s, factor),
    st.floats(0.0, 50.0),
    st.floats(0.1, 50.0),
    st.floats(0.2, 5.0),
)


@given(st.lists(slowdowns, max_size=4), st.booleans(), st.floats(0.0, 40.0), works_s, works_s)
def test_a_job_cut_in_two_ends_when_the_whole_job_ends(
    scheduled: list[tuple[float, float, float]],
    transient: bool,
    start_s: float,
    first_s: float,
    second_s: float,
) -> None:
    def slowness() -> Slowness:
        random = [random_slow_times(7.0, 3.0, 6.0, RandomStream(3, "device"))] if transient else []
        return Slowness(2.0, *[single_slow_time(*each) for each in scheduled], *random)

    parts = slowness()
    cut_s = parts.finish_s(start_s, first_s)
    assert parts.finish_s(cut_s, second_s) == pytest.approx(slowness().finish_s(start_s, first_s + second_s))


# --- the queue ---


def test_jobs_are_done_one_after_the_other_first_come_first_served() -> None:
    async def scenario() -> list[tuple[str, float]]:
        device, log = new_device(), []

        async def job(name: str, at_s: float, seconds: float) -> None:
            await asyncio.sleep(at_s)
            await device.run(seconds)
            log.append((name, now()))

        async with asyncio.TaskGroup() as group:
            group.create_task(job("a", 0.0, 2.0))
            group.create_task(job("b", 0.0, 1.0))
            group.create_task(job("late", 5.0, 0.5))
            group.create_task(job("c", 1.0, 0.25))
        assert accounts(device) == {"busy": 3.75, "waiting": 1.75, "down": 0.0}
        assert device.intervals() == [(0.0, 3.25, "busy"), (5.0, 5.5, "busy")]
        return log

    assert run_virtual(scenario()) == [("a", 2.0), ("b", 3.0), ("c", 3.25), ("late", 5.5)]


def test_a_slow_device_takes_its_time() -> None:
    async def scenario() -> None:
        device = new_device(Slowness(1.0, single_slow_time(1.0, 3.0, 2.0)))
        await device.run(1.5)
        assert now() == 2.0
        await device.run(1.5)
        assert now() == 4.0
        assert device.busy_s == 4.0

    run_virtual(scenario())


@pytest.mark.parametrize("seconds", [-1.0, inf, nan])
def test_an_impossible_duration_is_refused(seconds: float) -> None:
    async def scenario() -> None:
        device = new_device()
        with pytest.raises(ValueError, match="nominal seconds"):
            await device.run(seconds)
        assert device.state == "waiting"

    run_virtual(scenario())


def test_a_cancelled_job_frees_the_device_at_once() -> None:
    async def scenario() -> None:
        device = new_device()
        running, queued = (asyncio.create_task(work(device, seconds)) for seconds in (10.0, 1.0))
        await asyncio.sleep(4.0)
        running.cancel()
        await queued
        assert now() == 5.0
        assert running.cancelled()
        assert accounts(device) == {"busy": 5.0, "waiting": 0.0, "down": 0.0}
        await device.run(8.0)  # runs through the time at which the canceled job would have ended
        assert now() == 13.0
        assert accounts(device) == {"busy": 13.0, "waiting": 0.0, "down": 0.0}

    run_virtual(scenario())


def test_a_job_cancelled_in_the_queue_is_passed_over() -> None:
    async def scenario() -> None:
        device = new_device()
        jobs = [asyncio.create_task(work(device, seconds)) for seconds in (2.0, 10.0, 1.0)]
        await asyncio.sleep(1.0)
        assert repr(device) == "<Device busy since 0 s, 2 jobs queued>"
        jobs[1].cancel()
        await asyncio.sleep(0.0)
        assert repr(device) == "<Device busy since 0 s, 1 job queued>"
        await jobs[2]
        assert now() == 3.0
        assert device.busy_s == 3.0

    run_virtual(scenario())


def test_a_cancellation_in_the_instant_of_completion_disturbs_nothing() -> None:
    async def scenario() -> None:
        device = new_device()
        first = asyncio.create_task(work(device, 2.0))
        asyncio.get_running_loop().call_at(2.0, first.cancel)  # before the job's timer, which is younger
        second = asyncio.create_task(work(device, 1.0))
        third = asyncio.create_task(work(device, 1.0))
        await asyncio.sleep(0.0)
        asyncio.get_running_loop().call_at(3.0, second.cancel)  # after the job's timer
        await third
        assert first.cancelled()
        assert (now(), device.busy_s) == (4.0, 4.0)

    run_virtual(scenario())


# --- up and down ---


def test_going_down_cancels_every_job_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        device = new_device()
        jobs = [asyncio.create_task(work(device, 4.0)) for _ in range(3)]
        await asyncio.sleep(1.0)
        device.set_down()
        assert (device.state, device.busy_s) == ("down", 1.0)
        device.set_up()
        new = asyncio.create_task(
            work(device, 2.0)
        )  # back in the same instant: the old jobs do not hold it up
        await asyncio.wait(jobs)
        assert (now(), [job.cancelled() for job in jobs]) == (1.0, [True] * 3)
        await new
        assert now() == 3.0
        assert accounts(device) == {"busy": 3.0, "waiting": 0.0, "down": 0.0}

    run_virtual(scenario())


def test_going_down_leaves_no_timer_for_which_the_loop_would_run_on(loop: VirtualLoop) -> None:
    device = Device(loop)
    jobs = [device.run(10.0), device.run(1.0)]
    loop.call_at(3.0, device.set_down)
    loop.run_forever()
    assert (loop.time(), [job.cancelled() for job in jobs]) == (3.0, [True, True])


def test_a_device_that_is_down_takes_no_work() -> None:
    async def scenario() -> None:
        device = new_device(up=False)
        with pytest.raises(DeviceDown):
            await device.run(1.0)
        await asyncio.sleep(3.0)
        device.set_up()
        await device.run(1.0)
        assert now() == 4.0

    run_virtual(scenario())


def test_time_is_split_into_busy_waiting_and_down_as_of_now() -> None:
    async def scenario() -> None:
        device = new_device(up=False)
        await asyncio.sleep(2.0)
        assert (accounts(device), device.state) == ({"busy": 0.0, "waiting": 0.0, "down": 2.0}, "down")
        device.set_up()
        device.set_up()
        await asyncio.sleep(1.0)
        job = asyncio.create_task(work(device, 4.0))
        await asyncio.sleep(3.0)
        assert (accounts(device), device.state) == ({"busy": 3.0, "waiting": 1.0, "down": 2.0}, "busy")
        assert device.intervals() == [(0.0, 2.0, "down"), (3.0, 6.0, "busy")]
        device.set_down()
        device.set_down()
        await asyncio.wait([job])
        await asyncio.sleep(1.0)
        assert accounts(device) == {"busy": 3.0, "waiting": 1.0, "down": 3.0}
        assert device.intervals() == [(0.0, 2.0, "down"), (3.0, 6.0, "busy"), (6.0, 7.0, "down")]

    run_virtual(scenario())


def test_the_running_job_extends_the_stretch_that_it_touches() -> None:
    async def scenario() -> None:
        device = new_device()
        await device.run(1.0)
        assert device.intervals() == [(0.0, 1.0, "busy")]
        job = asyncio.create_task(work(device, 2.0))
        await asyncio.sleep(0.5)
        assert device.intervals() == [(0.0, 1.5, "busy")]
        await job

    run_virtual(scenario())


actions = st.lists(
    st.tuples(st.sampled_from(["run", "cancel", "down", "up", "pass"]), st.integers(0, 16)), max_size=30
)


@given(actions)
def test_whatever_happens_the_accounts_add_up_and_no_job_is_left(actions: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        device, jobs = new_device(), []

        async def job(seconds: float) -> None:
            with suppress(DeviceDown):
                await device.run(seconds)

        for action, number in actions:  # times are multiples of 1/4 s, so that sums are exact
            match action:
                case "run":
                    jobs.append(asyncio.create_task(job(number / 4)))
                case "cancel" if jobs:
                    jobs[number % len(jobs)].cancel()
                case "down":
                    device.set_down()
                case "up":
                    device.set_up()
                case "pass":
                    await asyncio.sleep(number / 4)
            assert device.busy_s + device.waiting_s + device.down_s == now()
        if jobs:
            await asyncio.wait(jobs)
        assert device.state in ("waiting", "down")
        assert repr(device).endswith(" 0 jobs queued>")
        assert device.busy_s + device.waiting_s + device.down_s == now()
        seconds = {"busy": 0.0, "down": 0.0}
        at_s = 0.0
        for start_s, end_s, state in device.intervals():
            assert at_s <= start_s < end_s
            seconds[state] += end_s - start_s
            at_s = end_s
        assert seconds == {"busy": device.busy_s, "down": device.down_s}

    run_virtual(scenario())


# --- the timeline ---


def test_a_timeline_joins_what_touches_and_drops_what_is_empty() -> None:
    timeline = Timeline()
    stretches: list[tuple[float, float, State]] = [
        (0.0, 1.0, "busy"),
        (1.0, 2.0, "busy"),
        (2.0, 2.0, "down"),
        (2.0, 3.0, "busy"),
        (3.0, 4.0, "down"),
        (4.5, 5.0, "down"),
    ]
    for stretch in stretches:
        timeline.add(*stretch)
    assert list(timeline) == [(0.0, 3.0, "busy"), (3.0, 4.0, "down"), (4.5, 5.0, "down")]
    assert timeline.resolution_s == 0.0


def test_a_full_timeline_closes_the_shorter_half_of_its_gaps() -> None:
    timeline = Timeline(limit=4)
    for start_s in (0.0, 2.0, 5.0, 6.5):  # gaps of 1, 2, 0.5 and then 3 seconds
        timeline.add(start_s, start_s + 1.0, "busy")
    assert len(timeline) == 4
    timeline.add(10.5, 11.5, "busy")
    assert timeline.resolution_s == 1.0
    assert list(timeline) == [(0.0, 3.0, "busy"), (5.0, 7.5, "busy"), (10.5, 11.5, "busy")]
    timeline.add(12.5, 13.0, "busy")  # a gap of 1 s does not show any more
    assert list(timeline)[-1] == (10.5, 13.0, "busy")


def test_a_gap_between_states_is_never_closed() -> None:
    timeline = Timeline(limit=4)
    states: list[State] = ["busy", "down"]
    for place in range(100):
        timeline.add(2.0 * place, 2.0 * place + 1.0, states[place % 2])
    assert len(timeline) == 100
    assert timeline.resolution_s == 0.0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=200))
def test_a_timeline_is_bounded_and_keeps_its_ends(stretches: list[tuple[int, int]]) -> None:
    timeline, at_s = Timeline(limit=8), 0.0
    for gap_s, length_s in stretches:
        timeline.add(at_s + gap_s, at_s + gap_s + length_s, "busy")
        at_s += gap_s + length_s
    kept = list(timeline)
    assert len(kept) <= 8
    assert all(end_s + timeline.resolution_s < start_s for (_, end_s, _), (start_s, _, _) in pairwise(kept))
    if stretches:
        assert (kept[0][0], kept[-1][1]) == (stretches[0][0], at_s)


def test_the_accounts_of_a_device_that_ran_long_stay_exact() -> None:
    async def scenario() -> None:
        device = new_device(limit=4)
        for _ in range(6):
            await device.run(1.0)
            await asyncio.sleep(0.5)
        assert device.intervals() == [(0.0, 8.5, "busy")]
        assert device.busy_s == 6.0

    run_virtual(scenario())


def test_a_job_that_is_over_holds_no_task() -> None:
    """Without a collector, as in a run: the error of a task that nobody looks at ends the run at once."""

    async def main() -> None:
        await device.run(1.0)
        raise ValueError("nobody looks")

    loop = VirtualLoop()
    device = Device(loop)
    loop.create_task(main())
    loop.call_at(2.0, str)
    with pytest.raises(ValueError, match="nobody looks"):
        loop.run_until(3.0)
    assert loop.time() == 1.0
    loop.shutdown()
