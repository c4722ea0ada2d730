"""How many jobs a call takes: on a GPU by all that is made in it, counted without one."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from protocols.shared.contrastive import supervised_contrastive
from sim.learning import evaluation
from sim.learning.architecture import Architecture
from sim.learning.engine import Optimizer
from sim.learning.engine.autotune import TimedTrainingStep
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph import sampler as sampling
from sim.learning.engine.graph.batch_operations import Gradient, Loss, Losses, Outputs
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.graph.samples import Subset
from sim.learning.engine.memory import peak_bytes_of
from sim.learning.engine.replay_log import META
from sim.learning.engine.vector_pool import VectorPool
from sim.learning.models.kinds import MODELS
from sim.learning.objectives import cross_entropy, next_token

CUDA = torch.device("cuda")
IMAGES = {"cnn": (1, 8, 8), "resnet9": (3, 16, 16), "mlp": (1, 8, 8)}
SMALL: dict[str, dict[str, object]] = {
    "cnn": {},
    "resnet9": {"width": 4, "groups": 2},
    "mlp": {"hidden": [20]},
}


def built(name: str) -> Architecture:
    return MODELS[name].model_validate({"name": name} | SMALL[name]).architecture(IMAGES[name], 3)


def batch_of(name: str, samples: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Samples and targets of two clients."""
    x = torch.zeros((2, samples, *IMAGES[name]), device=device)
    return x, torch.zeros((2, samples), dtype=torch.int64, device=device)


def made(kernel: ModelKernel, name: str, samples: int) -> int:
    x, y = batch_of(name, samples)
    return kernel.bytes_made("training_gradients", samples, x[0], y[0])


def on_cuda(subset: Subset) -> Subset:
    """The subset as if it were on a GPU."""
    for part in ("x", "y"):
        tensor = getattr(subset, part)
        known = SimpleNamespace(device=CUDA, shape=tensor.shape, new_empty=tensor.new_empty)
        setattr(subset, part, known)
    return subset


def subset_of(name: str, samples: int) -> Subset:
    x, y = batch_of(name, samples)
    return Subset(x[0], y[0], [np.arange(samples)] * 4, None)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the GPU has: sixteen times what a call may take."""

    def has(of_a_call: int) -> None:
        known = SimpleNamespace(total_memory=16 * of_a_call)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known)

    return has


# --- what is made ---


def test_what_is_there_at_a_time_counts_once() -> None:
    """A convolution of 2 images of 3 x 8 x 8 with 5 kernels of 3 x 3, and a linear layer."""
    x, weight = torch.empty((2, 3, 8, 8), device="meta"), torch.empty((5, 3, 3, 3), device="meta")
    of_convolution, of_layer = 4 * 2 * 5 * 6 * 6, 4 * 2 * 10

    def both() -> Tensor:
        images = nn.functional.conv2d(x, weight).relu_()  # in place
        flat = images.view(2, -1)  # a view
        return flat @ torch.empty((180, 10), device="meta")

    assert peak_bytes_of(both) == of_convolution + 4 * 180 * 10 + of_layer

    def one_after_the_other() -> Tensor:
        found = x
        for _ in range(5):
            found = found + 1
        return found

    assert peak_bytes_of(one_after_the_other) == 2 * 4 * x.numel(), "no more than two of them at a time"
    assert peak_bytes_of(lambda: x.view(-1)) == 0


def test_to_count_takes_no_longer_for_what_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that goes through its input step by step keeps something of each for the backward pass."""
    x, asked, nbytes = torch.empty((10,), device="meta"), [0], torch.UntypedStorage.nbytes

    def counting(storage: torch.UntypedStorage) -> int:
        asked[0] += 1
        return nbytes(storage)

    monkeypatch.setattr(torch.UntypedStorage, "nbytes", counting)
    assert peak_bytes_of(lambda: [x + 1 for _ in range(100)]) == 100 * 4 * 10
    assert asked[0] <= 2 * 100


def test_parts_of_a_batch_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ModelKernel(built("cnn"), cross_entropy, "vmap", micro_batch=4)
    flat, (x, y) = torch.empty((2, parts.architecture.numel), device="meta"), batch_of("cnn", 32, "meta")
    of_all = peak_bytes_of(lambda: parts.training_gradients(flat, x, y)) // 2
    counted, gradients = [0], parts._backend.gradients

    def counting(*batch: Any) -> Any:
        counted[0] += 1
        return gradients(*batch)

    monkeypatch.setattr(parts._backend, "gradients", counting)
    assert made(parts, "cnn", 32) == of_all
    assert counted == [2]


def test_what_cannot_go_on_without_numbers_counts_until_then() -> None:
    x = torch.empty((10,), device="meta")
    assert peak_bytes_of(lambda: (x + 1).sum().item()) == 4 * 10 + 4


def test_losses_on_features_can_be_counted() -> None:
    """They see to it that nothing is cast, which torch refuses to be asked on the meta device."""
    rows, y = torch.empty((4, 3), device="meta"), torch.empty((4,), dtype=torch.int64, device="meta")
    for variant in ("paper", "code"):
        assert supervised_contrastive(rows, y, 0.5, variant, "mean").shape == ()


def test_texts_can_be_counted() -> None:
    section = MODELS["transformer"].model_validate({"name": "transformer", "width": 8, "depth": 1})
    kernel, tokens = (
        ModelKernel(section.architecture((16,), 11), next_token, "vmap"),
        torch.zeros((1, 16)).long(),
    )
    flat = torch.zeros((2, kernel.architecture.numel))
    batch = tokens.expand(2, 4, 16)
    kernel.training_gradients(flat, batch, batch)
    found = peak_bytes_of(lambda: kernel.training_gradients(flat, batch, batch)) // 2
    assert kernel.bytes_made("training_gradients", 4, tokens, tokens) == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize("name", IMAGES)
def test_as_much_is_made_without_numbers_as_with_them(name: str) -> None:
    kernel = ModelKernel(built(name), cross_entropy, "vmap")
    flat, (x, y) = torch.zeros((2, kernel.architecture.numel)), batch_of(name, 4)
    kernel.training_gradients(flat, x, y)
    assert made(kernel, name, 4) == peak_bytes_of(lambda: kernel.training_gradients(flat, x, y)) // 2


def kept(kernel: ModelKernel, name: str, samples: int) -> int:
    """What torch keeps for the backward passes of two clients, but for what they are given, for each."""
    flat, (x, y) = torch.zeros((2, kernel.architecture.numel)), batch_of(name, samples)
    given = {each.untyped_storage().data_ptr() for each in (flat, x, y)}
    storages: dict[int, Any] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            storages[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        kernel.training_gradients(flat, x, y)
    return sum(storage.nbytes() for storage in storages.values()) // 2


@pytest.mark.long
@pytest.mark.parametrize("name", IMAGES)
def test_it_is_what_layers_keep_for_the_backward_pass_and_not_much_more(name: str) -> None:
    """`vmap` keeps most: parameters, inputs and results once more, in the order of a convolution in groups.

    A sample's share is compared, as parameters and their gradients are made beside it.
    """
    vmap, loop = [ModelKernel(built(name), cross_entropy, way) for way in ("vmap", "loop")]
    few, many = 512, 1024
    of_samples = kept(vmap, name, many) - kept(vmap, name, few)
    assert of_samples <= made(vmap, name, many) - made(vmap, name, few) <= 2.5 * of_samples
    assert made(loop, name, many) <= made(vmap, name, many)


def test_a_layer_keeps_more_than_the_count_for_cpus_says() -> None:
    """That is of one model alone: without copies in the order of convolutions in groups, and gradients."""
    kernel = ModelKernel(built("resnet9"), cross_entropy, "vmap")
    of_a_sample = (made(kernel, "resnet9", 128) - made(kernel, "resnet9", 64)) / 64
    assert kernel.architecture.training_bytes_per_sample < of_a_sample


def test_half_the_digits_count_as_all_of_them() -> None:
    full, half = [
        ModelKernel(built("cnn"), cross_entropy, "vmap", precision) for precision in ("float32", "bfloat16")
    ]
    assert made(half, "cnn", 8) == made(full, "cnn", 8)


def test_it_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ModelKernel(built("mlp"), cross_entropy, "dense")
    found = made(kernel, "mlp", 8)
    monkeypatch.delattr(ModelKernel, "training_gradients")
    assert made(kernel, "mlp", 8) == found


# --- jobs in a call ---


@pytest.mark.long
@pytest.mark.parametrize("name", IMAGES)
def test_a_call_on_a_gpu_takes_a_sixteenth_of_it(name: str, card: Any) -> None:
    kernel, subset = ModelKernel(built(name), cross_entropy, "vmap"), subset_of(name, 8)
    numel, of_a_sample = kernel.architecture.numel, 4 * int(np.prod(IMAGES[name]))
    each = 8 * of_a_sample + 8 * numel + made(kernel, name, 8)
    jobs = BatchSampler(on_cuda(subset), 8, "shuffled")
    for of_a_call, at_once in ((5 * each, 5), (5 * each - 1, 4), (1, 1)):
        card(of_a_call)
        assert jobs.rows_at_once(kernel) == at_once
        assert Gradient(kernel, jobs).rows_at_once() == at_once
        assert Loss(kernel, jobs).rows_at_once() >= at_once, "it takes less than its gradient"
        assert (
            TimedTrainingStep(kernel.architecture, cross_entropy, Optimizer(), jobs, 9).clients_measured
            <= at_once
        )


def test_losses_are_sized_by_what_is_made_without_a_backward_pass(card: Any) -> None:
    kernel, subset = ModelKernel(built("resnet9"), cross_entropy, "vmap"), subset_of("resnet9", 8)
    each = 8 * 4 * 3 * 16 * 16 + 8 * kernel.architecture.numel
    each += kernel.bytes_made("losses", 8, subset.x, subset.y)
    jobs = BatchSampler(on_cuda(subset), 8, "shuffled")
    card(5 * each)
    assert Loss(kernel, jobs).rows_at_once() == Losses(kernel, jobs).rows_at_once() == 5
    assert Gradient(kernel, jobs).rows_at_once() < 5


def test_parts_of_a_batch_let_a_call_take_more(card: Any) -> None:
    architecture, jobs = built("cnn"), BatchSampler(on_cuda(subset_of("cnn", 8)), 1024, "replacement")
    card(2**28)
    whole, parts = [ModelKernel(architecture, cross_entropy, "vmap", micro_batch=size) for size in (None, 64)]
    assert jobs.rows_at_once(parts) > 4 * jobs.rows_at_once(whole)


def test_outputs_on_given_samples(card: Any) -> None:
    kernel = ModelKernel(built("cnn"), cross_entropy, "vmap")
    given = VectorPool(600 * 64, META)
    each = 4 * given.width + 8 * kernel.architecture.numel
    each += kernel.bytes_made("outputs", 512, torch.empty((0, 1, 8, 8)))  # so many of the 600 at once
    card(3 * each)
    assert Outputs(kernel, given, CUDA).rows_at_once() == 3


def test_a_replay_has_the_calls_of_the_run() -> None:
    """Where vectors are on the meta device, without numbers."""
    kernel, cpu = ModelKernel(built("cnn"), cross_entropy, "vmap"), torch.device("cpu")
    in_run, in_replay = [Outputs(kernel, VectorPool(64, device), cpu) for device in (cpu, META)]
    assert (
        in_replay.rows_at_once()
        == in_run.rows_at_once()
        == sampling._CHUNK_BYTES // (4 * 64 + 8 * kernel.architecture.numel)
    )


def test_an_evaluation_on_a_gpu_takes_a_sixteenth_of_it(card: Any) -> None:
    kernel, subset = ModelKernel(built("cnn"), cross_entropy, "vmap"), subset_of("cnn", 8)
    each = 2 * 64 * 4 * 64 + 4 * kernel.architecture.numel
    each += kernel.bytes_made("losses", 64, subset.x, subset.y)
    for of_a_call, clients, expected in (
        (6 * each, 100, (6, 64)),
        (6 * each, 6, (6, 64)),
        (6 * each, 3, (3, 128)),
        (6 * each, 1, (1, 384)),
        (1, 100, (1, 64)),
    ):
        card(of_a_call)
        assert evaluation._clients_per_call(kernel, CUDA, clients, subset) == expected
    card(6 * each + 6 * 2 * 4 * kernel.architecture.numel)
    assert evaluation._clients_per_call(kernel, CUDA, 100, subset, members=3) == (6, 64)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
@pytest.mark.parametrize("name", IMAGES)
def test_the_calls_on_a_cpu_are_what_they_were(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sized by samples and parameters, and apart from them by what one model alone keeps."""
    monkeypatch.delattr(ModelKernel, "bytes_made")
    kernel, subset = ModelKernel(built(name), cross_entropy, backend), subset_of(name, 64)
    numel, of_a_sample = kernel.architecture.numel, 4 * int(np.prod(IMAGES[name]))
    for size in (8, 64):
        fitting = max(1, 16 * 2**20 // (size * of_a_sample + 8 * numel))
        keeping = max(1, 128 * 2**20 // (size * kernel.architecture.training_bytes_per_sample))
        assert BatchSampler(subset, size, "shuffled").rows_at_once(kernel) == min(fitting, keeping)
    of_all = (100, max(1, 8 * 2**20 // (100 * of_a_sample))) if backend == "vmap" else (1, 64)
    assert evaluation._clients_per_call(kernel, torch.device("cpu"), 100, subset) == of_all
