"""Search spaces of coterie's methods, as text."""

from collections.abc import Iterator

from protocols.framework.search_space import ADAPTIVE_RATES, LEARNING_RATES
from sim.scenario.protocol_lookup import list_protocols, load_protocol


def space_lines() -> Iterator[str]:
    """Yield a paragraph for each method: its searched settings with their ranges, and their source."""
    rates = [f"{values} with {name}" for name, values in LEARNING_RATES.items()]
    yield f"all methods: training.learning_rate {', '.join(rates)}; {ADAPTIVE_RATES} with other optimizers"
    for name in list_protocols():
        space = load_protocol(name).found.search_space
        yield ""
        yield f"{name}: {'no declared search space' if space is None else space.source}"
        for key, values in (space.keys if space else {}).items():
            yield f"  {key}: {values}"
