"""The engine against plain PyTorch: batched and per-client training, gradients, losses, chunks, checksums."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from protocols.framework.vectors import mix
from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine import Engine, Optimizer, Vector, checksums
from sim.learning.engine.backends.kernels import choose_backend
from sim.learning.engine.graph import sampler
from sim.learning.engine.graph.sampler import TrainJob, clients_at_once
from sim.learning.objectives import OBJECTIVES, Parameters, cross_entropy, next_token, squared_error
from tests.device import DEVICE
from tests.learning.engines import (
    MODELS_AND_WAYS,
    SHAPES,
    Jobs,
    client_data,
    drawn,
    new_engine,
    objective_of,
    own_samples,
    plain_loss,
    plain_module,
    plain_penalty,
    small,
    torch_optimizer,
)
from tests.learning.sections import OF_NUMBERS
from tests.lists import require_listed

COUNTS = [9, 6, 3, 11, 1]  # clients 2 and 4 have fewer samples than a batch
LABEL_MAPS = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [0, 1, 2]]
BATCH_SIZE = 4
RATE = 0.05
# With an epsilon as large as usual gradients: Adam would otherwise turn rounding into steps of full size.
OPTIMIZERS = [
    Optimizer("sgd", weight_decay=0.05),
    Optimizer("sgd", momentum=0.9, dampening=0.9),
    Optimizer("sgd", momentum=0.9, nesterov=True),
    Optimizer("adam", epsilon=0.01, weight_decay=0.05),
    Optimizer("adamw", epsilon=0.01, weight_decay=0.05),
]
CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
)


def engine_for(model: str, backend: str = "auto", device: str = "cpu") -> Engine:
    data = client_data(
        COUNTS, shape=SHAPES[model], validation=[2, 0, 3, 1, 1], label_maps=LABEL_MAPS, device=device
    )
    return new_engine(data, backend=backend, device=device)


def batches(engine: Engine, client: int, first: int, steps: int) -> list[tuple[Tensor, Tensor]]:
    """The batches of a client's training, gathered one by one."""
    x, y = own_samples(engine.data, client)
    return [(x[chosen], y[chosen]) for chosen in drawn(engine, client, first, steps, BATCH_SIZE)]


class PlainClient:
    """One client's training as anybody would write it in PyTorch, pulls and all."""

    def __init__(self, model: str, start: Tensor, optimizer: Optimizer) -> None:
        self.model = model
        self.module = plain_module(model, start)
        self.optimizer = torch_optimizer(optimizer, RATE)(list(self.module.parameters()))

    def train(
        self, samples: Sequence[tuple[Tensor, Tensor]], pulls: Sequence[tuple[float, Tensor]] = ()
    ) -> np.ndarray:
        for x, y in samples:
            self.optimizer.zero_grad()
            flat = nn.utils.parameters_to_vector(self.module.parameters())
            loss = plain_loss(self.model, self.module, x, y) + plain_penalty(flat, pulls)
            loss.backward()
            self.optimizer.step()
        return nn.utils.parameters_to_vector(self.module.parameters()).detach().numpy()


def run_jobs(engine: Engine, model: str, optimizer: Optimizer) -> dict[int, np.ndarray]:
    """Two jobs in a row of five clients; some are pulled, by strengths known and pending."""
    jobs = Jobs(engine, model, optimizer, BATCH_SIZE)
    start = [jobs.initial(client) for client in range(5)]
    states: list[Vector | None] = [None] * 5
    trained = list(start)
    half = engine.dot(start[0], start[0])
    half = half * (0.5 / float(jobs.initial(0).tensor().double().pow(2).sum()))
    pulls = {
        0: [(0.3, start[1]), (half, start[3])],
        2: [(half * 2, start[0])],
        4: [(np.float32(0.2), start[1])],
    }
    for client in (0, 1, 2, 3):
        trained[client], states[client] = jobs.train(
            client, start[client], 2, pulls=pulls.get(client, ()), learning_rate=RATE
        )
    for client in (0, 2, 3, 4):  # client 4 is two steps behind
        done = 0 if client == 4 else 2
        trained[client], states[client] = jobs.train(
            client,
            trained[client],
            3,
            done=done,
            state=states[client],
            pulls=pulls.get(client, ()),
            learning_rate=RATE,
        )
    return {client: vector.numpy() for client, vector in enumerate(trained)}


def run_plain(engine: Engine, model: str, optimizer: Optimizer) -> dict[int, np.ndarray]:
    start = [Jobs(engine, model).initial(client).tensor().cpu() for client in range(5)]
    clients = [PlainClient(model, start[client], optimizer) for client in range(5)]
    pulls = {0: [(0.3, start[1]), (0.5, start[3])], 2: [(1.0, start[0])], 4: [(0.2, start[1])]}
    results = {}
    for client in (0, 1, 2, 3):
        results[client] = clients[client].train(batches(engine, client, 0, 2), pulls.get(client, ()))
    for client in (0, 2, 3, 4):
        done = 0 if client == 4 else 2
        results[client] = clients[client].train(batches(engine, client, done, 3), pulls.get(client, ()))
    return results


def assert_close(got: dict[int, np.ndarray], expected: dict[int, np.ndarray]) -> None:
    for client, values in expected.items():
        np.testing.assert_allclose(got[client], values, rtol=1e-4, atol=5e-5, err_msg=f"client {client}")


@pytest.mark.long
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("model", OF_NUMBERS)
def test_batched_per_client_and_plain_training_agree(model: str, optimizer: Optimizer) -> None:
    engine = engine_for(model)
    plain = run_plain(engine, model, optimizer)
    for client, trained in plain.items():
        moved = np.abs(trained - Jobs(engine, model).initial(client).numpy())
        assert moved.max() > 0.01, "the comparison would not be of anything"
    for backend in [backend for name, backend in MODELS_AND_WAYS if name == model]:
        assert_close(run_jobs(engine_for(model, backend), model, optimizer), plain)


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
@pytest.mark.parametrize("device", [CUDA])
def test_cuda_computes_the_same_numbers(model: str, backend: str, device: str) -> None:
    optimizer = Optimizer("adam", epsilon=0.01, weight_decay=0.05)
    plain = run_plain(engine_for(model), model, optimizer)
    engine = engine_for(model, backend, device)
    got = run_jobs(engine, model, optimizer)
    for client, values in plain.items():
        np.testing.assert_allclose(got[client], values, rtol=2e-3, atol=2e-4, err_msg=f"client {client}")
    jobs = Jobs(engine, model)
    vectors = [jobs.initial(client) for client in range(5)]
    rows = engine.rows(vectors)
    assert rows.device.type == "cuda"
    assert np.array_equal(checksums(rows), checksums(rows.cpu()))


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_gradient_is_autograds(model: str, backend: str) -> None:
    engine = engine_for(model, backend)
    jobs = Jobs(engine, model, batch_size=BATCH_SIZE)
    at = [jobs.initial(client) for client in range(5)]
    gradients = [jobs.gradient(client, at[client], step=client) for client in range(5)]
    for client, gradient in enumerate(gradients):
        module = plain_module(model, at[client].tensor())
        plain_loss(model, module, *batches(engine, client, client, 1)[0]).backward()
        expected = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_loss_on_a_batch_on_all_and_on_held_back_samples(model: str, backend: str) -> None:
    engine = engine_for(model, backend)
    jobs = Jobs(engine, model, batch_size=BATCH_SIZE)
    of = [jobs.initial(client) for client in range(5)]
    losses, expected = [], []
    for client in range(5):
        module = plain_module(model, of[client].tensor())
        losses.append(jobs.loss(client, of[client], step=3))
        expected.append(plain_loss(model, module, *batches(engine, client, 3, 1)[0]))
        losses.append(jobs.loss(client, of[client], "train"))
        expected.append(plain_loss(model, module, *own_samples(engine.data, client)))
        if client != 1:
            losses.append(jobs.loss(client, of[client], "validation"))
            expected.append(plain_loss(model, module, *own_samples(engine.data, client, "validation")))
    got = [float(loss) for loss in losses]
    np.testing.assert_allclose(got, torch.stack(expected).detach(), rtol=1e-5)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_diverged_client_poisons_only_itself(poison: float) -> None:
    """Pulled and free clients train in one batch, and row 0 of the pool is a model that diverged."""
    engine = new_engine(client_data([6, 6, 6]))
    jobs = Jobs(engine)
    bad = engine.vector(torch.full((jobs.architecture.numel,), poison))
    good = jobs.initial(0)
    pulled, _ = jobs.train(0, bad, pulls=[(0.5, good), (0.5, good)])
    free, _ = jobs.train(1, good)
    once, _ = jobs.train(2, good, pulls=[(0.5, good)])
    results = engine.rows([pulled, free, once]).cpu()
    assert not results[0].isfinite().any()
    alone = Jobs(new_engine(client_data([6, 6, 6])))
    expected = alone.train(1, alone.initial(0))[0].numpy()
    np.testing.assert_allclose(results[1], expected, rtol=1e-6)
    assert results[2].isfinite().all()


@pytest.mark.parametrize("poison", [0.0, np.inf, np.nan])
def test_anchors_that_all_clients_share(poison: float) -> None:
    """Many sums of the same vectors may become one matrix product; what is not in a sum does not touch it."""
    engine = new_engine(client_data([6] * 8))
    jobs = Jobs(engine)
    width = jobs.architecture.numel
    start = engine.vector(torch.zeros(width))
    anchors = [jobs.initial(seed) for seed in range(7)]
    bad = engine.vector(torch.full((width,), poison))
    weight = engine.dot(anchors[0], anchors[0]).clip(0, 0.25)
    pulls: list[list[tuple[Any, Vector]]] = [[(0.125, anchor) for anchor in anchors] for _ in range(8)]
    pulls[2] = [(0.25, anchors[0])] * 7  # one anchor, many times
    pulls[3] = [(weight, anchor) for anchor in anchors]
    pulls[4][5] = (0.5, bad)
    trained = [jobs.train(client, start, pulls=pulls[client])[0] for client in range(8)]
    results = engine.rows(trained)  # before the others: only sums of equal lengths become a product
    got = (results - engine.rows([jobs.train(client, start)[0] for client in range(8)])).cpu().numpy()
    exact = [anchor.numpy().astype(np.float64) for anchor in anchors]
    for client in range(8):
        wanted = 0.1 * sum(exact) * (0.25 if client == 3 else 0.125)
        if client == 2:
            wanted = 0.1 * 7 * 0.25 * exact[0]
        if client == 4:
            wanted = 0.1 * (0.125 * (sum(exact) - exact[5]) + 0.5 * poison)
        np.testing.assert_allclose(got[client], wanted, rtol=1e-4, atol=1e-6, err_msg=f"client {client}")


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_clients_of_one_call_may_differ_in_their_learning_rates(model: str, backend: str) -> None:
    """A rate that all share takes another path."""
    for rates in ([0.5, 0.5, 0.5], [0.5, 0.25, 0.125], [0.125, 0.5, 0.0]):
        engine = new_engine(client_data(shape=SHAPES[model]), backend=backend)
        jobs = Jobs(engine, model)
        starts = [jobs.initial(client) for client in range(3)]
        gradients = [jobs.gradient(client, starts[client]).numpy() for client in range(3)]
        trained = [jobs.train(client, starts[client], learning_rate=rates[client])[0] for client in range(3)]
        rows = engine.rows(trained).cpu().numpy()
        for client in range(3):
            expected = starts[client].numpy() - rates[client] * gradients[client]
            np.testing.assert_allclose(rows[client], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_the_rates_of_others_change_no_bit(model: str, backend: str) -> None:
    rows = []
    for others_rate in (0.3, 0.2):
        engine = new_engine(client_data([10] * 3, shape=SHAPES[model]), backend=backend)
        jobs = Jobs(engine, model, batch_size=10)
        rates = [0.3, 0.3, others_rate]
        trained = [
            jobs.train(client, jobs.initial(client), learning_rate=rates[client])[0] for client in range(3)
        ]
        rows.append(engine.rows(trained)[:2])
    if DEVICE == "cpu" or model not in ("cnn", "resnet9"):
        assert rows[0].equal(rows[1])
    else:  # there cuDNN's sums have no fixed order
        torch.testing.assert_close(rows[0], rows[1], rtol=1e-5, atol=1e-6)


# --- how jobs are put together ---


def test_jobs_of_a_level_are_one_call() -> None:
    engine = new_engine(client_data([6] * 5))
    jobs = Jobs(engine)
    params = [jobs.initial(client) for client in range(5)]
    for done in range(3):
        trained = [jobs.train(client, params[client], done=done)[0] for client in range(5)]
        params = [0.5 * trained[client] + 0.5 * trained[client - 1] for client in range(5)]
    engine.rows(params)
    # Each training sums the two models that it starts from; what is read in the end is a sum of its own.
    assert engine.statistics.jobs == 5 * (3 + 1)
    assert engine.statistics.batches == 3 + 1
    assert engine.statistics.mean_batch == 5


def test_a_read_computes_what_it_needs_and_what_is_ready_beside_it() -> None:
    engine = new_engine(client_data([6] * 4))
    jobs = Jobs(engine)
    start = [jobs.initial(client) for client in range(4)]
    first = [jobs.train(client, start[client])[0] for client in range(3)]
    second = [jobs.train(client, first[client], done=1)[0] for client in range(3)]
    third = jobs.train(0, second[0], done=2)[0]
    late = jobs.train(3, start[3])[0]
    second[1].numpy()
    # The first jobs of all four are ready beside the first of client 1, and so are the second ones then.
    assert (engine.statistics.batches, engine.statistics.jobs) == (2, 4 + 3)
    assert not late.pending and third.pending
    rows = engine.rows([*second, third, late])
    assert (engine.statistics.batches, engine.statistics.jobs) == (3, 4 + 3 + 1)
    undisturbed = new_engine(client_data([6] * 4))
    jobs = Jobs(undisturbed)
    for client in range(3):
        params, _ = jobs.train(client, jobs.initial(client), 2)
        np.testing.assert_allclose(rows[client].cpu(), params.numpy(), rtol=1e-5)


def test_a_node_that_waited_is_computed_once_what_it_needs_is_there() -> None:
    engine = new_engine(client_data([6] * 3))
    jobs = Jobs(engine)
    base = jobs.train(0, jobs.initial(0))[0]
    others = [jobs.train(client, base, done=1)[0] for client in range(3)]
    sums = [engine.dot(other, base) for other in others]
    float(engine.dot(jobs.initial(1), jobs.initial(2)))  # none of the products above is ready
    assert (engine.statistics.batches, engine.statistics.jobs) == (1, 1)
    float(sums[2])
    assert (engine.statistics.batches, engine.statistics.jobs) == (4, 1 + 1 + 3 + 3)
    assert not any(product.pending for product in sums)


def test_jobs_that_differ_in_shape_are_different_calls_and_in_steps_are_not() -> None:
    engine = new_engine(client_data([6, 6, 3]))
    jobs, others = Jobs(engine), Jobs(engine, "mlp")
    start = jobs.initial(0)
    trained = [jobs.train(client, start)[0] for client in range(3)]
    trained.append(jobs.train(0, start, 2)[0])
    trained.append(Jobs(engine, optimizer=Optimizer("sgd", momentum=0.5)).train(0, start)[0])
    engine.rows(trained)
    assert engine.statistics.batches == 3  # four samples a batch, three samples a batch, and momentum
    assert jobs.operation(0) is jobs.operation(1)
    assert others.kernel is not jobs.kernel


def test_long_and_short_jobs_of_a_call_end_where_they_would_alone() -> None:
    """Beyond the steps whose batches are drawn together, too."""
    steps = [1, 150, 3, 64, 65]

    def run(deferred: bool) -> Engine:
        engine = new_engine(client_data([6] * 5), deferred=deferred)
        jobs = Jobs(engine, optimizer=Optimizer("adam"))
        trained = [jobs.train(client, jobs.initial(client), steps[client])[0] for client in range(5)]
        results.append(engine.rows(trained).cpu().numpy())
        return engine

    results: list[np.ndarray] = []
    assert run(deferred=True).statistics.batches == 1
    assert run(deferred=False).statistics.batches == 5
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_a_start_of_several_models_is_their_sum() -> None:
    """Short and long combinations side by side, one with a factor that is pending."""
    engine = new_engine(client_data([6] * 4))
    jobs = Jobs(engine)
    models = [jobs.initial(client) for client in range(6)]
    half = engine.dot(models[0], models[0])
    half = half * (0.5 / float(half))
    starts = [
        models[0],
        0.25 * models[1] + 0.75 * models[2],
        half * models[3] + 0.5 * models[4] + 0.1 * models[0],
        mix([(0.2, model) for model in models]),  # more than training sums up itself
    ]
    numbers = [start.tensor() for start in starts]
    trained = [jobs.train(client, start)[0] for client, start in enumerate(starts)]
    for client, values in enumerate(numbers):
        expected = jobs.train(client, engine.vector(values))[0].numpy()
        np.testing.assert_allclose(trained[client].numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["logistic-regression", "mlp"])
def test_chunks_change_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[dict[int, np.ndarray], list[float], np.ndarray, int]:
        engine = engine_for(model)
        jobs = Jobs(engine, model, batch_size=BATCH_SIZE)
        trained = run_jobs(engine, model, OPTIMIZERS[3])
        starts = [jobs.initial(client) for client in range(5)]
        losses = [jobs.loss(client, starts[client], "train") for client in range(5)]
        gradients = engine.rows([jobs.gradient(client, starts[client]) for client in range(5)])
        return trained, [float(loss) for loss in losses], gradients.numpy(), engine.statistics.batches

    whole = run()
    monkeypatch.setattr(sampler, "_CHUNK_BYTES", 1)
    cut = run()
    assert_close(cut[0], whole[0])
    np.testing.assert_allclose(cut[1], whole[1], rtol=1e-6)
    np.testing.assert_allclose(cut[2], whole[2], rtol=1e-5, atol=1e-7)
    assert cut[3] > whole[3]


def test_calls_on_a_larger_gpu_are_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    each = 2**20
    for gib, at_once in ((8, 512), (80, 5120)):
        known = SimpleNamespace(total_memory=gib * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, known=known: known)
        assert clients_at_once(torch.device("cuda"), each) == at_once
    assert clients_at_once(torch.device("cpu"), each) == 16


def test_way_is_chosen_by_model_and_device() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    on_cpu = {model: choose_backend("auto", small(model), objective_of(model), cpu) for model in OF_NUMBERS}
    assert on_cpu == {
        "logistic-regression": "dense",
        "mlp": "dense",
        "cnn": "loop",
        "resnet9": "loop",
        "decoupled": "dense",
        "point": "vmap",
    }
    assert choose_backend("auto", small("mlp"), _only_the_bias, cpu) == "vmap"
    assert choose_backend("auto", small("cnn"), cross_entropy, cuda) == "vmap"
    for backend in ("vmap", "loop"):
        assert choose_backend(backend, small("mlp"), cross_entropy, cpu) == backend
    with pytest.raises(UserError, match=r"engine\.way.*linear layers.*cnn"):
        choose_backend("dense", small("cnn"), cross_entropy, cpu)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_a_parameter_that_the_loss_does_not_use_stays(backend: str) -> None:
    engine = new_engine(client_data(), backend=backend)
    jobs = Jobs(engine, objective=_only_the_bias)
    start = jobs.initial(0)
    gradient = jobs.gradient(0, start).numpy()
    assert gradient[:-3].tolist() == [0.0] * (len(gradient) - 3)
    np.testing.assert_allclose(gradient[-3:], 2 * start.numpy()[-3:], rtol=1e-6)


def _only_the_bias(architecture: Architecture, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
    assert isinstance(parameters, Mapping)
    return parameters["1.bias"].square().sum()


def test_wrong_inputs_are_refused_when_they_are_given() -> None:
    """At a flush they would be rows of another pool: numbers, but the wrong ones."""
    engine, other = engine_for("mlp"), engine_for("mlp")
    jobs = Jobs(engine, "mlp", Optimizer("adam"))
    start, short = jobs.initial(0), Jobs(engine).initial(0)
    state = jobs.train(0, start)[1]
    for mistake in (
        lambda: jobs.train(0, short),
        lambda: jobs.train(0, Jobs(other, "mlp").initial(0)),
        lambda: jobs.train(0, start, pulls=[(0.1, short)]),
        lambda: jobs.train(0, start, state=start),
        lambda: jobs.gradient(0, short),
        lambda: jobs.loss(0, short),
        lambda: engine.train(
            jobs.operation(0), start, TrainJob(0, 1, 0, 1, 0.1, 0, (0.5,)), state=state, anchors=[]
        ),
    ):
        with pytest.raises(ValueError, match=r"vector|strengths"):
            mistake()


def test_objectives_fit_their_models() -> None:
    """Every model is trained on its objective above; none is left out of the comparison."""
    require_listed(OF_NUMBERS, SHAPES, f"SHAPES in {__file__}")
    # Any of these models learns numbers, too: tests/learning/test_objectives.py. Texts: test_language.py.
    own_tests = {squared_error, next_token}
    assert {objective_of(model) for model in OF_NUMBERS} == set(OBJECTIVES.values()) - own_tests
