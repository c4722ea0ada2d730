"""Search spaces: every method states one, and each of its corners is a valid choice of settings."""

from itertools import product
from pathlib import Path

import pytest

from protocols.framework.search_space import OneOf, Range, SearchSpace
from sim.learning.engine.optimizers import RULES
from sim.scenario.protocol_lookup import list_protocols, load_protocol
from sim.studies.tuning.listing import space_lines
from sim.studies.tuning.methods import learning_rates

SHARES = (0.0, 0.37, 0.999999, 1.0)


@pytest.mark.parametrize("name", sorted(list_protocols()))
def test_a_method_states_its_space_and_the_source_of_the_ranges(name: str) -> None:
    space = load_protocol(name).found.search_space
    assert space is not None, f"{name}: state search_space in its class"
    assert space.source.strip()


@pytest.mark.parametrize("name", sorted(list_protocols()))
def test_every_corner_of_a_space_is_a_valid_choice_of_settings(name: str) -> None:
    method = load_protocol(name).found
    for point in product(SHARES, repeat=len(method.search_space.keys)):
        settings = method.search_space.at(point)
        method.Settings.model_validate({key: value for key, value in settings.items() if "." not in key})


def test_a_range_covers_its_ends_on_both_scales() -> None:
    assert [Range(0.01, 1.0, log=True).at(share, {}) for share in (0, 0.5, 1)] == [0.01, 0.1, 1.0]
    assert [Range(0.0, 0.9).at(share, {}) for share in (0, 0.5, 1)] == [0.0, 0.45, 0.9]


def test_a_number_with_a_limit_by_another_setting_never_exceeds_it() -> None:
    space = SearchSpace("", {"a": Range(0.1, 30.0, log=True), "b": Range(0.02, 1.0, log=True, over="a")})
    for share in [index / 97 for index in range(98)]:
        chosen = space.at((share, 1.0))
        assert 0.99 < chosen["a"] * chosen["b"] <= 1.0


def test_choices_are_equally_likely() -> None:
    values = OneOf(("a", "b", "c"))
    assert [values.at(index / 6, {}) for index in range(7)] == ["a", "a", "b", "b", "c", "c", "c"]


@pytest.mark.parametrize(("low", "high", "log"), [(1.0, 1.0, False), (2.0, 1.0, False), (0.0, 1.0, True)])
def test_a_range_without_an_extent_is_rejected(low: float, high: float, log: bool) -> None:
    with pytest.raises(ValueError, match="need low < high"):
        Range(low, high, log=log)


def test_only_the_list_states_the_ranges_of_learning_rates() -> None:
    """A second list, on a page, would lack a new optimizer."""
    page = (Path(__file__).parents[2] / "docs/how-to/tuning.md").read_text(encoding="utf-8")
    for rule in RULES.values():
        low, high = rule.tuned_rates
        assert f"{low:g} to {high:g}" not in page, (
            "remove the ranges of learning rates from docs/how-to/tuning.md"
        )


def test_all_methods_search_the_same_learning_rates() -> None:
    assert learning_rates("sgd") == Range(0.003, 1.0, log=True)
    assert learning_rates("adam") == learning_rates("adamw") == Range(0.0001, 0.03, log=True)
    assert not any(
        "training.learning_rate" in load_protocol(name).found.search_space.keys for name in list_protocols()
    )


def test_the_list_names_each_method_with_its_ranges() -> None:
    lines = list(space_lines())
    assert "learning_rate 0.003 to 1, log scale with sgd; 0.0001 to 0.03, log scale with adam; " in lines[0]
    assert all(f"{learning_rates(optimizer)} with {optimizer}" in lines[0] for optimizer in RULES)
    for name in list_protocols():
        assert any(line.startswith(f"{name}: ") for line in lines)
    at = next(index for index, line in enumerate(lines) if line.startswith("pfedme: "))
    assert lines[at + 1 : at + 3] == [
        "  strength: 0.1 to 30, log scale",
        "  outer_rate: 0.02 to 1, log scale, divided by strength",
    ]
