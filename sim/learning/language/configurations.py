"""Settings in the config.json of a checkpoint, and the settings that coterie supports."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from sim.errors import UserError
from sim.files.input_file import SETTINGS_BYTES, InputFile, excerpt
from sim.learning.language.llama_sizes import RotaryScaling
from sim.learning.language.shapes import LlamaShape, Shape, TransformerShape

_LARGEST = 10_000_000  # largest size that a file may state

Size = Annotated[PositiveInt, Field(le=_LARGEST)]
_Positive = Annotated[PositiveFloat, Field(allow_inf_nan=False)]


class Configuration(BaseModel):
    """Settings of a checkpoint, and their supported values; other keys do not change its results."""

    model_config = ConfigDict(extra="ignore")
    family: ClassVar[str]

    @abstractmethod
    def shape(self) -> Shape:
        """Return the shape. Raises ValueError for sizes that do not fit together."""


class Gpt2Configuration(Configuration):
    """Settings of GPT-2."""

    family = "GPT-2"

    vocab_size: Size
    n_positions: Size
    n_embd: Size
    n_layer: Size
    n_head: Size
    n_inner: Size | None = None
    activation_function: Literal["gelu_new", "gelu_pytorch_tanh"] = "gelu_new"
    layer_norm_epsilon: Annotated[float, Field(ge=1e-5, le=1e-5)] = 1e-5
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_word_embeddings: Literal[True] = True

    def shape(self) -> TransformerShape:
        inner = self.n_inner or 4 * self.n_embd
        return TransformerShape(
            self.vocab_size, self.n_positions, self.n_embd, self.n_layer, self.n_head, inner
        )


class _Rotations(BaseModel):
    """Table of rotary positions. Older `transformers` write `type`, and `rope_theta` outside the table."""

    model_config = ConfigDict(extra="ignore")
    rope_type: Literal["default", "llama3"] = Field(
        "default", validation_alias=AliasChoices("rope_type", "type")
    )
    rope_theta: _Positive | None = None
    partial_rotary_factor: Annotated[float, Field(ge=1.0, le=1.0)] = 1.0
    factor: _Positive = 1.0
    low_freq_factor: _Positive = 1.0
    high_freq_factor: _Positive = 4.0
    original_max_position_embeddings: Size | None = None

    def scaling(self, context: int) -> RotaryScaling | None:
        """Return the scaling; `context` is the maximum number of tokens."""
        if self.rope_type == "default":
            return None
        if self.low_freq_factor >= self.high_freq_factor:
            problem = f"low_freq_factor = {self.low_freq_factor:g}: must be less than high_freq_factor"
            raise ValueError(f"{problem}, {self.high_freq_factor:g}")
        before = self.original_max_position_embeddings or context
        return RotaryScaling(self.factor, self.low_freq_factor, self.high_freq_factor, before)


class LlamaConfiguration(Configuration):
    """Settings of Llama."""

    family = "Llama"
    biases: ClassVar[bool] = False

    vocab_size: Size
    max_position_embeddings: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    hidden_act: Literal["silu"] = "silu"
    rms_norm_eps: _Positive = 1e-6
    rope_theta: _Positive = 10_000.0
    rope_parameters: _Rotations | None = None
    rope_scaling: _Rotations | None = None
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    pretraining_tp: Annotated[int, Field(ge=1, le=1)] = 1
    tie_word_embeddings: bool = False

    def shape(self) -> LlamaShape:
        heads, groups = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        if heads % groups:
            raise ValueError(f"num_key_value_heads = {groups}: must divide num_attention_heads, {heads}")
        if self.head_dim is None and self.hidden_size % heads:
            raise ValueError(f"num_attention_heads = {heads}: must divide hidden_size, {self.hidden_size}")
        head_width = self.head_dim or self.hidden_size // heads
        if head_width % 2:
            raise ValueError(f"head_dim = {head_width}: must be even")
        rotations = self.rope_parameters or self.rope_scaling or _Rotations.model_validate({})
        return LlamaShape(
            vocabulary=self.vocab_size,
            context=self.max_position_embeddings,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            heads=heads,
            groups=groups,
            head_width=head_width,
            inner=self.intermediate_size,
            epsilon=self.rms_norm_eps,
            theta=rotations.rope_theta or self.rope_theta,
            scaling=rotations.scaling(self.max_position_embeddings),
            biases=self.biases,
            tied=self.tie_word_embeddings,
        )


class MistralConfiguration(LlamaConfiguration):
    """Settings of Mistral: Llama's architecture, here without its sliding window."""

    family = "Mistral"

    sliding_window: None  # with a number by default


class Qwen2Configuration(LlamaConfiguration):
    """Settings of Qwen2: Llama's architecture with biases of queries, keys and values."""

    family = "Qwen2"
    biases = True

    use_sliding_window: Literal[False] = False
    layer_types: list[Literal["full_attention"]] | None = None


CONFIGURATIONS: Mapping[str, type[Configuration]] = {
    "gpt2": Gpt2Configuration,
    "llama": LlamaConfiguration,
    "mistral": MistralConfiguration,
    "qwen2": Qwen2Configuration,
}
"""Supported settings, by the `model_type` of a config.json."""


def configured_shape(file: InputFile) -> Shape:
    """Return the shape that a config.json states. Raises UserError if coterie does not support it."""

    def parse(content: bytes) -> Shape:
        found = json.loads(content)
        named = found.get("model_type") if isinstance(found, dict) else None
        kind = CONFIGURATIONS.get(named) if isinstance(named, str) else None
        if kind is None:
            stated = "none" if named is None else excerpt(named)
            allowed = ", ".join(map(repr, CONFIGURATIONS))
            raise file.refusal(
                "is not the configuration of a model that coterie supports: model_type is "
                f"{stated}; must be one of {allowed}"
            )
        try:
            return kind.model_validate(found).shape()
        except ValidationError as error:
            raise _refusal(file, kind.family, error.errors()[0]) from None
        except ValueError as error:
            raise file.refusal(str(error)) from None

    return file.parsed(parse, "a configuration of a language model", SETTINGS_BYTES)


def _refusal(file: InputFile, family: str, first: Any) -> UserError:
    """Return the error for the first problem that pydantic found."""
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return file.refusal(f"has no {key}, which a configuration of {family} needs")
    wanted = first["msg"].removeprefix("Input should be ")
    unsupported = f"coterie does not support this setting of {family}"
    return file.refusal(f"{key} = {excerpt(first['input'])}: {unsupported}; must be {wanted}")
