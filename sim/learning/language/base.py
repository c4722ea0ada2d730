"""Bases: pretrained transformers of GPT-2's architecture, in files that contain numbers and no code.

A base is a file .safetensors that `coterie pretrain` wrote, or a folder that `save_pretrained` of the package
transformers wrote: config.json and model.safetensors, and optionally tokenizer.json.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from sim.files.input_file import SETTINGS_BYTES, InputFile, shown
from sim.learning.language.tokenizers import identity_of_file

if TYPE_CHECKING:
    from torch import Tensor

    from sim.learning.models.modules.transformer import TransformerModule

_METADATA = "coterie"
_WEIGHTS, _CONFIG, _TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
_UNSUPPORTED = "coterie does not support this setting of GPT-2"
_MASKS = (".attn.bias", ".attn.masked_bias")  # in older checkpoints
_LARGEST = 10_000_000  # largest size that a file may state

_Size = Annotated[PositiveInt, Field(le=_LARGEST)]


@dataclass(frozen=True)
class TransformerShape:
    """Sizes of a transformer; `inner` is the width of its feed-forward layers."""

    vocabulary: int
    context: int
    width: int
    depth: int
    heads: int
    inner: int

    def made(self) -> TransformerModule:
        """Return the module, on torch's default device."""
        from sim.learning.models.modules.transformer import TransformerModule

        return TransformerModule(**asdict(self))


@dataclass(frozen=True)
class Base:
    """Pretrained transformer. tokenizer: identity of its tokenizer in training; None if unknown."""

    shape: TransformerShape
    tokenizer: str | None
    weights: Mapping[str, Tensor]


class BaseNotes(BaseModel):
    """Metadata that `coterie pretrain` writes with the weights, as text."""

    model_config = ConfigDict(extra="ignore")
    heads: _Size
    tokenizer: str
    corpus: str = ""
    corpus_sha256: str = ""
    settings: dict[str, Any] = {}


class _Gpt2Config(BaseModel):
    """Settings of a checkpoint's config.json, and their values in GPT-2."""

    model_config = ConfigDict(extra="ignore")
    model_type: Literal["gpt2"]
    vocab_size: _Size
    n_positions: _Size
    n_embd: _Size
    n_layer: _Size
    n_head: _Size
    n_inner: _Size | None = None
    activation_function: Literal["gelu_new", "gelu_pytorch_tanh"] = "gelu_new"
    layer_norm_epsilon: Annotated[float, Field(ge=1e-5, le=1e-5)] = 1e-5
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_word_embeddings: Literal[True] = True


def load_base(file: InputFile) -> Base:
    """Return the base in a file or folder. Raises UserError for other files and other architectures."""
    if not os.path.isdir(file.path):
        stored, notes = _stored(file)
        shape = _shape_of(stored, notes.heads, file)
        return Base(shape, notes.tokenizer, _fitting(stored, shape, file))
    parts = {name: InputFile(file.key, file.path / name) for name in (_WEIGHTS, _CONFIG, _TOKENIZER)}
    config = _configuration(parts[_CONFIG])
    if not parts[_WEIGHTS].path.is_file():
        raise file.refusal(f"has no {_WEIGHTS}: save_pretrained of the package transformers writes it")
    stored = _tensors(parts[_WEIGHTS])[0]
    names = {name: name.removeprefix("transformer.") for name in stored}
    stored = {
        names[name]: values
        for name, values in stored.items()
        if not names[name].endswith(_MASKS) and name != "lm_head.weight"
    }
    shape = _shape_of(stored, config.n_head, parts[_WEIGHTS])
    inner = config.n_inner or 4 * config.n_embd
    stated = TransformerShape(
        config.vocab_size, config.n_positions, config.n_embd, config.n_layer, config.n_head, inner
    )
    if shape != stated:
        raise parts[_WEIGHTS].refusal(f"contains {shape}, but {_CONFIG} states {stated}")
    has_tokenizer = parts[_TOKENIZER].path.is_file()
    tokenizer = identity_of_file(parts[_TOKENIZER].content(SETTINGS_BYTES)) if has_tokenizer else None
    return Base(shape, tokenizer, _fitting(stored, shape, parts[_WEIGHTS]))


def _configuration(file: InputFile) -> _Gpt2Config:
    """Return the settings in a config.json. Raises UserError if they are not supported settings of GPT-2."""

    def parse(content: bytes) -> _Gpt2Config:
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("model_type") != "gpt2":
            stated = shown(found.get("model_type")) if isinstance(found, dict) else "none"
            raise file.refusal(f"is not a configuration of GPT-2: model_type is {stated}; must be 'gpt2'")
        try:
            return _Gpt2Config.model_validate(found)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            if first["type"] == "missing":
                raise file.refusal(f"has no {key}, which a configuration of GPT-2 needs") from None
            wanted = first["msg"].removeprefix("Input should be ")
            raise file.refusal(f"{key} = {shown(first['input'])}: {_UNSUPPORTED}; must be {wanted}") from None

    return file.parsed(parse, "a configuration of GPT-2", SETTINGS_BYTES)


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the files of a folder from which a base is read."""
    return [path for name in (_CONFIG, _WEIGHTS, _TOKENIZER) if (path := folder / name).is_file()]


def save_base(path: Path, weights: Mapping[str, Tensor], notes: BaseNotes) -> None:
    """Write a base, completely or not at all. Raises OSError."""
    from safetensors.torch import save

    content = save(
        {name: values.contiguous() for name, values in weights.items()}, {_METADATA: notes.model_dump_json()}
    )
    with beside(path) as whole:
        whole.write_bytes(content)
        os.replace(whole, path)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Return a temporary path for an incomplete file, in a hidden folder beside `path`. Raises OSError."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".coterie-") as temporary:
        yield Path(temporary) / path.name


def _stored(file: InputFile) -> tuple[dict[str, Tensor], BaseNotes]:
    """Return the tensors of a file that `save_base` wrote, and its metadata."""
    stored, metadata = _tensors(file)
    if _METADATA not in metadata:
        raise file.refusal(
            "does not give the number of heads, unlike files of `coterie pretrain`; use a file of `coterie "
            f"pretrain`, or a folder with {_CONFIG} and {_WEIGHTS}"
        )
    try:
        return stored, BaseNotes.model_validate_json(metadata[_METADATA])
    except ValueError as error:
        raise file.refusal(f"the metadata is damaged: {shown(str(error))}") from None


def _tensors(file: InputFile) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Return the tensors of a .safetensors file, float32, and its text metadata."""
    stored, metadata = file.tensors()
    for name, values in stored.items():
        if not values.is_floating_point() and not name.endswith(_MASKS):
            raise file.refusal(f"contains {values.dtype}; must contain real numbers", name)
    return {name: values.float() for name, values in stored.items()}, metadata


def _shape_of(stored: Mapping[str, Tensor], heads: int, file: InputFile) -> TransformerShape:
    """Return the sizes from the tensors. Raises UserError if they are missing."""
    sizes: dict[str, tuple[int, ...]] = {}
    for name in ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"):
        if name not in stored or stored[name].dim() != 2 or not stored[name].numel():
            raise file.refusal(f"has no matrix {name}, which every model of GPT-2's architecture has")
        sizes[name] = tuple(stored[name].shape)
    depth = 1 + max(int(name.split(".")[1]) for name in stored if name.startswith("h.") and _is_block(name))
    vocabulary, width = sizes["wte.weight"]
    if width % heads:
        raise file.refusal(
            f"has vectors of {width} numbers; must be a multiple of {heads}, the number of heads"
        )
    if depth > len(stored):
        raise file.refusal(f"contains a block {depth - 1}, but only {len(stored)} tensors")
    return TransformerShape(
        vocabulary, sizes["wpe.weight"][0], width, depth, heads, sizes["h.0.mlp.c_fc.weight"][1]
    )


def _is_block(name: str) -> bool:
    return name.split(".")[1].isdecimal() and len(name) < 100


def _fitting(stored: dict[str, Tensor], shape: TransformerShape, file: InputFile) -> dict[str, Tensor]:
    """Return the tensors if they are exactly those of a transformer of this shape. Raises UserError."""
    import torch

    with torch.device("meta"):
        wanted = dict(shape.made().named_parameters())
    if unknown := [name for name in stored if name not in wanted]:
        raise file.refusal(f"contains {shown(unknown)}, which is not in GPT-2's architecture")
    for name, parameter in wanted.items():
        if name not in stored:
            raise file.refusal(f"has no {name}")
        if stored[name].shape != parameter.shape:
            shapes = f"{tuple(stored[name].shape)}; must be {tuple(parameter.shape)}"
            raise file.refusal(f"has shape {shapes}", name)
        if not bool(stored[name].isfinite().all()):
            raise file.refusal("contains numbers that are not finite", name)
    return stored
