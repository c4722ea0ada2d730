"""Texts: windows of tokens for the prediction of the next token; each client has one language."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, assert_never

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import Count, ShareBelowOne, Within
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.files.input_file import no_room_message
from sim.files.named_files import DataFile
from sim.kernel.random import stream
from sim.learning.data.dataset import DataSection, Dataset, Rows, empty_validation_rows
from sim.learning.partitions.dealing import (
    Owners,
    StatedCount,
    cluster_by_client,
    deal,
    even_sizes,
    rows_by_class,
)
from sim.learning.partitions.partition import Partition

if TYPE_CHECKING:
    from sim.learning.language.tokenizers import Tokenizer

_KNOWN_MIN = 0.95  # share of the characters of a text
_CHARACTER_BYTES = 48  # memory of a character until windows of tokens are made


class TextData(DataSection):
    """Texts in several languages. Clients are distributed over the languages in blocks.

    The name of a client consists of its language and a number: ca-1.
    """

    tasks = ("language",)
    classes = None
    input_shape = None

    tokenizer: DataFile = "bytes"
    """Tokenizer: "bytes", "characters" (the characters of the training texts), or a tokenizer.json of the
    package `tokenizers`. A base model needs the tokenizer with which it was trained."""
    context: Annotated[Count, Within(1, 100_000)] = 64
    """Number of tokens in a window, which is one sample."""
    windows: Count | None = None
    """Training windows of each client, including those for validation. By default all windows of a language
    are distributed to its clients."""
    test_windows: Count | None = None
    """Largest number of test windows of a client; all clients of a language have the same test windows."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training windows that it holds out for validation."""

    @property
    @abstractmethod
    def languages(self) -> tuple[str, ...]:
        """Languages, in order."""

    @property
    @abstractmethod
    def families(self) -> tuple[str, ...]:
        """Cluster of each language: clients of one cluster are expected to find each other."""

    @abstractmethod
    def read(self, folder: DataFolder) -> list[tuple[str, str]]:
        """Return the training text and the test text of each language. Raises UserError."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if clients < len(self.languages):
            some = f"{len(self.languages)} languages ({', '.join(self.languages)})"
            yield SettingError("clients.count", clients, f"needs at least one client for each of the {some}")

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return the windows of all languages: x int64 [n, context], and y, the next tokens."""
        from sim.learning.language.tokenizers import tokenizer_called

        texts = self.read(folder)
        characters = sum(len(each) for pair in texts for each in pair)
        if problem := no_room_message(characters * _CHARACTER_BYTES):
            raise UserError(f'data.name = "{self.name}": {problem}')
        trained = [training for training, _ in texts]
        tokenizer = tokenizer_called(self.tokenizer, trained, "data.tokenizer", folder)
        parts = []
        for index in (0, 1):
            tokens = [tokenizer.numbers(text[index]) for text in texts]
            for language, found in zip(self.languages, tokens, strict=True):
                if len(found) <= self.context:
                    purpose = ("training", "test")[index]
                    problem = f"the {purpose} text of {language} has only {len(found):,} tokens"
                    least = f"must have at least {self.context + 1:,}, one more than the context"
                    raise UserError(f"data.context = {self.context}: {problem}; {least}")
            windows = list(map(self._windows, tokens))
            whose = np.repeat(np.arange(len(windows)), [len(found) for found in windows])
            parts.append((np.concatenate(windows), whose))
        (train, of_train), (test, of_test) = parts
        owners = Owners(self.languages, of_train, of_test, np.empty(0, np.int64))
        inputs, whole = slice(None, -1), np.ascontiguousarray
        return Dataset(
            whole(train[:, inputs]),
            whole(train[:, 1:]),
            whole(test[:, inputs]),
            whole(test[:, 1:]),
            tokenizer.vocabulary,
            owners=owners,
            tokenizer=tokenizer.identity,
            notices=tuple(self._unknown(tokenizer, trained)),
        )

    def _unknown(self, tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[str]:
        """Yield a line for each language of which the tokenizer knows too few characters."""
        for language, text in zip(self.languages, texts, strict=True):
            if (known := tokenizer.known_share(text)) < _KNOWN_MIN:
                yield (
                    f'data.tokenizer = "{self.tokenizer}": has tokens for {known:.0%} of the characters in '
                    f"the text of {language}. All other characters share one token, which is easy to "
                    "predict, so "
                    'a low perplexity means little. Use a tokenizer of this language, or "bytes"'
                )

    def _windows(self, tokens: np.ndarray) -> np.ndarray:
        """Return windows [n, context + 1]; each starts with the last token of the previous one."""
        count = (len(tokens) - 1) // self.context
        firsts = np.arange(max(0, count))[:, None] * self.context
        return tokens[firsts + np.arange(self.context + 1)]

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """Return random training windows of each client's language, and test windows.

        Clients of one language have the same test windows.
        """
        owners, languages = dataset.owners, len(self.languages)
        assert owners is not None and owners.test is not None
        sizes = even_sizes(clients, languages)
        of_language = [rows_by_class(whose, languages) for whose in (owners.train, owners.test)]
        each = None if self.windows is None else StatedCount("data.windows", self.windows)
        train: list[np.ndarray] = []
        tested = [self._tested(*each, seed) for each in zip(of_language[1], self.languages, strict=True)]
        for rows, language, count in zip(of_language[0], self.languages, sizes, strict=True):
            if each is not None and count * each.number > len(rows):
                problem = f"{count} clients share {len(rows):,} windows of {language}"
                raise UserError(f"{each.key} = {each.number}: {problem}; use fewer windows")
            mixed = stream(seed, "text", language).permutation(rows)
            train += deal(mixed, count, each)
        spoken, families = cluster_by_client(sizes), list(dict.fromkeys(self.families))
        numbered = [(index, number) for index, own in enumerate(sizes) for number in range(1, own + 1)]
        partition = Partition(
            tuple(train),
            tuple([tested[index] for index in spoken]),
            clusters=tuple([families.index(self.families[index]) for index in spoken]),
            names=tuple([f"{self.languages[index]}-{number}" for index, number in numbered]),
        )
        if not self.validation_share:
            return partition, empty_validation_rows(clients)
        held_back = partition.hold_back(self.validation_share, seed)
        assert held_back.validation is not None
        return replace(held_back, validation=None), held_back.validation

    def _tested(self, rows: np.ndarray, language: str, seed: int) -> np.ndarray:
        """Return the test windows of a language that are used."""
        if self.test_windows is None or self.test_windows >= len(rows):
            return rows
        return np.sort(stream(seed, "text", language, "test").choice(rows, self.test_windows, replace=False))


class FourLanguages(TextData):
    """Sentences in Catalan, Spanish, German and Dutch: 400,000 characters of each."""

    name: Literal["text-4lang"]
    """Name of the data set."""
    clusters: Literal["families", "languages"] = "families"
    """Clusters of clients: by family (Catalan and Spanish, German and Dutch), or by language."""

    @property
    def languages(self) -> tuple[str, ...]:
        return ("ca", "es", "de", "nl")

    @property
    def families(self) -> tuple[str, ...]:
        match self.clusters:
            case "families":
                return ("romance", "romance", "germanic", "germanic")
            case "languages":
                return self.languages
            case _:
                assert_never(self.clusters)

    def read(self, folder: DataFolder) -> list[tuple[str, str]]:
        """Read `text-4lang/ca.train.txt`, `text-4lang/ca.test.txt`, ... in the data folder."""

        def text(language: str, part: str) -> str:
            return folder.trace('data.name = "text-4lang"', "text-4lang", f"{language}.{part}.txt").text()

        return [(text(each, "train"), text(each, "test")) for each in self.languages]


class TextFile(Settings):
    """Text of one language, or of any other group of clients."""

    language: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,32}$")]
    """Name of letters, digits and "_"; clients are named after it."""
    file: DataFile
    """Text, in UTF-8. The path is relative to the current folder, the scenario's folder, or the data
    folder."""
    test_file: DataFile | None = None
    """Text for testing; by default the last tenth of `file`, which is then not used for training."""
    family: str | None = None
    """Family: the cluster of clients that are expected to find each other; by default the language."""

    def texts(self, number: int, folder: DataFolder) -> tuple[str, str]:
        """Return the text for training and the text for testing. Raises UserError.

        number: index of this entry in `data.texts`.
        """
        text = folder.file(f"data.texts.{number}.file", self.file).text()
        if self.test_file is not None:
            return text, folder.file(f"data.texts.{number}.test_file", self.test_file).text()
        end = len(text) - len(text) // 10
        return text[:end], text[end:]


class OwnTexts(TextData):
    """Your own text files, one for each language or other group of clients."""

    name: Literal["text"]
    """Name of the data set."""
    texts: Annotated[tuple[TextFile, ...], Field(min_length=1)]
    """Texts: `[{ language = "ca", file = "ca.txt" }, { language = "es", file = "es.txt" }]`."""

    @model_validator(mode="after")
    def _each_once(self) -> OwnTexts:
        if len(set(self.languages)) < len(self.texts):
            problem = "must name a different language for each text"
            raise SettingError("texts", self.languages, problem)
        return self

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple([each.language for each in self.texts])

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(
            [f"language {each.language}" if each.family is None else each.family for each in self.texts]
        )

    def read(self, folder: DataFolder) -> list[tuple[str, str]]:
        return [each.texts(number, folder) for number, each in enumerate(self.texts)]
