"""Process-wide settings of torch, which user code must not change."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def restoring_torch_settings() -> Iterator[None]:
    """Restore torch's default dtype and device after user code. Raises ValueError if it changed them.

    All models are float32, on the device of the run.
    """
    before = _torch_settings()
    try:
        yield
    finally:
        changed = [name for name, value in _torch_settings().items() if value != before[name]]
        if changed:
            import torch

            torch.set_default_dtype(getattr(torch, before["dtype"].removeprefix("torch.")))
            torch.set_default_device(None if before["device"] == "cpu" else before["device"])
    if changed:
        raise ValueError(
            f"it changes torch's default {changed[0]} for the whole process; remove torch.set_default_"
            f"{changed[0]} (models are float32, on the device of --device or engine.device)"
        )


def _torch_settings() -> dict[str, Any]:
    """Return the current settings, or torch's defaults before it is imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):
        return {"dtype": "torch.float32", "device": "cpu"}
    return {"dtype": str(torch.get_default_dtype()), "device": str(torch.get_default_device())}
