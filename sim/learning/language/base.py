"""Bases: pretrained transformers, in files that contain numbers and no code.

A base is a .safetensors file that `coterie pretrain` wrote, or a folder that `save_pretrained` of the package
`transformers` wrote: config.json and model.safetensors, and optionally tokenizer.json.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from sim.files.input_file import InputFile, excerpt
from sim.learning.language.checkpoints import load_checkpoint
from sim.learning.language.configurations import Size
from sim.learning.language.shapes import Base
from sim.learning.language.tensors import gpt2_shape, read_float_tensors, require_fitting_tensors

if TYPE_CHECKING:
    from torch import Tensor

_METADATA = "coterie"


class BaseNotes(BaseModel):
    """Metadata that `coterie pretrain` writes with the weights, as text."""

    model_config = ConfigDict(extra="ignore")
    heads: Size
    tokenizer: str
    corpus: str = ""
    corpus_sha256: str = ""
    settings: dict[str, Any] = {}


def load_base(file: InputFile) -> Base:
    """Return the base in a file or folder. Raises UserError for other files and other architectures."""
    if not os.path.isdir(file.path):
        stored, notes = _read_saved_base(file)
        shape = gpt2_shape(stored, notes.heads, file)
        return Base(shape, notes.tokenizer, require_fitting_tensors(stored, shape, file))
    return load_checkpoint(file)


def save_base(path: Path, weights: Mapping[str, Tensor], notes: BaseNotes) -> None:
    """Write a base, completely or not at all. Raises OSError."""
    from safetensors.torch import save

    content = save(
        {name: values.contiguous() for name, values in weights.items()}, {_METADATA: notes.model_dump_json()}
    )
    with temporary_path_beside(path) as whole:
        whole.write_bytes(content)
        os.replace(whole, path)


@contextmanager
def temporary_path_beside(path: Path) -> Iterator[Path]:
    """Return a temporary path for an incomplete file, in a hidden folder beside `path`. Raises OSError."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".coterie-") as temporary:
        yield Path(temporary) / path.name


def _read_saved_base(file: InputFile) -> tuple[dict[str, Tensor], BaseNotes]:
    """Return the tensors of a file that `save_base` wrote, and its metadata."""
    stored, metadata = read_float_tensors(file)
    if _METADATA not in metadata:
        raise file.refusal(
            "does not give the number of heads, unlike files of `coterie pretrain`; use a file of `coterie "
            "pretrain`, or a folder with config.json and model.safetensors"
        )
    try:
        return stored, BaseNotes.model_validate_json(metadata[_METADATA])
    except ValueError as error:
        raise file.refusal(f"the metadata is damaged: {excerpt(str(error))}") from None
