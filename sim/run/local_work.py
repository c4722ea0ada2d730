"""Training of an iteration, as a method's settings state it, and clients for which a run is too short."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from sim.results import text

_KEYS = ("local_steps", "local_epochs")


class IterationWork(NamedTuple):
    """Training of a client: steps of an epoch, seconds of a step, and most steps, as a budget allows."""

    steps_per_epoch: int
    step_s: float
    most: float = math.inf


def stated(settings: Any) -> tuple[str, int] | None:
    """Return the key that states the training of an iteration, and its value; None if none does.

    If both keys exist, the one without a default replaces the other.
    """
    fields = type(settings).model_fields
    known = [key for key in _KEYS if key in fields and getattr(settings, key) is not None]
    known.sort(key=lambda key: fields[key].default is not None)
    return (known[0], int(getattr(settings, known[0]))) if known else None


def seconds(settings: Any, trainings: Sequence[IterationWork]) -> list[float]:
    """Return how long the training of an iteration takes each client; 0 if no key states it."""
    found = stated(settings)
    if found is None:
        return [0.0] * len(trainings)
    key, count = found
    steps = [count * (each.steps_per_epoch if key == "local_epochs" else 1) for each in trainings]
    return [min(own, each.most) * each.step_s for own, each in zip(steps, trainings, strict=True)]


def too_short(settings: Any, trainings: Sequence[IterationWork], run_s: float | None) -> list[str]:
    """Return a line if the training of one iteration takes some clients longer than the run lasts."""
    late = [took_s for took_s in seconds(settings, trainings) if run_s is not None and took_s > run_s]
    found = stated(settings)
    if not late or found is None:
        return []
    key, count = found
    return [
        f"the run is too short for {len(late):,} of {len(trainings):,} clients: one iteration "
        f"(protocol.{key} = {count:,}) takes {text.duration(min(late))} or more of training, but the run "
        f"lasts {text.duration(run_s)}. These clients finish no iteration, and no round that waits for them "
        f"ends. Increase run.duration or decrease protocol.{key}"
    ]
