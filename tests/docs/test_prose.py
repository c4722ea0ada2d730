"""The linter of prose finds the constructions that it is for, where they stand, and no others."""

from pathlib import Path

import pytest

from docs.build.prose import ALLOWED, findings, main, problems

ODD = (
    "what local does not know is left out, and told",
    "the scenario's mistakes are answered with file, key and value",
    "prolongs a run that has lasted for its duration",
    "Earlier results stay, unless you say `--overwrite`",
    "differences to the paper",
    "knows nothing of what the class changes",
    "one behind the other",
    "nobody's silence",
    "so many runs use the cores meanwhile",
    "so many threads of this process",
    "each once, and all else as it comes",
    "a class that was written in none",
    "which nobody can have meant",
    "twice the wait for each of so many times",
    "for nothing: it takes long the first time",
    "a neighbour of which nothing is known",
    "so that one sees it",
    "before a run, not behind it",
    "nobody knows before",
    "for who asks for it without being one",
    "the begin of the cycle",
    "its scenario is another one now",
    "until a later time prolongs it",
    "so that nobody would ever come",
    "or of few at a time",
    "the process has no begin",
    "a process of its own",
    "cancelled jobs of the neighbours",
    "the colour of an initialised model, labelled in grey",
    "starts from a file, instead of with drawn values",
    "executes the copy, and with that the archive",
)
ODD_STARTS = (
    "What the processes prove to each other.",
    "So many threads of this process.",
    "Who they are by.",
    "Whose rounds were in vain.",
    "None for none.",
    "Its numbers.",
    "How many there are.",
)
PLAIN = (
    "A scenario without step times or link speeds is rejected.",
    "No client sees a result before its job ends in virtual time.",
    "Earlier results are kept unless you pass `--overwrite`.",
    "`extend` extends a finished run.",
    "Differences from the paper.",
    "`what is sent` and `nobody`, as code.",
    "A client who asks a peer waits for its answer.",
    "`neighbour_weights` and neighbour_mean return weights; neighbours: names; data.standardise = true",
    "The analyses of canceled jobs, otherwise precise, promise a programmer a surprise.",
)


@pytest.mark.parametrize("sentence", ODD)
def test_odd_sentences_are_found(sentence: str) -> None:
    assert problems(sentence)


@pytest.mark.parametrize("sentence", ODD_STARTS)
def test_odd_starts_of_docstrings_are_found(sentence: str) -> None:
    assert problems(sentence, is_docstring=True)


@pytest.mark.parametrize("sentence", PLAIN)
def test_plain_sentences_are_left_alone(sentence: str) -> None:
    assert problems(sentence, is_docstring=True) == []


CODE = '''\
"""A module."""

LIMIT = 3  # so many
"""What fits."""


def send(count: int) -> str:
    """Send messages.

    count: so many of them.
    """
    if not count:
        raise ValueError(f"{count} messages: nobody gets one")
    # Anybody may read it.  prose: allow
    return "nobody"
'''


def test_findings_name_the_line_in_docstrings_comments_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(CODE)
    assert [(each.line, each.found) for each in findings(path)] == [
        (3, "so many"),
        (4, "What"),
        (10, "so many"),
        (13, "nobody"),
    ]
    assert ALLOWED in CODE


def test_code_of_pages_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```\nnobody\n```\n\nText with `nobody`,\nand nobody.\n")
    assert main([str(page)]) == 1
    assert capsys.readouterr().out == (
        "page.md:8: 'nobody': write the noun: a client, a user, no peer, all peers\n"
    )
    page.write_text("# A page\n")
    assert main([str(page)]) == 0
    assert capsys.readouterr().out == ""
