"""Methods that compare models on held-out samples are refused where none are held out."""

import pytest

from sim.errors import UserError
from tests.protocols.worlds import DIGITS, make


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("key", ["scool judged_on", "federico losses_on"])
def test_without_held_back_samples_check_says_so(key: str, mode: str) -> None:
    name, on = key.split()
    options = (f"protocol.name={name}", f"protocol.mode={mode}", f"protocol.{on}=validation")
    with pytest.raises(UserError, match=r"data\.validation_share.*must be more than 0"):
        make(DIGITS, *options)
    make(DIGITS, *options, "data.validation_share=0.25").close()
