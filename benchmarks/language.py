"""Tokens per second in training adapters on a shared base, compared with a plain PyTorch loop."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy as plain_cross_entropy

from benchmarks.engine import LEARNING_RATE, Model, with_engine
from benchmarks.measuring import (
    CPU,
    Effort,
    Say,
    interleaved,
    median_ratio,
    per_second,
    steps_per_second,
    table,
    times,
)
from sim.learning.architecture import Architecture
from sim.learning.language.shapes import Base, TransformerShape
from sim.learning.models.transformer import Lora
from sim.learning.objectives import next_token

SECONDS = 2.0  # minimum length of one full measurement
CLIENTS, WINDOWS, CONTEXT, RANK = 16, 16, 64, 4
BATCHES = (1, 2, 4, 8)
SHAPE = TransformerShape(vocabulary=256, context=CONTEXT, width=128, depth=3, heads=4, inner=512)

TEXT = f"""\
{CLIENTS} clients train adapters of rank {RANK} on a base of the size of `coterie pretrain`'s base, by plain
SGD on batches of windows of {CONTEXT} tokens. *Plain loop* is code without a simulator: a module for each
client, which shares the frozen parameters of the base, one client after the other. *Engine* is coterie's
engine with its default settings. The times of both include drawing the batches."""


@dataclass(frozen=True)
class Adapters(Model):
    """Adapters on the given layers of a base of random parameters."""

    targets: tuple[str, ...] = ()

    @property
    def section(self) -> Lora:
        return Lora.model_validate({"name": "lora", "base": "-", "rank": RANK, "targets": self.targets})

    @cached_property
    def base(self) -> Base:
        """The base that all clients share."""
        generator = torch.Generator().manual_seed(1)
        named = SHAPE.made().named_parameters()
        weights = {name: 0.02 * torch.randn(each.shape, generator=generator) for name, each in named}
        return Base(SHAPE, None, weights)

    def architecture(self) -> Architecture:
        return self.section.architecture(self.input_shape, SHAPE.vocabulary, self.base)

    def samples(self, clients: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.empty((clients * WINDOWS, CONTEXT + 1), dtype=torch.int64)
        tokens.random_(SHAPE.vocabulary, generator=torch.Generator().manual_seed(clients))
        return tokens[:, :-1].to(device), tokens[:, 1:].to(device)

    def of_a_client(self) -> nn.Module:
        """The base with new adapters, as a separate module."""
        module = self.section.module(self.input_shape, SHAPE.vocabulary, self.base)
        for name, values in self.base.weights.items():
            module.get_parameter(name).data = values
        drawn = torch.Generator().manual_seed(0)
        for part in module.modules():
            if hasattr(part, "lora_a"):
                part.reset({"lora_a": part.lora_a.data, "lora_b": part.lora_b.data}, drawn)
        return module


MODELS_MEASURED = (
    Adapters("adapters on attention", "lora", (CONTEXT,), (CLIENTS,), targets=("attn.c_attn",)),
    Adapters("adapters on all layers", "lora", (CONTEXT,), (CLIENTS,), targets=SHAPE.layers),
)


def plain_loop(model: Adapters, batch_size: int) -> Callable[[], int]:
    """Return a round of plain PyTorch, which returns the number of steps."""
    x, y = (part.split(WINDOWS) for part in model.samples(CLIENTS, CPU))
    modules = [model.of_a_client() for _ in range(CLIENTS)]
    optimizers = [
        torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=LEARNING_RATE)
        for module in modules
    ]

    def train_all() -> int:
        for module, optimizer, own_x, own_y in zip(modules, optimizers, x, y, strict=True):
            batch = torch.randperm(WINDOWS)[:batch_size]
            optimizer.zero_grad()
            plain_cross_entropy(module(own_x[batch]).flatten(0, 1), own_y[batch].flatten()).backward()
            optimizer.step()
        return CLIENTS

    return train_all


def measure(effort: Effort, say: Say) -> str:
    """Return the section on language models, in Markdown."""
    rows = []
    for model in MODELS_MEASURED:
        for batch_size in BATCHES:
            rounds = {
                "plain loop": plain_loop(model, batch_size),
                "engine": with_engine(model, CLIENTS, "auto", batch_size=batch_size, objective=next_token),
            }
            contenders = {
                name: partial(steps_per_second, of_one, SECONDS * effort.share, CPU)
                for name, of_one in rounds.items()
            }
            found = interleaved(contenders, effort.repetitions)
            plain, ours = (
                [rate * batch_size * CONTEXT for rate in found[name]] for name in ("plain loop", "engine")
            )
            ratio = times(median_ratio(ours, plain))
            rows.append([model.label, f"{batch_size}", per_second(plain), per_second(ours), ratio])
            say(f"language models, {model.label}, {batch_size} windows: {ratio} of the plain loop")
    head = ["model", "windows in a batch", "plain loop, tokens/s", "engine, tokens/s", "engine to plain"]
    return "\n\n".join(["## Language models", TEXT, table(head, rows)])
