"""What a run collects of warnings: advice as it is, and nothing of others."""

from __future__ import annotations

import warnings

import pytest

from sim.errors import Advice
from sim.run.unawaited import noticed


def test_advice_becomes_a_line_each_time_and_other_warnings_stay_what_they_are() -> None:
    with pytest.warns(UserWarning, match="other") as shown, noticed() as found:
        for _ in range(2):
            warnings.warn("take care", Advice, stacklevel=1)
        warnings.warn("other", UserWarning, stacklevel=1)
    assert found == ["take care"] * 2
    assert [str(each.message) for each in shown] == ["other"]
