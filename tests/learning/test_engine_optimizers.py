"""Optimizers on stacked rows against torch.optim, one tensor at a time."""

import re
from dataclasses import fields
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from sim.learning.engine import Optimizer, optimizers
from sim.learning.engine.optimizers import OptimizerKind, UpdateRule, kind
from sim.scenario.sections.training import Training, TrainingOverride
from tests.learning.engines import Jobs, client_data, generator, new_engine, torch_optimizer

OPTIMIZERS = [
    Optimizer("sgd"),
    Optimizer("sgd", weight_decay=0.1),
    Optimizer("sgd", momentum=0.9),
    Optimizer("sgd", momentum=0.9, weight_decay=0.1),
    Optimizer("sgd", momentum=0.9, dampening=0.9),
    Optimizer("sgd", momentum=0.8, dampening=0.3, weight_decay=0.1),
    Optimizer("sgd", momentum=0.9, nesterov=True),
    Optimizer("sgd", momentum=0.5, nesterov=True, weight_decay=0.1),
    Optimizer("adam"),
    Optimizer("adam", betas=(0.5, 0.9), epsilon=1e-3, weight_decay=0.1),
    Optimizer("adamw"),
    Optimizer("adamw", betas=(0.8, 0.99), weight_decay=0.2),
]
WIDTH, STEPS = 7, 9


def test_every_kind_is_compared_with_torch() -> None:
    missing = set(get_args(OptimizerKind)) - {optimizer.kind for optimizer in OPTIMIZERS}
    assert not missing, f"add optimizers of the kinds {missing} to OPTIMIZERS in {__file__}"


def test_an_unknown_kind_names_the_file_to_edit() -> None:
    with pytest.raises(
        ValueError, match=r"^optimizer 'adam ': must be one of sgd, adam, adamw, .*optimizers\.py"
    ):
        Optimizer("adam ")


def test_a_kind_without_its_state_is_refused_where_it_is_defined() -> None:
    """It would fail only in the first training step, or train without its state."""
    with pytest.raises(TypeError, match="slots"):

        @kind("new", uses=(), tuned_rates=(0.001, 0.1))
        class New(UpdateRule):
            def step(self, *arguments: object) -> None: ...

    assert "new" not in optimizers.RULES


def test_a_kind_without_learning_rates_to_try_is_refused_where_it_is_defined() -> None:
    """`coterie tune` would search the range of a different optimizer."""
    with pytest.raises(TypeError, match="tuned_rates"):
        kind("new", uses=())  # type: ignore[call-arg]


def test_each_setting_that_a_kind_uses_is_one_of_the_optimizer() -> None:
    used = {key for rule in optimizers.RULES.values() for key in rule.uses}
    assert used <= {each.name for each in fields(Optimizer)}
    assert used <= Training.model_fields.keys()
    absent = used - TrainingOverride.model_fields.keys()
    assert not absent, f"add {absent} to TrainingOverride in sim/scenario/sections/training.py"


def test_only_the_text_of_training_names_kinds() -> None:
    """A list of the kinds in a second place would be forgotten when a kind is added."""
    for key, described in TrainingOverride.model_json_schema()["properties"].items():
        named = set(re.findall(r"\w+", described.get("description", ""))) & optimizers.RULES.keys()
        assert not named, f"remove {named} from the text of {key} in sim/scenario/sections/training.py"


@pytest.mark.parametrize("name", optimizers.RULES)
def test_the_text_of_weight_decay_names_the_kinds_that_decouple_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[Optimizer] = []
    monkeypatch.setattr(optimizers, "_add_decay", lambda optimizer, *rows: added.append(optimizer))
    optimizer = Optimizer(name, weight_decay=0.1)
    rows = [torch.ones(2, WIDTH) for _ in range(2)]
    state = torch.zeros(2, optimizer.slots * WIDTH) if optimizer.slots else None
    optimizer.rule.step(optimizer, *rows, state, torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1))
    text = Training.model_json_schema()["properties"]["weight_decay"]["description"]
    names_it = re.search(rf"\b{name}\b", text) is not None
    does = "adds" if added else "does not add"
    assert names_it == (not added), (
        f"{'remove' if names_it else 'name'} {name} in the text of weight_decay in "
        f"sim/scenario/sections/training.py: it {does} the decay to the gradient"
    )


GENERAL = {"weight_decay", "clip_norm"}
"""Settings of the optimizer that all kinds use."""


class Watched:
    """An optimizer that records which of its settings are read."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer, self.read = optimizer, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._optimizer, name)


@pytest.mark.parametrize("name", optimizers.RULES)
def test_each_kind_states_the_settings_that_it_uses(name: str) -> None:
    """Without a statement, a scenario may state the setting for any kind, where it has no effect."""
    read: set[str] = set()
    for optimizer in OPTIMIZERS:
        if optimizer.kind == name:
            watched = Watched(optimizer)
            state = torch.zeros(2, optimizer.rule.slots(watched) * WIDTH) if optimizer.slots else None  # type: ignore[arg-type]
            rows = [torch.ones(2, WIDTH) for _ in range(2)]
            done = torch.zeros(2, 1, dtype=torch.float64)
            optimizer.rule.step(watched, *rows, state, done, torch.ones(2, 1))  # type: ignore[arg-type]
            read |= watched.read
    uses = set(optimizers.RULES[name].uses)
    assert read - GENERAL == uses, f'state uses={tuple(sorted(read - GENERAL))} for the kind "{name}"'


def test_each_setting_is_general_or_of_a_kind() -> None:
    of_kinds = {key for rule in optimizers.RULES.values() for key in rule.uses}
    settings = {each.name for each in fields(Optimizer) if each.init} - {"kind"}
    assert settings == GENERAL | of_kinds, f"add {settings - GENERAL - of_kinds} to `uses` of a kind"


@pytest.mark.parametrize("name", optimizers.RULES)
def test_the_text_of_each_setting_names_the_kinds_that_use_it(name: str) -> None:
    for key in optimizers.RULES[name].uses:
        text = Training.model_json_schema()["properties"][key].get("description", "")
        assert re.search(rf"\b{name}\b", text), (
            f"name {name} in the text of {key} in sim/scenario/sections/training.py, as it uses this setting"
        )


def trajectory(optimizer: Optimizer, start: Tensor, gradients: Tensor, learning_rate: float) -> list[Tensor]:
    """Parameters after each step of torch.optim; gradients [steps, P]."""
    parameter = start.clone().requires_grad_()
    reference = torch_optimizer(optimizer, learning_rate)([parameter])
    after = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        reference.step()
        after.append(parameter.detach().clone())
    return after


def column(values: list[float], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype)[:, None]


FUSED = pytest.mark.parametrize("fused_min", [0, 1 << 13], ids=["fused", "stacked"])


@FUSED
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_equals_torch_for_rows_at_different_steps_and_rates(
    optimizer: Optimizer, fused_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 1 is three steps ahead of row 0, row 2 has another learning rate."""
    monkeypatch.setattr(optimizers, "_FUSED_MIN", fused_min)
    ahead, rates = [0, 3, 0], [0.01, 0.01, 0.3]
    start = torch.randn(3, WIDTH, generator=generator())
    gradients = torch.randn(STEPS + 3, 3, WIDTH, generator=generator(1))
    expected = [
        trajectory(optimizer, start[row], gradients[: STEPS + ahead[row], row], rates[row])
        for row in range(3)
    ]

    params, done = start.clone(), torch.zeros(3)
    state = torch.zeros(3, optimizer.slots * WIDTH) if optimizer.slots else None
    for step in range(3):
        one = None if state is None else state[1:2]
        gradient = gradients[step, 1:2].clone()
        optimizer.apply(params[1:2], gradient, one, column([step], torch.float64), column([rates[1]]))
    for step in range(STEPS):
        gradient = torch.stack([gradients[step + ahead[row], row] for row in range(3)])
        done = column([step + first for first in ahead], torch.float64)
        optimizer.apply(params, gradient, state, done, column(rates))
        for row in range(3):
            wanted = expected[row][step + ahead[row]]
            torch.testing.assert_close(params[row], wanted, rtol=2e-6, atol=1e-6)


@FUSED
def test_first_adam_step_is_the_learning_rate(fused_min: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bias correction cancels exactly; float32's 1 - 0.999 would be 1.3e-5 off."""
    monkeypatch.setattr(optimizers, "_FUSED_MIN", fused_min)
    optimizer = Optimizer("adam", epsilon=1e-30)
    moved = torch.zeros(1, 2)
    optimizer.apply(
        moved, torch.tensor([[1.0, -3.0]]), torch.zeros(1, 4), column([0], torch.float64), column([1])
    )
    torch.testing.assert_close(moved, torch.tensor([[-1.0, 1.0]]), rtol=3e-7, atol=0)


def test_a_long_row_moves_as_it_does_alone() -> None:
    optimizer, width = Optimizer("adam", weight_decay=0.1), (1 << 13) + 5
    start, gradient = torch.randn(3, width, generator=generator()), torch.ones(3, width)
    state, done, rates = torch.zeros(3, 2 * width), column([0, 5, 2], torch.float64), column([0.1, 0.2, 0.3])
    gradient[2] = torch.nan
    together = start.clone()
    optimizer.apply(together, gradient.clone(), state, done, rates)
    for row in range(2):
        alone, own = start[row : row + 1].clone(), slice(row, row + 1)
        optimizer.apply(alone, gradient[own].clone(), torch.zeros(1, 2 * width), done[own], rates[own])
        assert torch.equal(together[own], alone)
    assert together[2].isnan().all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_the_state_goes_from_job_to_job(optimizer: Optimizer) -> None:
    """Clients at different step numbers share a batch: as if each had trained alone and in one piece."""
    engine = new_engine(client_data([8, 8]))
    jobs = Jobs(engine, optimizer=optimizer)
    start = jobs.initial(0)
    whole = [jobs.train(client, start, 5)[0].numpy() for client in (0, 1)]

    params, state = jobs.train(0, start, 3)
    params.numpy()
    before = engine.statistics.batches
    first = jobs.train(0, params, 2, done=3, state=state)[0]
    second, other = jobs.train(1, start, 2)
    second.numpy()
    assert engine.statistics.batches == before + 1
    second = jobs.train(1, second, 3, done=2, state=other)[0]
    for got, expected in zip((first, second), whole, strict=True):
        torch.testing.assert_close(torch.tensor(got.numpy()), torch.tensor(expected), rtol=1e-5, atol=1e-6)
