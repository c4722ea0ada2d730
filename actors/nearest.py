"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def nearest(word: object, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known word that is most similar to `word`; None if no word is similar.

    likeness: required similarity, from 0 to 1 (difflib's ratio).
    """
    near = difflib.get_close_matches(str(word), list(known), n=1, cutoff=likeness)
    return near[0] if near else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` if a known word is similar, else an empty text."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"
