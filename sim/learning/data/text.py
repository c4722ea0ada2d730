"""Texts: windows of tokens, whose next ones are predicted, of clients that each have one language."""

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
from sim.files.input_file import no_room
from sim.files.named_files import DataFile
from sim.kernel.random import stream
from sim.learning.data.dataset import DataSection, Dataset, Rows, no_validation
from sim.learning.partitions.dealing import (
    Owners,
    deal,
    even_sizes,
    membership,
    rows_by_class,
)
from sim.learning.partitions.partition import Partition

if TYPE_CHECKING:
    from sim.learning.language.tokenizers import Tokenizer

_KNOWN_MIN = 0.95  # of the characters of a text
_CHARACTER_BYTES = 48  # that a character takes until windows of tokens are made


class TextData(DataSection):
    """Texts in several languages. Clients are shared out over the languages in blocks.

    A client's name is that of its language and a number: ca-1.
    """

    tasks = ("language",)
    classes = None
    input_shape = None

    tokenizer: DataFile = "bytes"
    """How texts become numbers: "bytes", "characters" (those of the training texts), or a tokenizer.json of
    the package tokenizers. A base needs the one that it was trained with."""
    context: Annotated[Count, Within(1, 100_000)] = 64
    """Tokens in a window: a sample."""
    windows: Count | None = None
    """Training windows of each client, those for validation among them. By default all of a language are
    dealt to its clients."""
    test_windows: Count | None = None
    """At most so many test windows per client; all clients of a language have the same ones."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training windows that it holds back for its own validation."""

    @property
    @abstractmethod
    def languages(self) -> tuple[str, ...]:
        """The languages, in order."""

    @property
    @abstractmethod
    def families(self) -> tuple[str, ...]:
        """The cluster of each language: those of one are to find each other."""

    @abstractmethod
    def read(self, folder: DataFolder) -> list[tuple[str, str]]:
        """The training and the test text of each language. UserError."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if clients < len(self.languages):
            some = f"{len(self.languages)} languages ({', '.join(self.languages)})"
            yield SettingError("clients.count", clients, f"must be one for each language at least, of {some}")

    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """The windows of all languages: x int64 [n, context], and y, the tokens that follow each."""
        from sim.learning.language.tokenizers import tokenizer_called

        texts = self.read(folder)
        characters = sum(len(each) for pair in texts for each in pair)
        if problem := no_room(characters * _CHARACTER_BYTES):
            raise UserError(f'data.name = "{self.name}": {problem}')
        trained = [training for training, _ in texts]
        tokenizer = tokenizer_called(self.tokenizer, trained, "data.tokenizer", folder)
        parts = []
        for place in (0, 1):
            windows = [self._windows(tokenizer.numbers(text[place])) for text in texts]
            for language, found in zip(self.languages, windows, strict=True):
                if not len(found):
                    purpose = ("training", "test")[place]
                    problem = f"the {purpose} text of {language} has fewer tokens than a window and one more"
                    raise UserError(f"data.context = {self.context}: {problem}; must be fewer")
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
        """A line for each language that a tokenizer does not know well."""
        for language, text in zip(self.languages, texts, strict=True):
            if (known := tokenizer.known_share(text)) < _KNOWN_MIN:
                yield (
                    f'data.tokenizer = "{self.tokenizer}": knows {known:.0%} of the characters of the text '
                    f"of {language}; to predict the token of all others is easy, and a low perplexity says "
                    'little: take the tokenizer of this language, or "bytes"'
                )

    def _windows(self, tokens: np.ndarray) -> np.ndarray:
        """[n, context + 1], each of which begins with the last token of the one before."""
        count = (len(tokens) - 1) // self.context
        firsts = np.arange(max(0, count))[:, None] * self.context
        return tokens[firsts + np.arange(self.context + 1)]

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """To each client windows of its language, at random, and to all of a language the same for tests."""
        owners, languages = dataset.owners, len(self.languages)
        assert owners is not None and owners.test is not None
        sizes = even_sizes(clients, languages)
        of_language = [rows_by_class(whose, languages) for whose in (owners.train, owners.test)]
        train: list[np.ndarray] = []
        tested = [self._tested(*each, seed) for each in zip(of_language[1], self.languages, strict=True)]
        for rows, language, count in zip(of_language[0], self.languages, sizes, strict=True):
            if self.windows is not None and count * self.windows > len(rows):
                problem = f"{count} clients share {len(rows):,} windows of {language}"
                raise UserError(f"data.windows = {self.windows}: {problem}; must be fewer")
            mixed = stream(seed, "text", language).permutation(rows)
            train += deal(mixed, count, self.windows)
        spoken, families = membership(sizes), list(dict.fromkeys(self.families))
        numbered = [(place, number) for place, own in enumerate(sizes) for number in range(1, own + 1)]
        partition = Partition(
            tuple(train),
            tuple([tested[place] for place in spoken]),
            clusters=tuple([families.index(self.families[place]) for place in spoken]),
            names=tuple([f"{self.languages[place]}-{number}" for place, number in numbered]),
        )
        if not self.validation_share:
            return partition, no_validation(clients)
        held_back = partition.hold_back(self.validation_share, seed)
        assert held_back.validation is not None
        return replace(held_back, validation=None), held_back.validation

    def _tested(self, rows: np.ndarray, language: str, seed: int) -> np.ndarray:
        """The test windows that count, of those of a language."""
        if self.test_windows is None or self.test_windows >= len(rows):
            return rows
        return np.sort(stream(seed, "text", language, "test").choice(rows, self.test_windows, replace=False))


class FourLanguages(TextData):
    """Sentences in Catalan, Spanish, German and Dutch: 400,000 characters of each."""

    name: Literal["text-4lang"]
    """The data set."""
    clusters: Literal["families", "languages"] = "families"
    """Who is to find each other: a family (Catalan and Spanish, German and Dutch), or those of a language."""

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
        """From `text-4lang/ca.train.txt`, `text-4lang/ca.test.txt`, ... in the data folder."""

        def text(language: str, part: str) -> str:
            return folder.trace('data.name = "text-4lang"', "text-4lang", f"{language}.{part}.txt").text()

        return [(text(each, "train"), text(each, "test")) for each in self.languages]


class TextFile(Settings):
    """The text of one language, or of whatever tells texts apart."""

    language: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,32}$")]
    """Its name, of letters, digits and "_": clients are called after it."""
    file: DataFile
    """The text, in UTF-8. Its path is relative to the current folder, the scenario's, or the data folder."""
    test_file: DataFile | None = None
    """What clients are tested on; by default the last tenth of the text, which then is not trained on."""
    family: str | None = None
    """Those of one family are to find each other, in a cluster; by default those of one language."""

    def texts(self, number: int, folder: DataFolder) -> tuple[str, str]:
        """For training and for tests. UserError."""
        text = folder.file(f"data.texts.{number}.file", self.file).text()
        if self.test_file is not None:
            return text, folder.file(f"data.texts.{number}.test_file", self.test_file).text()
        end = len(text) - len(text) // 10
        return text[:end], text[end:]


class OwnTexts(TextData):
    """Text files of one's own: a language for each, or whatever tells texts apart."""

    name: Literal["text"]
    """The data set."""
    texts: Annotated[tuple[TextFile, ...], Field(min_length=1)]
    """The texts: `[{ language = "ca", file = "ca.txt" }, { language = "es", file = "es.txt" }]`."""

    @model_validator(mode="after")
    def _each_once(self) -> OwnTexts:
        if len(set(self.languages)) < len(self.texts):
            problem = "must have another language for each"
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
