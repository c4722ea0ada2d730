"""What `make size` prints: lines by kind, and how many more there are than at a revision of git."""

from collections import Counter

from benchmarks.size import at, by_package, counted, table

MODULE = '''"""What it is.

More of it.
"""

import sys  # the code counts


class A:
    """A class."""

    # why
    text = """of a
    value"""
'''


def test_docstrings_and_comments_are_words_and_texts_are_code() -> None:
    assert counted(MODULE) == Counter(words=6, code=4, blank=4)


def test_packages_are_added_up_and_compared() -> None:
    now = by_package(iter([("sim/a.py", MODULE), ("sim/b/c.py", "x = 1\n"), ("tests/t.py", "x = 1\n")]))
    before = by_package(iter([("sim/a.py", "x = 1\n")]))
    assert now["sim"] == Counter(words=6, code=5, blank=4)
    rows = [line.split() for line in table(now, before).splitlines()]
    assert rows[1:] == [["sim", "15", "5", "6", "4", "+14"], ["tests", "1", "1", "0", "0", "+1"]]
    assert table(now, {}).splitlines()[1].split() == ["sim", "15", "5", "6", "4"]


def test_of_a_revision_that_git_does_not_know_nothing_is_told() -> None:
    assert list(at("no-such-revision")) == []
