"""Checkpoints: folders written by `save_pretrained` of the package `transformers`, in one file or parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sim.files.input_file import SETTINGS_BYTES, InputFile, excerpt
from sim.learning.language.configurations import configured_shape
from sim.learning.language.shapes import Base, LlamaShape
from sim.learning.language.tensors import MASKS, gpt2_shape, read_float_tensors, require_fitting_tensors
from sim.learning.language.tokenizers import identity_of_file

if TYPE_CHECKING:
    from torch import Tensor

_WEIGHTS, _CONFIG, _TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
_INDEX = "model.safetensors.index.json"  # names the file of each tensor, if there are several
_HEAD = "lm_head.weight"


def load_checkpoint(folder: InputFile) -> Base:
    """Return the base in a folder. Raises UserError for other folders and unsupported architectures."""
    shape = configured_shape(_file_in_folder(folder, _CONFIG))
    weights, stored = _weights(folder)
    if isinstance(shape, LlamaShape):
        stored = {
            name if name.startswith(("model.", "lm_head.")) else f"model.{name}": values
            for name, values in stored.items()
            if not (shape.tied and name == _HEAD)
        }
    else:
        names = {name: name.removeprefix("transformer.") for name in stored if name != _HEAD}
        stored = {names[name]: stored[name] for name in names}
        found = gpt2_shape(stored, shape.heads, weights)
        if found != shape:
            raise weights.refusal(f"contains {found}, but {_CONFIG} states {shape}")
    tokenizer = _file_in_folder(folder, _TOKENIZER)
    identity = identity_of_file(tokenizer.content(SETTINGS_BYTES)) if tokenizer.path.is_file() else None
    return Base(shape, identity, require_fitting_tensors(stored, shape, weights))


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the files of a folder from which a base is read."""
    names = [_CONFIG, _WEIGHTS]
    if not (folder / _WEIGHTS).is_file() and (folder / _INDEX).is_file():
        names += [_INDEX, *sorted(path.name for path in folder.glob("*.safetensors"))]
    return [path for name in (*names, _TOKENIZER) if (path := folder / name).is_file()]


def _file_in_folder(folder: InputFile, name: str) -> InputFile:
    return InputFile(folder.key, folder.path / name)


def _weights(folder: InputFile) -> tuple[InputFile, dict[str, Tensor]]:
    """Return the file with the weights, or the index of several files, and the tensors."""
    weights, index = _file_in_folder(folder, _WEIGHTS), _file_in_folder(folder, _INDEX)
    if weights.path.is_file():
        return weights, _tensors_without_constants(weights)
    if not index.path.is_file():
        raise folder.refusal(f"has no {_WEIGHTS}: save_pretrained of the package transformers writes it")
    found: dict[str, Tensor] = {}
    places = _files_of_tensors(index)
    for name in sorted(set(places.values())):
        file = _file_in_folder(folder, name)
        tensors = _tensors_without_constants(file)
        if wrong := [each for each in tensors if places.get(each) != name]:
            raise file.refusal(f"contains {excerpt(wrong)}, which {_INDEX} does not place in this file")
        found |= tensors
    return index, found


def _tensors_without_constants(file: InputFile) -> dict[str, Tensor]:
    """Return the tensors of a file, without the constants that older versions of `transformers` stored."""
    return {name: values for name, values in read_float_tensors(file)[0].items() if not name.endswith(MASKS)}


def _files_of_tensors(index: InputFile) -> Mapping[str, str]:
    """Return the name of the file of each tensor. Raises UserError for an unsuitable index."""
    found = index.json()
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not places:
        raise index.refusal("has no weight_map; must state the file of each tensor")
    for tensor, name in places.items():
        is_name = isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name
        if not is_name or "\0" in name:
            problem = f"{excerpt(tensor)} is in {excerpt(name)}; must be the name of a .safetensors file"
            raise index.refusal(f"weight_map: {problem} in this folder")
    return places
