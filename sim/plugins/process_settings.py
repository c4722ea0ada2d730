"""Settings of torch that hold for the whole process, and that the user's code must leave as they are."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def settings_kept() -> Iterator[None]:
    """Restore torch's default dtype and device after the user's code; ValueError if it changed them.

    All clients' models are float32, on the device of the run, whatever another file has loaded before.
    """
    before = _settings()
    try:
        yield
    finally:
        changed = [name for name, value in _settings().items() if value != before[name]]
        if changed:
            import torch

            torch.set_default_dtype(getattr(torch, before["dtype"].removeprefix("torch.")))
            torch.set_default_device(None if before["device"] == "cpu" else before["device"])
    if changed:
        raise ValueError(
            f"it changes torch's default {changed[0]} for the whole process: leave torch.set_default_"
            f"{changed[0]} out (models are float32, on the device that --device or engine.device says)"
        )


def _settings() -> dict[str, Any]:
    """What holds now; before torch is imported, what will hold then."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):
        return {"dtype": "torch.float32", "device": "cpu"}
    return {"dtype": str(torch.get_default_dtype()), "device": str(torch.get_default_device())}
