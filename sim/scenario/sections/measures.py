"""Measures of models that the user's functions compute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import WithJsonSchema

from sim.errors import FAILURES
from sim.plugins.section import USERS_CODE, PluginSection, first_error_line
from sim.results.measures import Measure

if TYPE_CHECKING:
    from sim.learning.metrics import Metric


class OwnMeasure(PluginSection):
    """Your own function measures the model of a client on its test samples.

    It returns a number; NaN means undefined. Its parameters are `outputs` (the model's outputs for all test
    samples of the client, a numpy array [samples, ...]) and `targets` (their targets or classes). All other
    parameters are keys of the table.
    """

    provided = ("outputs", "targets")

    name: Annotated[str, WithJsonSchema({"type": "string", "pattern": USERS_CODE})]
    """The function: `my_file.py:function` or `package.module:function`. The part after the colon is the name
    of the measure in results."""
    better: Literal["higher", "lower"]
    """Direction: whether higher or lower values are better."""

    @property
    def measure(self) -> Measure:
        """Name and direction of the measure."""
        name = self.name.rpartition(":")[2]
        return Measure(name, name.replace("_", " "), higher_is_better=self.better == "higher")

    @property
    def metric(self) -> Metric:
        """Metric that the observer computes."""
        from sim.learning.metrics import Metric  # imports torch

        return Metric(self.measure.name, "outputs", self.value)

    def value(self, outputs: np.ndarray, targets: np.ndarray) -> float:
        """Return the measure of one client. Raises UserError for a function that fails."""
        try:
            found = self.call(outputs=outputs, targets=targets)
        except FAILURES as error:
            raise self.refusal(f"failed: {first_error_line(error)}", error) from error
        number = np.asarray(found)
        if number.dtype.kind not in "biuf" or number.size != 1:
            raise self.refusal(f"returned {found!r:.60}; must return a number")
        value = float(number.item())
        return value if math.isfinite(value) else math.nan
