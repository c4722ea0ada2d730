"""Learning rates over time against torch's schedulers, and clipped gradients against torch's own."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch.optim import lr_scheduler

import protocols
from protocols.shared.server_rounds import RoundClient, RoundTask
from sim.errors import UserError
from sim.learning.schedules import RateSchedule, Schedule
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, make, optima, params, ran, start_from

RATE = 0.5


def schedule(keys: Mapping[str, Any]) -> Schedule:
    return TypeAdapter(RateSchedule).validate_python(keys)  # type: ignore[no-any-return]


def torchs(make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler], steps: int) -> list[float]:
    """The rates of torch's scheduler."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE)
    scheduler, rates = make(optimizer), []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


CASES: dict[str, tuple[dict[str, Any], Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]]] = {
    "constant": ({"kind": "constant"}, lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
    "warm-up": (
        {"kind": "constant", "warm_up": "4 steps"},
        lambda o: lr_scheduler.LinearLR(o, start_factor=1 / 4, total_iters=3),
    ),
    "step": (
        {"kind": "step", "every": "3 steps", "decay": 0.5},
        lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5),
    ),
    "cosine": (
        {"kind": "cosine", "length": "8 steps", "floor": 0.1},
        lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=8, eta_min=0.1 * RATE),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rates_are_torchs(name: str) -> None:
    keys, make = CASES[name]
    ours = [RATE * schedule(keys).factor(step) for step in range(9)]
    np.testing.assert_allclose(ours, torchs(make, 9), rtol=1e-12)


def test_a_cosine_stays_at_its_floor_and_begins_behind_the_warm_up() -> None:
    found = schedule({"kind": "cosine", "length": "4 steps", "floor": 0.2, "warm_up": "2 steps"})
    factors = [found.factor(step) for step in range(9)]
    # Step 1 ends the warm-up at full size; the wave begins with step 2.
    wave = [0.2 + 0.8 * (1 + np.cos(np.pi * k / 4)) / 2 for k in range(5)]
    np.testing.assert_allclose(factors, [0.5, 1.0, *wave, 0.2, 0.2])


def test_by_time_lengths_are_seconds() -> None:
    found = schedule({"kind": "step", "every": "2 s", "decay": 0.5, "warm_up": "1 s"})
    assert found.unit == "second"
    assert [found.factor(time_s) for time_s in (0.25, 0.5, 1.0, 2.5, 3.0, 4.9, 5.0)] == [
        0.25, 0.5, 1.0, 1.0, 0.5, 0.5, 0.25,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"kind": "step", "every": "3 steps", "warm_up": "1 s"},
            "must all be steps, all be rounds, or all be durations",
        ),
        (
            {"kind": "step", "every": "3 steps", "warm_up": "1 round"},
            "must all be steps, all be rounds, or all",
        ),
        ({"kind": "step", "every": "0 rounds"}, "must be at least 1"),
        ({"kind": "step", "every": "0 steps"}, "must be at least 1"),
        ({"kind": "step", "every": "3 iterations"}, "or steps or rounds, such as"),
        ({"kind": "step"}, "Field required"),
        ({"kind": "step", "every": "3 steps", "decay": 0}, "greater than 0"),
        ({"kind": "cosine", "length": "3 steps", "floor": 2}, "less than or equal to 1"),
        ({"kind": "linear"}, "constant"),
    ],
)
def test_wrong_schedules_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        schedule(keys)


# In the quadratic world a step is x <- x - rate (x - mu) a, so that the rate of each can be read off.
@pytest.mark.parametrize("local_steps", [1, 3])
def test_each_step_of_a_run_has_its_rate(local_steps: int) -> None:
    """Also within a training job of several steps."""
    keys = 'training.schedule={kind="cosine", length="10 steps", floor=0.1, warm_up="3 steps"}'
    starts = np.random.default_rng(1).standard_normal((4, 3))
    with ran(
        QUADRATIC,
        f"protocol.local_steps={local_steps}",
        keys,
        "run.duration=7 s",
        "run.evaluate_every=4 s",
        prepare=lambda built: start_from(built, starts),
    ) as simulation:
        curvature, optimum = optima(simulation)
        done = learner(simulation, 0).iterations * local_steps
        assert done == (14 if local_steps == 1 else 12)
        expected = starts
        found = schedule({"kind": "cosine", "length": "10 steps", "floor": 0.1, "warm_up": "3 steps"})
        for step in range(done):
            expected = expected - 0.1 * found.factor(step) * curvature * (expected - optimum)
        np.testing.assert_allclose(params(simulation), expected, rtol=1e-4, atol=1e-5)


def test_by_time_a_job_has_the_rate_of_its_end() -> None:
    keys = 'training.schedule={kind="step", every="2 s", decay=0.5}'
    starts = np.random.default_rng(1).standard_normal((4, 3))
    with ran(
        QUADRATIC,
        keys,
        "run.duration=4.25 s",
        "run.evaluate_every=4 s",
        prepare=lambda built: start_from(built, starts),
    ) as simulation:
        curvature, optimum = optima(simulation)
        expected = starts
        for step in range(8):
            factor = 0.5 ** ((step + 1) * 0.5 // 2)
            expected = expected - 0.1 * factor * curvature * (expected - optimum)
        np.testing.assert_allclose(params(simulation), expected, rtol=1e-4, atol=1e-5)


def test_training_alone_repeats_the_rates(tmp_path: Path) -> None:
    """Without peers a client is exactly as good as alone."""
    from tests.simulation.worlds import DIGITS, run

    keys = 'training.schedule={kind="cosine", length="30 steps", warm_up="5 steps"}'
    result = run(tmp_path, DIGITS, "protocol.name=local", keys, "run.compare_alone=true")
    assert result.summary["help"]["mean_gain"] == 0.0 == result.summary["help"]["most"]["gain"]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_clipped_gradients_are_torchs(optimizer: str) -> None:
    starts = 10 * np.random.default_rng(1).standard_normal((4, 3))
    options = (
        f"training.optimizer={optimizer}",
        "training.clip_norm=0.7",
        "run.duration=5 s",
        "run.evaluate_every=5 s",
    )
    with ran(QUADRATIC, *options, prepare=lambda built: start_from(built, starts)) as simulation:
        curvature, optimum = optima(simulation)
        expected = []
        for client in range(4):
            x = torch.tensor(starts[client], dtype=torch.float32, requires_grad=True)
            kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
            steps = kind([x], lr=0.1)
            a, mu = torch.tensor(curvature[client]), torch.tensor(optimum[client])
            for _ in range(learner(simulation, client).iterations):
                steps.zero_grad()
                (a / 2 * (x - mu) ** 2).sum().backward()
                torch.nn.utils.clip_grad_norm_([x], 0.7)
                steps.step()
            expected.append(x.detach().numpy())
        np.testing.assert_allclose(params(simulation), np.stack(expected), rtol=1e-4, atol=1e-5)


# --- by the rounds of a server ------------------------------------------------------------------------------

BY_ROUNDS = 'training.schedule={kind="step", every="1 round", decay=0.5}'


def test_by_rounds_all_clients_have_the_rate_of_the_round_however_often_they_were_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked: list[tuple[str, int]] = []
    work = RoundClient.work

    async def noted(client: RoundClient, task: Any) -> object:
        answer = await work(client, task)
        worked.append((client.name, task.round))
        return answer

    monkeypatch.setattr(RoundClient, "work", noted)
    options = ("protocol.name=fedavg", "protocol.fraction=0.5", "protocol.local_steps=2", BY_ROUNDS)
    with ran(QUADRATIC, *options, "run.duration=9.9 s", "run.evaluate_every=9 s") as simulation:
        server: Any = simulation.servers[0].actor
        model, done = server.params.numpy(), server.number
        curvature, optimum = optima(simulation)
        rates: dict[str, list[float]] = {}
        for life in simulation.clients:
            rates[life.name] = [steps.learning_rate for steps in life.compute._taken._taken]  # type: ignore[misc]
        start = simulation.clients[0].compute.initial().numpy()
    assert {name: [0.1 * 0.5**number for who, number in worked if who == name] for name in rates} == rates
    assert done >= 4 and len({len(each) for each in rates.values()}) > 1, "sampled at different rounds"
    expected = start
    for number in range(done):
        moved = []
        for name in [name for name, of in worked if of == number]:
            x, client = expected, int(name.removeprefix("client-"))
            for _ in range(2):
                x = x - 0.1 * 0.5**number * curvature[client] * (x - optimum[client])
            moved.append(x)
        assert len(moved) == 2
        expected = np.mean(moved, axis=0)
    np.testing.assert_allclose(model, expected, rtol=1e-4, atol=1e-5)


def test_alone_a_round_is_an_iteration() -> None:
    options = ("protocol.name=fedavg", "protocol.alone=true", "protocol.local_steps=2", BY_ROUNDS)
    with ran(QUADRATIC, *options) as simulation:
        for life in simulation.clients:
            rates = [steps.learning_rate for steps in life.compute._taken._taken]
            assert rates == [0.1 * 0.5**number for number in range(8)]


NO_ROUND = """\
from dataclasses import dataclass
from protocols import RoundClient, RoundServer, RoundTask, Vector

@dataclass(frozen=True)
class Task(RoundTask):
    params: Vector

class MyServer(RoundServer):
    def task(self, client, number):
        return Task(self.params)

class Mine(RoundClient):
    server = MyServer
"""


@pytest.mark.parametrize("method", ["gossip", "dpsgd", "local"])
def test_without_rounds_of_a_server_they_are_refused(method: str) -> None:
    problem = f'training.schedule.every = "1 round".*: protocol.name = "{method}" has no rounds of a server; '
    with pytest.raises(UserError, match=f"{problem}must be in steps, or a duration"):
        make(QUADRATIC, f"protocol.name={method}", BY_ROUNDS)


def test_a_task_that_says_no_round_is_a_failure_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NO_ROUND)
    with closing(make(QUADRATIC, f"protocol.name={tmp_path}/mine.py:Mine", BY_ROUNDS)) as simulation:
        simulation.run()
        failures = [str(failure) for failure in simulation.supervisor.failures]
    assert failures and all("add `round: int` to their class" in each for each in failures)


def test_every_task_that_is_shipped_says_its_round() -> None:
    for module in pkgutil.walk_packages(protocols.__path__, "protocols."):
        importlib.import_module(module.name)
    tasks = [kind for kind in RoundTask.__subclasses__() if kind.__module__.startswith("protocols.")]
    assert len(tasks) > 7
    assert [kind for kind in tasks if "round" not in {field.name for field in fields(kind)}] == []


REFINES = """\
from protocols import RoundClient, RoundServer

class Teacher(RoundServer):
    async def refine(self, number):
        update = await self.train(start=self.params)
        self.params = self.params + update

class Mine(RoundClient):
    server = Teacher
"""


def test_a_server_that_trains_has_the_rate_of_its_round(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REFINES)
    data = 'server={step_time="250 ms", samples=8}'
    with ran(DIGITS, f"protocol.name={tmp_path}/mine.py:Mine", BY_ROUNDS, data) as simulation:
        compute: Any = simulation.servers[0].compute
        rates = [steps.learning_rate for steps in compute._taken._taken]
    assert len(rates) > 2 and rates == [0.1 * 0.5**number for number in range(len(rates))]
