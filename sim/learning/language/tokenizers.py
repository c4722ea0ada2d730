"""Tokenizers of texts: bytes, characters, or a tokenizer in a file of the package `tokenizers`."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.errors import one_line, require_packages
from sim.files.input_file import SETTINGS_BYTES, InputFile

if TYPE_CHECKING:
    from sim.files.data_folder import DataFolder

BYTES, CHARACTERS = "bytes", "characters"
_LARGEST = 10_000_000  # vocabulary
_LOOKED_AT = 20_000  # characters, in which unknown ones are counted
_LINES = 4096  # at a time: the package takes more than a hundred bytes for each token
_CHARACTER_BYTES = 300  # memory of a character of a line
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Tokenizer(ABC):
    """Conversion of texts to token ids from 0 to `vocabulary` - 1.

    `identity` is equal for equal tokenizers: it shows whether a model was trained with these ids.
    """

    identity: str
    vocabulary: int

    @abstractmethod
    def numbers(self, text: str) -> np.ndarray:
        """Return the token ids of a text, int64 [tokens]."""

    def known_share(self, text: str) -> float:
        """Return the share of a text's characters, without white space, that are known to the tokenizer."""
        return 1.0


class ByteTokenizer(Tokenizer):
    """Bytes of UTF-8."""

    identity = BYTES
    vocabulary = 256

    def numbers(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


class CharacterTokenizer(Tokenizer):
    """Characters of some texts, in order, after one id for all other characters."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.alphabet = "".join(sorted(set().union(*texts) - {_UNKNOWN}))
        self.vocabulary = 1 + len(self.alphabet)
        self.identity = f"{CHARACTERS} {hashlib.blake2b(self.alphabet.encode(), digest_size=8).hexdigest()}"
        self._codes = np.frombuffer(self.alphabet.encode("utf-32-le"), np.uint32)

    def numbers(self, text: str) -> np.ndarray:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        indices = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        return np.where(self._codes[indices] == codes, indices + 1, 0).astype(np.int64)


class TokenizerFile(Tokenizer):
    """A tokenizer.json file of the package `tokenizers`. Raises UserError for another file."""

    def __init__(self, file: InputFile) -> None:
        require_packages("hf", f"{file.key}: {file.path}", "tokenizers")

        def parse(content: bytes) -> Any:
            from tokenizers import Tokenizer as Loaded

            return Loaded.from_buffer(content)

        content = file.content(SETTINGS_BYTES)
        self._file = file
        self._loaded = file.parsed(parse, "a tokenizer.json", SETTINGS_BYTES)
        model = json.loads(content).get("model") or {}
        number = self._loaded.token_to_id(str(model.get("unk_token")))
        self._unknown = model.get("unk_id") if number is None else number
        self._loaded.no_truncation()
        self._loaded.no_padding()
        # Ids may have gaps, for example where tokens were removed: the largest id counts.
        self.vocabulary = 1 + max(self._loaded.get_vocab().values(), default=-1)
        if not 0 < self.vocabulary <= _LARGEST:
            numbers = f"{self.vocabulary:,} token ids, gaps included"
            raise file.refusal(f"has {numbers}; must have from 1 to {_LARGEST:,}")
        self.identity = identity_of_file(content)

    def numbers(self, text: str) -> np.ndarray:
        # Line by line: words across lines bring no advantage, and the package takes quadratic time for some
        # texts.
        lines = text.splitlines(keepends=True)
        self._file.require_room(_CHARACTER_BYTES * max(map(len, lines), default=0))
        found = [np.empty(0, np.int64)]
        for index in range(0, len(lines), _LINES):
            encoded = self._encoded(lines[index : index + _LINES])
            found.append(np.array([number for line in encoded for number in line.ids], np.int64))
        return np.concatenate(found)

    def _encoded(self, lines: list[str]) -> list[Any]:
        """Return the package's encoding of each line. Raises UserError if it fails."""
        try:
            found: list[Any] = self._loaded.encode_batch(lines, add_special_tokens=False)
        except Exception as error:  # for example, an unknown word without a token for it
            raise self._file.refusal(f"cannot be applied to the text: {one_line(error, 200)}") from None
        return found

    def known_share(self, text: str) -> float:
        lines = text[:_LOOKED_AT].splitlines()
        known = 0
        for line, encoded in zip(lines, self._encoded(lines), strict=True):
            pairs = zip(encoded.ids, encoded.offsets, strict=True)
            covered = {index for number, span in pairs if number != self._unknown for index in range(*span)}
            known += sum(not line[index].isspace() for index in covered)
        return known / max(1, sum(not character.isspace() for line in lines for character in line))


def identity_of_file(content: bytes) -> str:
    """Return the identity of the tokenizer in a file."""
    return f"tokenizers {hashlib.blake2b(content, digest_size=8).hexdigest()}"


def tokenizer_called(name: str, texts: Iterable[str], key: str, folder: DataFolder) -> Tokenizer:
    """Return the tokenizer of a setting: "bytes", "characters" (those of `texts`), or the path of a file.

    Raises UserError for an invalid file.
    """
    if name == BYTES:
        return ByteTokenizer()
    if name == CHARACTERS:
        return CharacterTokenizer(texts)
    return TokenizerFile(folder.file(key, name))
