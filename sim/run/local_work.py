"""Training of an iteration, as a method's settings state it, and clients for which a run is too short."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from sim.results import text

_KEYS = ("local_steps", "local_epochs")


class IterationWork(NamedTuple):
    """Training of a client in an iteration, by the settings of its method.

    most: the most steps that the client's budget allows. step_s: seconds of a step.
    """

    settings: Any
    steps_per_epoch: int
    step_s: float
    most: float = math.inf

    @property
    def seconds(self) -> float:
        """Seconds of training in an iteration; 0 if no setting states it."""
        found = stated_training(self.settings)
        if found is None:
            return 0.0
        key, count = found
        steps = count * (self.steps_per_epoch if key == "local_epochs" else 1)
        return min(steps, self.most) * self.step_s


def stated_training(settings: Any) -> tuple[str, int] | None:
    """Return the key that states the training of an iteration, and its value; None if none does.

    If both keys have values, the one whose default is None counts.
    """
    fields = type(settings).model_fields
    known = [key for key in _KEYS if key in fields and getattr(settings, key) is not None]
    known.sort(key=lambda key: fields[key].default is not None)
    return (known[0], int(getattr(settings, known[0]))) if known else None


def short_run_warning(trainings: Sequence[IterationWork], run_s: float | None) -> list[str]:
    """Return a line if the training of one iteration takes some clients longer than the run lasts."""
    late = [each for each in trainings if run_s is not None and each.seconds > run_s]
    if not late:
        return []
    shortest = min(late, key=lambda each: each.seconds)
    key, count = stated_training(shortest.settings) or ("", 0)
    return [
        f"the run is too short for {len(late):,} of {len(trainings):,} clients: one iteration "
        f"(protocol.{key} = {count:,}) takes {text.duration(shortest.seconds)} or more of training, but the "
        f"run lasts {text.duration(run_s)}. These clients finish no iteration, and no round that waits for "
        f"them ends. Increase run.duration or decrease protocol.{key}"
    ]
