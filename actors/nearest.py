"""The known name that a misspelt one may stand for."""

import difflib
from collections.abc import Iterable


def nearest(word: object, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that is most like `word`; None if none is.

    likeness: from 0 to 1, how much alike they must be (difflib's ratio).
    """
    near = difflib.get_close_matches(str(word), list(known), n=1, cutoff=likeness)
    return near[0] if near else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` if a known word is near, else nothing."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"
