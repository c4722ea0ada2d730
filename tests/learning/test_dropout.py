"""Dropout: as much as torch's, keyed by client and step, and the same in every way of computing."""

import pytest
import torch
from torch import nn

from sim.learning.architecture import Architecture, TrainingPass
from sim.learning.engine import Optimizer
from sim.learning.engine.graph import batch_operations
from sim.learning.engine.graph.drawing import draw_random_parameters
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob
from sim.learning.models.modules.dropout import Dropout, replace_dropouts
from tests.learning.engines import CLASSES, Jobs, client_data, new_engine, own_samples


def module() -> nn.Module:
    same = nn.Dropout(0.4)
    return replace_dropouts(nn.Sequential(nn.Linear(4, 50), same, nn.ReLU(), same, nn.Linear(50, CLASSES)))


def architecture() -> Architecture:
    with torch.device("meta"):
        return Architecture(module(), "with dropout", (4,))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_as_much_drops_as_is_said_and_the_mean_stays(p: float) -> None:
    layer = Dropout(p)
    with torch.no_grad():
        layer.draw.fill_(12345.0)
    kept = layer(torch.ones(400, 500))
    share = float((kept == 0).float().mean())
    assert abs(share - p) < 0.01  # 20 standard deviations
    if p < 1:
        assert kept.max().item() == pytest.approx(1 / (1 - p))
        assert float(kept.mean()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(layer.eval()(torch.ones(3)), torch.ones(3))


def test_masks_differ_by_draw_by_call_and_along_the_batch() -> None:
    layer, x = Dropout(0.5), torch.ones(2, 1000)

    def mask(draw: float) -> torch.Tensor:
        with torch.no_grad():
            layer._parameters["draw"] = nn.Parameter(torch.tensor(draw))
        return layer(x) == 0

    first = mask(7.0)
    second_call = layer(x) == 0
    assert torch.equal(first, mask(7.0))
    others = [mask(8.0), mask(9.0), second_call, first.flip(0)]
    for other in others[1:]:
        assert 0.4 < float((first == other).float().mean()) < 0.6
    assert torch.equal(second_call, others[0])  # the second call of a step has the next number


def test_one_module_in_two_places_is_swapped_once() -> None:
    swapped = module()
    assert isinstance(swapped, nn.Sequential)
    assert isinstance(swapped[1], Dropout) and swapped[1] is swapped[3]
    assert [part.name for part in architecture().drawn] == ["1.draw"]


def start_of(model: Architecture) -> torch.Tensor:
    return model.initial(torch.Generator().manual_seed(3))


def trained(backend: str, clients: list[int], steps: int = 3) -> list[torch.Tensor]:
    engine, model = new_engine(client_data((6, 6, 6)), backend=backend), architecture()
    jobs = Jobs(engine, model)
    vectors = [jobs.train(client, engine.vector(start_of(model)), steps)[0] for client in clients]
    return [vector.tensor() for vector in vectors]


def test_every_way_drops_the_same() -> None:
    together = trained("vmap", [0, 1, 2])
    for alone, client in zip(together, (0, 1, 2), strict=True):
        torch.testing.assert_close(trained("vmap", [client])[0], alone, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(trained("loop", [client])[0], alone, rtol=1e-5, atol=1e-6)
    column = architecture().drawn_columns
    assert all(float(params[column]) == 0.0 for params in together)  # no chance stays in a model


@pytest.mark.parametrize("step", [0, 5])
def test_a_step_is_that_of_autograd_with_the_masks_of_its_draw(step: int) -> None:
    engine, model = new_engine(client_data((6, 6, 6))), architecture()
    jobs, start = Jobs(engine, model), start_of(model)
    found = jobs.train(1, engine.vector(start), done=step)[0].tensor()
    job = GradientOrLossJob(1, engine.draw_key(1, "train"), step)
    drawn = start[None].clone()
    draw_random_parameters(model, drawn, [job], 0)
    number = drawn[0, model.drawn_columns[0]]
    assert 0 < float(number) < 2**24 and float(number) == int(number)
    sampler = jobs.sampler(1)
    x, y = sampler.samples(sampler.batches([job], 0, 1), 0, 1)
    leaf = start.clone().requires_grad_()
    scores = TrainingPass(model, {"1.draw": number}).forward(leaf, x[0].cpu())
    torch.nn.functional.cross_entropy(scores, y[0].cpu()).backward()
    assert leaf.grad is not None
    expected = start - 0.1 * leaf.grad
    expected[model.drawn_columns] = 0.0
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_clients_and_steps_draw_other_numbers() -> None:
    model, engine = architecture(), new_engine(client_data((6, 6, 6)))
    jobs = [
        GradientOrLossJob(client, engine.draw_key(client, "train"), step)
        for client in (0, 1)
        for step in (0, 1)
    ]
    params = torch.zeros(4, model.numel)
    draw_random_parameters(model, params, jobs, 0)
    numbers = params[:, model.drawn_columns].flatten().tolist()
    assert len(set(numbers)) == 4
    draw_random_parameters(
        model, params, jobs, 1
    )  # a job's second step is the first one of a job that begins there
    assert params[0, model.drawn_columns].item() == numbers[1]
    assert params[2, model.drawn_columns].item() == numbers[3]


def test_gradients_drop_and_losses_do_not() -> None:
    engine, model = new_engine(client_data((6, 6, 6))), architecture()
    jobs, start = Jobs(engine, model), engine.vector(start_of(model))
    assert not torch.allclose(jobs.gradient(0, start, 0).tensor(), jobs.gradient(0, start, 6).tensor())
    assert float(jobs.loss(0, start, "train")) == float(jobs.loss(0, start, "train", 6))


def test_each_piece_of_all_samples_has_masks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_operations, "_SAMPLES_AT_ONCE", 4)
    engine, model = new_engine(client_data((6, 6, 6))), architecture()
    jobs, start = Jobs(engine, model), start_of(model)
    sampler = BatchSampler(engine.data.train, 6, "all")
    gradient = engine.intern(batch_operations.Gradient(jobs.kernel, sampler))
    tasks = [GradientOrLossJob(client, engine.draw_key(client, "gradient"), 0) for client in (0, 1)]
    found = [engine.gradient(gradient, engine.vector(start), task) for task in tasks]
    for client, task in enumerate(tasks):
        numbers = []
        for piece in (0, 1):
            drawn = start[None].clone()
            draw_random_parameters(model, drawn, [task], 0, piece)
            numbers.append(drawn[0, model.drawn_columns[0]])
        assert len(set(map(float, numbers))) == 2
        (x, y), leaf = own_samples(engine.data, client), start.clone().requires_grad_()
        parts = [slice(0, 4), slice(4, 6)]
        scores = [
            TrainingPass(model, {"1.draw": number}).forward(leaf, x[part])
            for number, part in zip(numbers, parts, strict=True)
        ]
        torch.nn.functional.cross_entropy(torch.cat(scores), y).backward()
        assert leaf.grad is not None
        torch.testing.assert_close(found[client].tensor().cpu(), leaf.grad, rtol=1e-5, atol=1e-6)


def test_evaluation_is_that_without_dropout() -> None:
    plain = nn.Sequential(nn.Linear(4, 50), nn.ReLU(), nn.Linear(50, CLASSES))
    with torch.device("meta"):
        without = Architecture(plain, "without", (4,))
    flat = architecture().initial(torch.Generator().manual_seed(3))
    kept = torch.ones(architecture().numel, dtype=torch.bool)
    kept[architecture().drawn_columns] = False
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(architecture().forward(flat, x), without.forward(flat[kept], x))


def test_pulls_do_not_clip_by_the_number_that_is_drawn() -> None:
    """Towards the start itself the first step has no pull, so that clipping finds the gradient alone."""
    engine, model = new_engine(client_data((6, 6, 6))), architecture()
    jobs, start = Jobs(engine, model, Optimizer(clip_norm=1e3)), engine.vector(start_of(model))
    free = jobs.train(0, start)[0].tensor()
    pulled = jobs.train(0, start, pulls=[(0.5, start)])[0].tensor()
    torch.testing.assert_close(pulled, free)
