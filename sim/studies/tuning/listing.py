"""Search spaces of coterie's methods, as text."""

from collections.abc import Iterator

from sim.learning.engine.optimizers import RULES
from sim.scenario.protocol_lookup import list_protocols, load_protocol
from sim.studies.tuning.methods import learning_rates


def space_lines() -> Iterator[str]:
    """Yield a paragraph for each method: its searched settings with their ranges, and their source."""
    rates = [f"{learning_rates(name)} with {name}" for name in RULES]
    yield f"all methods: training.learning_rate {'; '.join(rates)}"
    for name in list_protocols():
        space = load_protocol(name).found.search_space
        yield ""
        yield f"{name}: {'no declared search space' if space is None else space.source}"
        for key, values in (space.keys if space else {}).items():
            yield f"  {key}: {values}"
