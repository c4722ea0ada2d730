"""Settings never change, and so hold no lists."""

import pytest

from actors.settings.base import Settings


def test_a_list_in_settings_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Own\.sizes must be tuple\[int, \.\.\.\], not a list, as settings"):

        class Own(Settings):
            sizes: list[int] | None = None


def test_lists_of_a_file_arrive_as_tuples() -> None:
    class Own(Settings):
        sizes: tuple[tuple[int, ...], ...] = ()

    assert Own.model_validate({"sizes": [[1, 2], []]}).sizes == ((1, 2), ())
