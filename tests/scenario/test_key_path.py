"""Places in a scenario's contents, by keys with dots."""

import copy

from sim.scenario.key_path import matching_paths, set_value_at, value_at, with_value_at

FILE = {"network": {"latency": "1 ms", "class": [{"latency": {"kind": "a"}}, {"loss": 0.1}]}, "churn": []}


def test_a_star_is_each_item_of_a_list_and_what_is_missing_is_left_out() -> None:
    assert [*matching_paths(FILE, "network.latency")] == ["network.latency"]
    assert [*matching_paths(FILE, "network.class.*.latency")] == ["network.class.0.latency"]
    assert [*matching_paths(FILE, "network.class.*")] == ["network.class.0", "network.class.1"]
    for nowhere in ("model", "churn.*", "network.latency.kind", "network.*", "churn.*.kind"):
        assert [*matching_paths(FILE, nowhere)] == []


def test_values_are_found_and_put() -> None:
    file = copy.deepcopy(FILE)
    set_value_at(file, "network.class.1", {"latency": 3})
    set_value_at(file, "run", 1)
    assert value_at(file, "network.class.1.latency") == 3 and value_at(file, "run") == 1
    assert value_at(file, "network.class.2") is value_at(file, "network.latency.kind") is None


def test_a_replaced_place_leaves_the_original_as_it_was() -> None:
    before = copy.deepcopy(FILE)
    after = with_value_at(FILE, "network.class.0.latency", 5)
    assert before == FILE
    assert after["network"]["class"] == [{"latency": 5}, {"loss": 0.1}]
    assert after["churn"] is FILE["churn"]
