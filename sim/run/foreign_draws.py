"""Warnings about random numbers that do not depend on the run's seed and make the run unrepeatable.

The states of the generators that all code of a process shares are compared before and after a run. If a
state has changed, the source is searched for the line.
"""

import ast
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from actors.source_location import location_text
from sim.plugins.source_files import full_name, imported_names, parse_source

_TORCH = (
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "poisson", "dropout",
)  # fmt: skip
_IN_PLACE = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_")
_MAKERS = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")
_INSTEAD = "draw from self.rng or the argument rng, whose numbers depend on run.seed only"


@contextmanager
def foreign_draws(files: Iterable[str]) -> Iterator[list[str]]:
    """Collect, when this context ends, a line for each shared generator from which code inside it drew.

    files: the user's code, which is searched for the lines; generators that it creates without a seed are
    also reported.
    """
    found: list[str] = []
    before = generator_states()
    try:
        yield found
    finally:
        calls = [call for file in files for call in _lines_that_draw(file)]
        for name, state in generator_states().items():
            if state != before[name]:
                lines = [line for line, of in calls if of == name]
                where = f" ({lines[0]})" if lines else ""
                found.append(
                    f"random numbers were drawn from the generator of {name} that all code shares{where}: "
                    f"the run cannot be repeated; {_INSTEAD}"
                )
        for line, of in calls:
            if of in _MAKERS:
                found.append(
                    f"{of}() without a seed ({line}) differs in each run; {_INSTEAD}, or pass a seed drawn "
                    "from it"
                )


def generator_states() -> dict[str, object]:
    """Return the states of the generators that all code of this process shares, by name."""
    _, words, *others = np.random.get_state(legacy=True)
    return {
        "random": random.getstate(),
        "numpy.random": (words.tobytes(), *others),  # type: ignore[union-attr]
        "torch": torch.get_rng_state().numpy().tobytes(),
    }


def _lines_that_draw(file: str) -> list[tuple[str, str]]:
    """Return the lines of a file that draw from a shared generator, or create one without a seed."""
    tree = parse_source(file)
    names = dict(imported_names(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (of := _drawn_from(node, full_name(node.func, names))):
            found.append((node.lineno, of))
    return [(location_text(file, line), of) for line, of in sorted(found)]


def _drawn_from(call: ast.Call, name: str) -> str | None:
    """Return the shared generator that a call draws from, or the generator that it creates without a seed."""
    module, _, function = name.rpartition(".")
    if name in _MAKERS:
        return None if call.args or call.keywords else name
    if module in ("random", "numpy.random"):
        return None if function[:1].isupper() else module
    of_torch = function in _IN_PLACE or (module.startswith("torch") and function in _TORCH)
    has_own = any(each.arg == "generator" for each in call.keywords)
    return "torch" if of_torch and not has_own else None
