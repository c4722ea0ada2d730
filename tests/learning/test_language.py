"""Language models: texts, tokens, transformers, adapters on a base, and how bases are read, made and refused.

`gpt2` is a random GPT-2 of two layers, as save_pretrained of the package transformers (5.24) wrote it, and
`logits.npy` what that package computes of it for the tokens of `TOKENS`.
"""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.files.input_file import InputFile
from sim.learning.architecture import Architecture
from sim.learning.data.dataset import Dataset
from sim.learning.data.kinds import DATASETS
from sim.learning.data.text import TextData
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.evaluation import measure_models
from sim.learning.language import pretraining
from sim.learning.language.base import BaseNotes, load_base, save_base
from sim.learning.language.pretraining import Pretraining, pretrain
from sim.learning.language.shapes import TransformerShape
from sim.learning.language.tokenizers import ByteTokenizer, CharacterTokenizer, TokenizerFile
from sim.learning.models.kinds import MODELS
from sim.learning.models.transformer import Lora
from sim.learning.objectives import next_token
from tests.learning.engines import generator, only_tests

GPT2 = Path(__file__).parent / "gpt2"
TOKENS = torch.arange(14).view(2, 7) % 19
SHAPE = TransformerShape(vocabulary=11, context=6, width=8, depth=2, heads=2, inner=12)
ALL_LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")


def file_of(path: Path) -> InputFile:
    return InputFile("model.base", path)


def random_weights(shape: TransformerShape = SHAPE) -> dict[str, Tensor]:
    drawn = generator(3)
    named = shape.made().named_parameters()
    return {name: 0.3 * torch.randn(each.shape, generator=drawn) for name, each in named}


def saved(folder: Path, **notes: Any) -> Path:
    path = folder / "base.safetensors"
    save_base(path, random_weights(), BaseNotes(**{"heads": SHAPE.heads, "tokenizer": "bytes"} | notes))
    return path


def adapted(base: Path, **keys: Any) -> Architecture:
    section = Lora.model_validate({"name": "lora", "base": str(base), "rank": 2, **keys})
    return section.architecture((SHAPE.context,), SHAPE.vocabulary, load_base(file_of(base)))


def whole() -> Architecture:
    section = MODELS["transformer"].model_validate(
        {"name": "transformer", "width": 8, "depth": 2, "heads": 2}
    )
    return section.architecture((SHAPE.context,), SHAPE.vocabulary)


def models(architecture: Architecture, count: int = 3) -> Tensor:
    """Models of so many clients, away from where they start: there the gradient of A is 0."""
    drawn = generator(1)
    starts = [architecture.initial(drawn) for _ in range(count)]
    return torch.stack([start + 0.1 * torch.randn(start.shape, generator=drawn) for start in starts])


def windows(clients: int, count: int) -> tuple[Tensor, Tensor]:
    tokens = torch.empty((clients, count, SHAPE.context + 1), dtype=torch.int64)
    tokens.random_(SHAPE.vocabulary, generator=generator(2))
    return tokens[..., :-1], tokens[..., 1:]


# --- the architecture ---------------------------------------------------------------------------------------


def test_gpt2_of_hugging_face_is_computed_as_by_its_package() -> None:
    base = load_base(file_of(GPT2))
    assert base.shape == TransformerShape(vocabulary=19, context=7, width=8, depth=2, heads=2, inner=32)
    assert base.tokenizer is None
    module = base.shape.made()
    module.load_state_dict(dict(base.weights))
    expected = np.load(GPT2 / "logits.npy")
    np.testing.assert_allclose(module(TOKENS).detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    # As samples come that lie in a vector.
    np.testing.assert_array_equal(module(TOKENS.float()).detach(), module(TOKENS).detach())


def test_no_token_sees_a_later_one() -> None:
    module = SHAPE.made()
    module.load_state_dict(random_weights())
    x, _ = windows(1, 1)
    changed = x[0].clone()
    changed[0, 3] = (changed[0, 3] + 1) % SHAPE.vocabulary
    first, second = module(x[0]), module(changed)
    assert torch.equal(first[0, :3], second[0, :3])
    assert not torch.isclose(first[0, 3:], second[0, 3:]).all(dim=1).any()


@pytest.mark.parametrize("targets", [("attn.c_attn",), ALL_LAYERS])
def test_adapters_add_their_product_to_the_base(tmp_path: Path, targets: tuple[str, ...]) -> None:
    base = saved(tmp_path)
    architecture = adapted(base, targets=targets, alpha=6.0)
    sizes = {"attn.c_attn": 8 + 24, "attn.c_proj": 8 + 8, "mlp.c_fc": 8 + 12, "mlp.c_proj": 12 + 8}
    assert architecture.numel == 2 * 2 * sum(sizes[target] for target in targets)
    assert architecture.constant_bytes == 4 * sum(each.numel() for each in random_weights().values())
    plain = SHAPE.made()
    plain.load_state_dict(random_weights())
    x = windows(1, 4)[0][0]
    start = architecture.initial(generator())
    assert torch.equal(architecture.forward(start, x), plain(x))
    moved = models(architecture, 1)[0]
    parts = architecture.unflatten(moved)
    with torch.no_grad():
        for number in range(SHAPE.depth):
            for target in targets:
                name = f"h.{number}.{target}"
                product = parts[f"{name}.lora_a"] @ parts[f"{name}.lora_b"]
                plain.get_parameter(f"{name}.weight").add_(product, alpha=6.0 / 2)
    torch.testing.assert_close(architecture.forward(moved, x), plain(x), rtol=1e-4, atol=1e-5)


MAKE: dict[str, Callable[[Path], Architecture]] = {
    "lora": lambda folder: adapted(saved(folder), targets=ALL_LAYERS),
    "transformer": lambda folder: whole(),
}


@pytest.mark.parametrize("model", MAKE)
def test_all_at_once_and_one_by_one_agree(model: str, tmp_path: Path) -> None:
    architecture = MAKE[model](tmp_path)
    flat, (x, y) = models(architecture), windows(3, 5)
    weights = torch.rand(3, 5, generator=generator(7))
    at_once, in_turn = (ModelKernel(architecture, next_token, way) for way in ("vmap", "loop"))
    before = {name: each.clone() for name, each in architecture.constants.items()}
    for given in (None, weights):
        first, second = (kernel.gradients(flat, x, y, given) for kernel in (at_once, in_turn))
        assert float(first.abs().max()) > 1e-3
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(at_once.losses(flat, x, y), in_turn.losses(flat, x, y), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(at_once.outputs(flat, x), in_turn.outputs(flat, x), rtol=1e-5, atol=1e-5)
    assert all(torch.equal(before[name], each) for name, each in architecture.constants.items())


@pytest.mark.parametrize("model", MAKE)
def test_losses_and_gradients_are_those_of_torch(model: str, tmp_path: Path) -> None:
    architecture = MAKE[model](tmp_path)
    flat, (x, y) = models(architecture, 1), windows(1, 5)
    leaf = flat[0].clone().requires_grad_()
    logits = architecture.forward(leaf, x[0])
    assert logits.shape == (5, SHAPE.context, SHAPE.vocabulary)
    loss = functional.cross_entropy(logits.reshape(-1, SHAPE.vocabulary), y[0].reshape(-1))
    (gradient,) = torch.autograd.grad(loss, leaf)
    kernel = ModelKernel(architecture, next_token, "loop")
    torch.testing.assert_close(kernel.losses(flat, x, y), loss.detach()[None])
    torch.testing.assert_close(kernel.gradients(flat, x, y)[0], gradient)
    torch.testing.assert_close(kernel.losses_of_each(flat, x, y).mean(dim=1), loss.detach()[None])


# --- what is measured ---------------------------------------------------------------------------------------


def test_perplexity_is_e_to_the_mean_loss_of_a_token() -> None:
    architecture = whole()
    flat, (x, y) = models(architecture, 2), windows(1, 5)
    data = only_tests(x[0], y[0], [np.array([0, 2, 4]), np.array([1, 2, 3])]).test
    names = ("perplexity", "loss", "accuracy", "objective")
    found = measure_models(
        "language", ModelKernel(architecture, next_token, "vmap"), flat, data, [0, 1], names=names
    )
    for client, rows in enumerate(([0, 2, 4], [1, 2, 3])):
        logits = architecture.forward(flat[client], x[0, rows]).reshape(-1, SHAPE.vocabulary)
        tokens = y[0, rows].reshape(-1)
        loss = float(functional.cross_entropy(logits, tokens))
        right = float((logits.argmax(dim=1) == tokens).float().mean())
        measured = [found[name][client] for name in names]
        np.testing.assert_allclose(measured, [math.exp(loss), loss, right, loss], rtol=1e-5)


def test_an_ensemble_averages_the_probabilities_of_tokens() -> None:
    architecture = whole()
    flat, (x, y) = models(architecture, 2), windows(1, 4)
    data, shares = only_tests(x[0], y[0], [np.arange(4)]).test, torch.tensor([[0.25, 0.75]])
    kernel = ModelKernel(architecture, next_token, "vmap")
    found = measure_models("language", kernel, flat[None], data, [0], shares)
    each = [architecture.forward(model, x[0]).softmax(dim=-1) for model in flat]
    mixed = (0.25 * each[0] + 0.75 * each[1]).gather(-1, y[0][..., None])
    assert found["loss"][0] == pytest.approx(float(-mixed.log().mean()), rel=1e-5)
    assert found["perplexity"][0] == pytest.approx(math.exp(found["loss"][0]))


# --- tokens -------------------------------------------------------------------------------------------------


def test_bytes_and_characters() -> None:
    assert ByteTokenizer().numbers("añ").tolist() == [97, 195, 177]
    tokenizer = CharacterTokenizer(["banana", "nb é"])
    assert (tokenizer.alphabet, tokenizer.vocabulary) == (" abné", 6)
    assert tokenizer.numbers("nab!é").tolist() == [4, 2, 3, 0, 5]
    assert (
        tokenizer.identity == CharacterTokenizer([" abné"]).identity != CharacterTokenizer(["abné"]).identity
    )


def test_a_tokenizer_of_a_file(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "cat": 1, "dog": 2}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = TokenizerFile(InputFile("data.tokenizer", tmp_path / "tokenizer.json"))
    assert tokenizer.vocabulary == 3
    assert tokenizer.numbers("dog cat\nbird cat").tolist() == [2, 1, 0, 1]
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(
        UserError, match=r"data.tokenizer: .*other.json: is not a tokenizer.json, or is damaged"
    ):
        TokenizerFile(InputFile("data.tokenizer", tmp_path / "other.json"))


def word_level(folder: Path, vocabulary: dict[str, int], kind: str = "words") -> Path:
    """A tokenizer.json that knows these words, or pieces of words."""
    tokenizers = pytest.importorskip("tokenizers")
    models = tokenizers.models
    made = tokenizers.Tokenizer(
        models.WordLevel(vocabulary, unk_token="[UNK]") if kind == "words" else models.BPE(vocabulary, [])
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("holes", [(), (1,), (1, 2, 3, 700)])
def test_numbers_of_a_tokenizer_may_have_holes(tmp_path: Path, holes: tuple[int, ...]) -> None:
    """As camembert-base's have: there is room for the largest number, and not for so many tokens."""
    numbers = [number for number in range(800) if number not in holes][:700]
    words = {"[UNK]": numbers[0]} | {f"w{place}": number for place, number in enumerate(numbers[1:])}
    file = word_level(tmp_path, words)
    (tmp_path / "text.txt").write_text(" ".join(words) * 2)
    files = [{"language": "ab", "file": str(tmp_path / "text.txt")}]
    keys = {"name": "text", "texts": files, "context": 9, "tokenizer": str(file)}
    section = DATASETS["text"].model_validate(keys)
    dataset = section.load(1, 1, DataFolder())
    assert dataset.outputs == numbers[-1] + 1 > max(dataset.train_x.max(), dataset.test_x.max())


@pytest.mark.parametrize(("kind", "known"), [("words", "aaaa"), ("pieces", "a")])
def test_a_tokenizer_that_hardly_knows_the_texts(tmp_path: Path, kind: str, known: str) -> None:
    """What is unknown is one token, or none."""
    file = word_level(tmp_path, {"[UNK]": 0, known: 1}, kind)
    (tmp_path / "text.txt").write_text("aaaa bbbb cccc dddd eeee\n" * 99)
    files = [{"language": "ab", "file": str(tmp_path / "text.txt")}]
    keys = {"name": "text", "texts": files, "context": 9, "tokenizer": str(file)}
    [said] = DATASETS["text"].model_validate(keys).load(1, 1, DataFolder()).notices
    assert (
        "has tokens for 20% of the characters in the text of ab. All other characters share one token" in said
    )
    for other in ("bytes", "characters"):
        keys["tokenizer"] = other
        assert DATASETS["text"].model_validate(keys).load(1, 1, DataFolder()).notices == ()


def test_a_tokenizer_without_a_token_for_unknown_words(tmp_path: Path) -> None:
    file = word_level(tmp_path, {"aaaa": 0, "dddd": 1})
    tokenizer = TokenizerFile(InputFile("data.tokenizer", file))
    assert tokenizer.numbers("aaaa dddd").tolist() == [0, 1]
    with pytest.raises(UserError, match=r"tokenizer\.json: cannot be applied to the text: .*\[UNK\]"):
        tokenizer.numbers("aaaa bbbb")


# --- texts --------------------------------------------------------------------------------------------------


def texts(folder: Path, **keys: Any) -> TextData:
    for name, letters in (("ab", "ab"), ("cd", "cd"), ("ef", "ef")):
        (folder / f"{name}.txt").write_text("".join(letters[n % 2] for n in range(500)))
    files = [{"language": name, "file": str(folder / f"{name}.txt")} for name in ("ab", "cd", "ef")]
    files[0]["family"] = files[2]["family"] = "vowels"
    section = DATASETS["text"].model_validate({"name": "text", "texts": files, "context": 9, **keys})
    assert isinstance(section, TextData)
    return section


def loaded(section: TextData) -> Dataset:
    return section.load(4, 1, DataFolder())


def test_windows_follow_each_other_and_targets_are_the_next_tokens(tmp_path: Path) -> None:
    data = loaded(texts(tmp_path, tokenizer="characters"))
    assert data.train_x.shape == data.train_y.shape == (3 * 49, 9)  # (450 - 1) // 9
    assert data.test_x.shape == (3 * 5, 9)
    assert data.train_x.dtype == data.train_y.dtype == np.int64
    assert (data.outputs, data.input_shape) == (7, (9,))
    assert np.array_equal(data.train_x[:, 1:], data.train_y[:, :-1])
    assert np.array_equal(data.train_x[1:49, 0], data.train_y[:48, -1])
    assert data.train_x[49].tolist() == [3, 4, 3, 4, 3, 4, 3, 4, 3]


def test_clients_are_called_after_their_language_and_share_its_windows(tmp_path: Path) -> None:
    section = texts(tmp_path, windows=20, test_windows=3, validation_share=0.25)
    data = loaded(section)
    partition, validation = section.share_out(data, 4, seed=1)
    assert partition.names == ("ab-1", "ab-2", "cd-1", "ef-1")
    assert partition.clusters == (0, 0, 1, 0)
    assert [len(rows) for rows in partition.train] == [15] * 4
    assert [len(rows) for rows in validation] == [5] * 4
    owned = [set(train) | set(held) for train, held in zip(partition.train, validation, strict=True)]
    assert not owned[0] & owned[1]
    assert all(
        rows < set(range(49 * place, 49 * (place + 1)))
        for rows, place in zip(owned, (0, 0, 1, 2), strict=True)
    )
    assert np.array_equal(partition.test[0], partition.test[1]) and len(partition.test[0]) == 3
    again = section.share_out(data, 4, seed=1)[0]
    assert all(map(np.array_equal, again.train, partition.train))


def test_by_default_all_windows_are_dealt(tmp_path: Path) -> None:
    section = texts(tmp_path)
    partition, _ = section.share_out(loaded(section), 4, seed=1)
    assert [len(rows) for rows in partition.train] == [25, 24, 49, 49]
    assert [len(rows) for rows in partition.test] == [5] * 4


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"windows": 30}, r"data.windows = 30: 2 clients share 49 windows of ab; use fewer"),
        (
            {"context": 50},
            r"data.context = 50: the test text of ab has only \d+ tokens; must have at least 51",
        ),
    ],
)
def test_too_little_text_is_refused(keys: dict[str, Any], problem: str, tmp_path: Path) -> None:
    section = texts(tmp_path, **keys)
    with pytest.raises(UserError, match=problem):
        section.share_out(loaded(section), 4, seed=1)


def test_every_language_needs_a_client_and_a_name_of_its_own(tmp_path: Path) -> None:
    (misfit,) = texts(tmp_path).misfits(2)
    assert (misfit.key, misfit.value) == ("clients.count", 2) and "3 languages (ab, cd, ef)" in misfit.problem
    twice = [{"language": "ab", "file": "a.txt"}] * 2
    with pytest.raises(ValueError, match="must name a different language for each text"):
        DATASETS["text"].model_validate({"name": "text", "texts": twice})
    with pytest.raises(ValueError, match="language"):
        DATASETS["text"].model_validate({"name": "text", "texts": [{"language": "../x", "file": "a.txt"}]})


# --- bases --------------------------------------------------------------------------------------------------


def test_a_base_is_read_as_it_was_written(tmp_path: Path) -> None:
    base = load_base(file_of(saved(tmp_path)))
    assert (base.shape, base.tokenizer) == (SHAPE, "bytes")
    assert all(torch.equal(each, base.weights[name]) for name, each in random_weights().items())


def spoil_tensors(change: Callable[[dict[str, Tensor]], None], **notes: Any) -> Callable[[Path], Path]:
    def spoilt(folder: Path) -> Path:
        weights = random_weights()
        change(weights)
        path = folder / "base.safetensors"
        save_base(path, weights, BaseNotes(**{"heads": SHAPE.heads, "tokenizer": "bytes"} | notes))
        return path

    return spoilt


def truncated(folder: Path) -> Path:
    path = saved(folder)
    os.truncate(path, path.stat().st_size // 2)
    return path


def without_notes(folder: Path) -> Path:
    from safetensors.torch import save_file

    save_file(random_weights(), folder / "base.safetensors")
    return folder / "base.safetensors"


def checkpoint(config: dict[str, Any], *gone: str) -> Callable[[Path], Path]:
    def changed(folder: Path) -> Path:
        shutil.copytree(GPT2, folder / "gpt2")
        path = folder / "gpt2" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        for name in gone:
            (folder / "gpt2" / name).unlink()
        return folder / "gpt2"

    return changed


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "base.safetensors")
    return folder / "base.safetensors"


SPOILT: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no file": (lambda folder: folder / "base.safetensors", "no such file"),
    "a pipe": (pipe, "must be a regular file"),
    "truncated": (truncated, "is not a .safetensors file, or is damaged"),
    "without notes": (without_notes, "does not give the number of heads"),
    "heads that do not fit": (
        spoil_tensors(lambda weights: None, heads=3),
        "8 numbers; must be a multiple of 3, the number of heads",
    ),
    "no embedding": (spoil_tensors(lambda weights: weights.pop("wte.weight")), "has no matrix wte.weight"),
    "a layer missing": (spoil_tensors(lambda weights: weights.pop("h.1.ln_2.bias")), "has no h.1.ln_2.bias"),
    "an unknown layer": (
        spoil_tensors(lambda weights: weights.update(other=torch.ones(2))),
        "contains other, which is not in GPT-2's architecture",
    ),
    "a wrong shape": (
        spoil_tensors(lambda weights: weights.update({"ln_f.bias": torch.ones(9)})),
        r"ln_f.bias: has shape \(9,\); must be \(8,\)",
    ),
    "not a number": (
        spoil_tensors(lambda weights: weights["ln_f.bias"].fill_(math.nan)),
        "ln_f.bias: contains numbers that are not finite",
    ),
    "whole numbers": (
        spoil_tensors(lambda weights: weights.update({"ln_f.bias": torch.ones(8, dtype=torch.int64)})),
        "ln_f.bias: contains torch.int64; must contain real numbers",
    ),
    "a block of a huge number": (
        spoil_tensors(lambda weights: weights.update({"h.999999.ln_2.bias": torch.ones(8)})),
        "contains a block 999999, but only",
    ),
    "another architecture": (
        checkpoint({"model_type": "opt"}),
        "config.json: is not the configuration of a model that coterie supports: model_type is .opt.",
    ),
    "another activation": (
        checkpoint({"activation_function": "relu"}),
        "activation_function = .relu.: coterie does not support this setting of GPT-2; must be .gelu_new.",
    ),
    "other sizes": (checkpoint({"n_layer": 3}), "model.safetensors: contains .*depth=2.*depth=3"),
    "no weights": (checkpoint({}, "model.safetensors"), "has no model.safetensors: save_pretrained"),
    "no configuration": (checkpoint({}, "config.json"), "config.json: no such file"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_no_base_is_refused(what: str, tmp_path: Path) -> None:
    make, problem = SPOILT[what]
    path = make(tmp_path)
    with pytest.raises(UserError, match=problem) as refused:
        load_base(file_of(path))
    assert str(refused.value).startswith(f"model.base: {path}")


def dataset() -> Dataset:
    x = np.zeros((2, SHAPE.context), dtype=np.int64)
    return Dataset(x, x, x, x, SHAPE.vocabulary, tokenizer="bytes")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tokenizer": "characters"}, "was trained with the tokenizer bytes, but data.tokenizer is"),
        ({"outputs": 12}, "knows 11 tokens, but data.tokenizer has 12"),
        (
            {"train_x": np.zeros((2, 7), dtype=np.int64)},
            "data.context = 7: .* has positions for at most 6 tokens",
        ),
    ],
)
def test_a_base_that_does_not_suit_the_data_is_refused(
    changed: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    section = Lora.model_validate({"name": "lora", "base": str(saved(tmp_path))})
    section.load(dataset(), DataFolder())
    with pytest.raises(UserError, match=problem):
        section.load(replace(dataset(), **changed), DataFolder())


# --- pretraining --------------------------------------------------------------------------------------------


def settings(folder: Path, **keys: Any) -> Pretraining:
    (folder / "corpus.txt").write_text("the cat sat on the mat. " * 40)
    small = {"context": 8, "width": 8, "depth": 1, "heads": 2, "steps": 60, "batch_size": 8, "seed": 5}
    paths = {"out": str(folder / "base.safetensors"), "corpus": str(folder / "corpus.txt")}
    return Pretraining.model_validate(small | paths | keys)


def test_a_base_is_trained_and_says_on_what(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    chosen = settings(tmp_path, learning_rate=0.02)
    path, loss = pretrain(chosen, DataFolder(), lambda step, loss: told.append((step, loss)))
    assert [step for step, _ in told] == list(range(1, 61))
    assert loss < 4.0 < 5.0 < told[0][1]
    assert loss == pytest.approx(np.mean([loss for _, loss in told[-6:]]))
    base = load_base(file_of(path))
    assert base.shape == TransformerShape(vocabulary=256, context=8, width=8, depth=1, heads=2, inner=32)
    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        notes = json.loads(opened.metadata()["coterie"])
    assert len(notes["corpus_sha256"]) == 64 and notes["settings"]["steps"] == 60


def test_equal_settings_give_equal_files(tmp_path: Path) -> None:
    contents = []
    for seed in (5, 5, 6):
        path, _ = pretrain(settings(tmp_path, steps=3, seed=seed), DataFolder())
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"context": 5_000}, "corpus: has 960 tokens; must have more than the context, 5,000"),
        ({"out": "nowhere/base.safetensors"}, "the folder nowhere does not exist; use an existing folder"),
        ({"corpus": "missing.txt"}, 'corpus = "missing.txt": no such file in the current folder'),
    ],
)
def test_what_cannot_be_trained_is_refused(keys: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem):
        pretrain(settings(tmp_path, **keys), DataFolder())


def test_training_that_diverges_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "_rate", lambda step, steps: 1e38)
    with pytest.raises(UserError, match=r"learning_rate = 0.002: in step \d the loss is no longer finite"):
        pretrain(settings(tmp_path), DataFolder())
    assert not (tmp_path / "base.safetensors").exists()


def test_heads_share_the_width_and_files_are_named_for_what_they_are() -> None:
    with pytest.raises(ValueError, match="must divide the width, 128"):
        Pretraining(heads=3)
    with pytest.raises(ValueError, match=r"must end in \.safetensors"):
        Pretraining(out="base.pt")


def test_modules_of_a_base_start_as_gpt2_does() -> None:
    module: nn.Module = whole().module
    flat = whole().initial(generator())
    parts = whole().unflatten(flat)
    assert {name for name, _ in module.named_parameters()} == set(parts)
    assert parts["wte.weight"].std() == pytest.approx(0.02, rel=0.2)
    assert not parts["h.0.attn.c_attn.bias"].any() and parts["h.0.ln_1.weight"].eq(1).all()
