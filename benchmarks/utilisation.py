"""Speed of training relative to the hardware's limit, and the time of the largest experiment."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import torch

from benchmarks.engine import MODELS_MEASURED, SAMPLES, Model, with_engine
from benchmarks.measuring import Effort, Say, interleaved, per_second, steps_per_second, table
from protocols.cobo.settings import CoBoSettings, pair_probability
from sim.learning.engine.backends.precision import allowing_tf32

SECONDS = 1.0  # minimum length of one full measurement
_, MLP, CNN, RESNET = MODELS_MEASURED
ON_CPU = ((MLP, 1_000, 16), (CNN, 10, 16), (RESNET, 4, 16), (RESNET, 1, SAMPLES))
ON_CUDA = ((MLP, 1_000, 16), (CNN, 100, 16), (RESNET, 100, 16), (RESNET, 80, SAMPLES))
MATRIX = {"cpu": 2_048, "cuda": 8_192}
PRECISIONS = {"cpu": ("float32",), "cuda": ("float32", "tf32", "bfloat16")}

CLIENTS, ITERATIONS, BATCH = 80, 20_000, 128
CROSS_DEVICE = CoBoSettings(mode="synchronous", sampling="mixed", constant_iterations=40)

TEXT = """\
The table gives the speed of the engine in training steps per second and in floating-point operations (in
products and convolutions of the forward and backward pass, as counted by torch). *Of the peak* compares the
rate with the rate of one large matrix product, measured alternately. The missing share is memory
traffic, small or oddly shaped products, and all operations other than products. Where it is above 100%, the
large product was slower than the model's products, so it is not the peak of the machine."""

PROJECTION = """\
CoBo's cross-device experiment (`scenarios/cobo_cross_device.toml`: {clients} clients, ResNet-9, batches of
{batch}, {iterations:,} iterations) takes {steps:,.0f} training steps and {gradients:,.0f} gradients of
pairs (expected): {flops:.1e} floating-point operations. At the highest rate of ResNet-9 above ({precision},
batches of {measured}) they take {hours:,.1f} hours, without any overhead."""


def measure(effort: Effort, say: Say) -> str:
    """Return the section on utilization, in Markdown."""
    device, rows, best = effort.device, [], (0.0, "", 0)
    for precision in PRECISIONS[device.type]:
        for model, clients, batch in ON_CUDA if device.type == "cuda" else ON_CPU:
            clients = min(clients, effort.size_max)
            with allowing_tf32(precision):
                steps, peak = rates(model, clients, batch, precision, effort)
            flops = median(steps) * flops_per_sample(model) * batch
            share = median(s / p for s, p in zip(steps, peak, strict=True)) * flops_per_sample(model) * batch
            row = [model.label, f"{clients:,}", f"{batch}", precision, per_second(steps)]
            rows.append([*row, f"{flops / 1e9:,.0f}", f"{share:.0%}"])
            say(f"utilization, {model.label}, {clients:,} clients, {precision}: {share:.0%} of the peak")
            if model is RESNET:
                best = max(best, (flops, precision, batch))
    head = ["model", "clients", "batch", "precision", "steps/s", "GFLOP/s", "of the peak"]
    return "\n\n".join(["## Utilization", TEXT, table(head, rows), projection(*best)])


def rates(
    model: Model, clients: int, batch: int, precision: str, effort: Effort
) -> tuple[Sequence[float], Sequence[float]]:
    """Return training steps per second and the operations per second of a large product, in turns."""
    seconds, device = SECONDS * effort.share, effort.device
    train_all = with_engine(model, clients, "auto", device, precision, batch)
    of_both = {
        "training": partial(steps_per_second, train_all, seconds, device),
        "product": partial(steps_per_second, large_product(device, precision), seconds, device),
    }
    measured = interleaved(of_both, effort.repetitions)
    return measured["training"], measured["product"]


def large_product(device: torch.device, precision: str) -> Callable[[], int]:
    """Return a function that multiplies two square matrices and returns its floating-point operations."""
    size = MATRIX[device.type]
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    one, other = (torch.randn(size, size, device=device).to(kind) for _ in range(2))

    def multiply() -> int:
        torch.mm(one, other)
        return 2 * size**3

    return multiply


def flops_per_sample(model: Model) -> int:
    """Return the floating-point operations of a training step, per sample."""
    return model.architecture().training_flops_per_sample


def pair_gradients(clients: int, iterations: int) -> float:
    """Return the expected number of gradients for weights of pairs: two for each randomly drawn update."""
    pairs = clients * (clients - 1) / 2
    return 2 * pairs * sum(pair_probability(CROSS_DEVICE, t, clients) for t in range(1, iterations + 1))


def projection(flops_per_s: float, precision: str, measured_batch: int) -> str:
    """Return a sentence with the duration of CoBo's cross-device experiment at this rate."""
    steps, gradients = CLIENTS * ITERATIONS, pair_gradients(CLIENTS, ITERATIONS)
    flops = (steps + gradients) * BATCH * flops_per_sample(RESNET)
    return PROJECTION.format(
        clients=CLIENTS,
        batch=BATCH,
        iterations=ITERATIONS,
        steps=steps,
        gradients=gradients,
        flops=flops,
        precision=precision,
        measured=measured_batch,
        hours=flops / flops_per_s / 3600,
    )
