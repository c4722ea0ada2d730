"""`coterie pretrain`: train a base model of GPT-2's architecture on a text, for adapters."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveFloat, model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import Count, Within
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.language.base import BaseNotes, save_base, temporary_path_beside
from sim.learning.language.shapes import TransformerShape
from sim.learning.language.tokenizers import tokenizer_called

if TYPE_CHECKING:
    from torch import Tensor, nn

PYTHON = "python-documentation"
FLOAT_BYTES, _NOTES_BYTES = 4, 1 << 20  # of a number; of the other contents of the file
_WARM_UP, _LAST_RATE = 100, 0.1  # steps; share of the rate at the end
_BETAS, _DECAY, _NORM_MAX = (0.9, 0.99), 0.01, 1.0

Progress = Callable[[int, float], None]
"""Function that receives the number of steps and the loss."""


class Pretraining(Settings):
    """Corpus, size and training of a base model. The defaults train a small English one in minutes."""

    out: str = "english.safetensors"
    """Output file."""
    corpus: str | Annotated[tuple[str, ...], Field(min_length=1)] = PYTHON
    """Training text: text files in UTF-8, or "python-documentation", the English documentation in Python
    itself."""
    tokenizer: str = "bytes"
    """Tokenizer: "bytes", "characters", or a tokenizer.json of the package `tokenizers`."""
    context: Count = 64
    """Number of previous tokens that the model reads."""
    width: Annotated[Count, Within(1, 16_384)] = 128
    """Length of the vector of a token."""
    depth: Annotated[Count, Within(1, 1_000)] = 3
    """Number of blocks, each with attention and a feed-forward part."""
    heads: Count = 4
    """Number of heads of each attention."""
    steps: Count = 1_500
    """Number of training steps, by AdamW."""
    batch_size: Count = 16
    """Number of windows of `context` tokens in a step."""
    learning_rate: Annotated[PositiveFloat, Within(1e-9, 10)] = 0.002
    """Highest learning rate: it rises for 100 steps, and falls to a tenth as a cosine."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the initial weights and of the windows."""

    @model_validator(mode="after")
    def _fits_together(self) -> Pretraining:
        if not self.out.endswith(".safetensors"):
            raise SettingError("out", self.out, "must end in .safetensors")
        if self.width % self.heads:
            problem = f"must divide the width, {self.width}"
            raise SettingError("heads", self.heads, problem)
        return self


def pretrain(
    settings: Pretraining, folder: DataFolder, progress: Progress | None = None
) -> tuple[Path, float]:
    """Train a base and write it. Returns its file's path, and the mean loss of the last tenth of the steps.

    Equal settings and texts give equal files. If `out` cannot be written after the training, the file is
    written to the folder of temporary files. Raises UserError.
    """
    import torch

    text = _text(settings.corpus, folder)
    tokenizer = tokenizer_called(settings.tokenizer, [text], "tokenizer", folder)
    tokens = torch.from_numpy(tokenizer.numbers(text))
    if len(tokens) <= settings.context:
        problem = f"has {len(tokens):,} tokens; must have more than the context, {settings.context:,}"
        raise UserError(f"corpus: {problem}")
    path = Path(settings.out)
    shape = TransformerShape(
        tokenizer.vocabulary,
        settings.context,
        settings.width,
        settings.depth,
        settings.heads,
        4 * settings.width,
    )
    model = shape.made()
    _require_writable(path, sum(each.numel() for each in model.parameters()))
    loss = _train(model, tokens, settings, progress)
    notes = BaseNotes(
        heads=settings.heads,
        tokenizer=tokenizer.identity,
        corpus=str(settings.corpus),
        corpus_sha256=hashlib.sha256(text.encode()).hexdigest(),
        settings=settings.model_dump(mode="json", exclude={"out"}),
    )
    return _write_base(path, {name: each.detach() for name, each in model.named_parameters()}, notes), loss


def _require_writable(path: Path, numbers: int) -> None:
    """Raise UserError before the training if a base of this many `numbers` cannot be written."""
    if not os.path.isdir(path.parent):
        raise UserError(f'out = "{path}": the folder {path.parent} does not exist; use an existing folder')
    if os.path.isdir(path):
        raise UserError(f'out = "{path}": is a folder; must be a file')
    try:
        with temporary_path_beside(path) as whole:
            whole.write_bytes(b"x")
    except OSError as error:
        raise UserError(f'out = "{path}": cannot be written: {error.strerror}') from None
    needed, free = FLOAT_BYTES * numbers + _NOTES_BYTES, shutil.disk_usage(path.parent).free
    if free < needed:
        raise UserError(f'out = "{path}": needs {needed:,} bytes, but the disk has {free:,} free')


def _write_base(path: Path, weights: Mapping[str, Tensor], notes: BaseNotes) -> Path:
    """Write a base and return its path: in the folder of temporary files if `path` cannot be written."""
    try:
        save_base(path, weights, notes)
        return path
    except OSError as error:
        reason = error
    instead = Path(tempfile.mkdtemp(prefix="coterie-")) / path.name
    try:
        save_base(instead, weights, notes)
    except OSError as error:
        problem = (
            f"cannot be written: {reason.strerror}; {instead} cannot be written either: {error.strerror}"
        )
        raise UserError(f'out = "{path}": {problem}') from None
    return instead


def _text(corpus: str | tuple[str, ...], folder: DataFolder) -> str:
    """Return the text to train on. Raises UserError."""
    if corpus == PYTHON:
        from pydoc_data.topics import topics

        return "\n".join([topics[topic] for topic in sorted(topics)])
    names = [corpus] if isinstance(corpus, str) else corpus
    return "\n".join([folder.file("corpus", name).text() for name in names])


def _train(model: nn.Module, tokens: Tensor, settings: Pretraining, progress: Progress | None) -> float:
    """Train in place and return the mean loss of the last tenth of the steps."""
    import torch
    from torch.nn import functional

    generator = torch.Generator().manual_seed(settings.seed)
    for part in model.modules():
        reset = getattr(part, "reset", None)
        if callable(reset):  # norms keep torch's initial values
            reset({name: each.data for name, each in part.named_parameters(recurse=False)}, generator)
    optimizer = torch.optim.AdamW(model.parameters(), betas=_BETAS, weight_decay=_DECAY)
    losses = []
    for step in range(settings.steps):
        optimizer.param_groups[0]["lr"] = settings.learning_rate * _rate(step, settings.steps)
        firsts = torch.empty((settings.batch_size, 1), dtype=torch.int64)
        firsts.random_(len(tokens) - settings.context, generator=generator)
        windows = tokens[firsts + torch.arange(settings.context + 1)]
        logits = model(windows[:, :-1]).flatten(0, 1)
        loss = functional.cross_entropy(logits, windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _NORM_MAX)
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            problem = "the loss is no longer finite; use a smaller value"
            raise UserError(f"learning_rate = {settings.learning_rate}: in step {step + 1:,} {problem}")
        if progress is not None:
            progress(step + 1, losses[-1])
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last)


def _rate(step: int, steps: int) -> float:
    """Return the learning rate of a step, as a share of the highest rate."""
    falling = _LAST_RATE + (1 - _LAST_RATE) * (1 + math.cos(math.pi * step / steps)) / 2
    return min(1.0, (step + 1) / _WARM_UP) * falling
