"""Lists that go with each other: a test says what is missing, and where to add it."""

from collections.abc import Collection


def require_listed(there: Collection[str], listed: Collection[str], where: str) -> None:
    """Fail unless a list names all that there is, and nothing else. where: the list and its file."""
    missing, gone = sorted(set(there) - set(listed)), sorted(set(listed) - set(there))
    assert not missing, f"add {', '.join(missing)} to {where}"
    assert not gone, f"remove {', '.join(gone)} from {where}: there is no such thing"
