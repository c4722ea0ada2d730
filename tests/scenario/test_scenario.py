"""Reading, overriding and writing scenario files."""

from pathlib import Path
from typing import Any

import pytest

import sim
from sim.errors import UserError
from sim.scenario.reading import first_comment
from sim.scenario.resolved import digest, to_toml
from sim.scenario.scenario import load_scenario
from sim.world.bandwidths import ConstantBandwidth
from tests.scenario.texts import FULL, OF_ALL_METHODS, SMALL, changed, write
from tests.world.quantities import constant, uniform

SCENARIOS = sorted((Path(sim.__path__[0]).parent / "scenarios").glob("*.toml"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, SMALL)


def test_a_scenario_is_plain_numbers(small: Path) -> None:
    scenario = load_scenario(small)
    assert scenario.name == "small"
    assert scenario.question == "Does a small scenario load?\nIt should."
    assert scenario.path == small
    assert scenario.run.duration == 60.0
    assert scenario.network.uplink == ConstantBandwidth(value="10 Mbit/s")
    assert scenario.network.downlink.value is None  # type: ignore[union-attr]
    assert scenario.protocol.name == "gossip"
    assert scenario.protocol.method.__name__ == "Gossip"
    assert scenario.protocol.settings.period == 0.5  # type: ignore[attr-defined]
    assert scenario.churn == ()


@pytest.mark.parametrize("text", [SMALL, FULL], ids=["small", "full"])
def test_the_resolved_scenario_loads_to_an_equal_one(tmp_path: Path, text: str) -> None:
    scenario = load_scenario(write(tmp_path, text))
    resolved = to_toml(scenario)
    again = load_scenario(write(tmp_path, resolved, "scenario.toml"))
    assert again == scenario
    assert again.name == scenario.name
    assert to_toml(again) == resolved
    assert digest(again) == digest(scenario)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_resolved_form_of_each_shipped_scenario_loads_to_an_equal_one(tmp_path: Path, path: Path) -> None:
    scenario = load_scenario(path)
    assert load_scenario(write(tmp_path, to_toml(scenario), "scenario.toml")) == scenario


def test_the_resolved_scenario_states_defaults_and_keeps_units(small: Path) -> None:
    resolved = to_toml(load_scenario(small))
    assert resolved.startswith("# Does a small scenario load?\n# It should.\n")
    assert 'retransmission_delay = "200 ms"' in resolved
    assert '[network.downlink]\nkind = "constant"\nvalue = "unlimited"\n' in resolved
    assert 'pending_limit = "512 MB"' in resolved
    assert "local_steps = 1" in resolved


def test_an_empty_list_is_not_a_missing_one(small: Path) -> None:
    scenario = load_scenario(small, ["model.hidden=[]"])
    assert scenario.model.hidden == ()  # type: ignore[union-attr]
    assert load_scenario(write(small.parent, to_toml(scenario), "again.toml")) == scenario


def test_the_digest_changes_with_settings_and_not_with_words(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, SMALL))
    reworded = write(tmp_path, changed(SMALL, "# It should.", "# It must."))
    assert digest(load_scenario(reworded)) == digest(scenario)
    spelled = write(tmp_path, changed(SMALL, '"500 ms"', '"0.5 s"'))
    assert digest(load_scenario(spelled)) == digest(scenario)
    assert digest(load_scenario(spelled, seed=3)) != digest(scenario)
    assert len(digest(scenario)) == 8


def test_first_comment_is_the_question() -> None:
    assert first_comment("#One\n#\n# Two\n\n# Other\n[run]\n") == "One\n\nTwo"
    assert first_comment("[run]\n# Not it\n") == ""
    assert first_comment("#:schema scenario.json\n# One\n") == "One"


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("clients.count=6", lambda s: s.clients.count == 6),
        ("clients.topology=ring", lambda s: s.clients.topology.kind == "ring"),
        ("network.latency=35 ms", lambda s: s.network.latency == constant(0.035)),
        ('network.latency = "35 ms" ', lambda s: s.network.latency.value == 0.035),
        (
            'network.latency={ kind = "uniform", low = 0, high = "1 s" }',
            lambda s: s.network.latency == uniform(0.0, 1.0),
        ),
        ("model.hidden=[16, 8]", lambda s: s.model.hidden == (16, 8)),
        ("run.compare_alone=true", lambda s: s.run.compare_alone is True),
        ("engine.way=loop", lambda s: s.engine.way == "loop"),
        ("data.partition.samples_per_client=7", lambda s: s.data.partition.samples_per_client == 7),
        ('model={ name = "logistic-regression" }', lambda s: s.model.name == "logistic-regression"),
        ("run.name=a=b", None),
    ],
)
def test_overrides(small: Path, override: str, read: object) -> None:
    if read is None:
        with pytest.raises(UserError, match=r'run.name = "a=b" \(from --set\)'):
            load_scenario(small, [override])
    else:
        assert read(load_scenario(small, [override]))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "read"),
    [
        (
            ["data.partition=iid", "data.partition.samples_per_client=7"],
            lambda s: s.data.partition.samples_per_client == 7,
        ),
        (["network.latency=20 ms", "network.latency.value=1 s"], lambda s: s.network.latency.value == 1),
        (["network.loss=0.5", "network.loss.probability=0.2"], lambda s: s.network.loss.probability == 0.2),
        (["network.class=[{inside=[[0, 1]], loss=0.5}]", "network.class.0.loss.probability=0.2"], None),
        (
            ["clients.topology=links.py:links", "clients.topology.directed=true"],
            lambda s: s.clients.topology.directed,
        ),
    ],
)
def test_an_override_reaches_into_what_is_written_as_a_plain_value(
    small: Path, options: list[str], read: Any
) -> None:
    (small.parent / "links.py").write_text(
        "def links(clients):\n    return [(0, 1), (1, 0), (1, 2), (2, 0)]\n"
    )
    scenario = load_scenario(small, options)
    assert read is None or read(scenario)


def test_what_the_kind_has_not_is_refused_by_name(small: Path) -> None:
    with pytest.raises(
        UserError, match=r"data\.partition\.alpha = 1 .*allowed: tests, samples_per_client, kind"
    ):
        load_scenario(small, ["data.partition=iid", "data.partition.alpha=1"])
    with pytest.raises(UserError, match=r"network\.latency\.median = \"1 s\" .*allowed: kind, value"):
        load_scenario(small, ["network.latency=20 ms", "network.latency.median=1 s"])


def test_overrides_apply_in_order_and_the_seed_last(small: Path) -> None:
    overrides = ["run.seed=1", "clients.count=5", "clients.count=6"]
    scenario = load_scenario(small, overrides, seed=3)
    assert (scenario.run.seed, scenario.clients.count) == (3, 6)
    assert overrides == ["run.seed=1", "clients.count=5", "clients.count=6"]


def test_an_override_reaches_into_lists(tmp_path: Path) -> None:
    path = write(tmp_path, FULL)
    scenario = load_scenario(path, ["churn.1.at=5.5 min", "network.partition.0.groups.1=[7, 8]"])
    assert scenario.churn[1].at == 330.0
    assert scenario.network.partition[0].groups == ((0, 1), (7, 8))


def test_number_0_begins_a_list(small: Path) -> None:
    stated = ["devices.override.0.clients=[0, 1]", "devices.override.0.slowdown=10"]
    [override] = load_scenario(small, stated).devices.override
    assert (list(override.clients), override.slowdown) == ([0, 1], 10.0)


def test_the_number_after_the_last_begins_another_item(small: Path) -> None:
    stated = ["churn.0.at=10 s", "churn.0.event=crash", "churn.0.clients=[3]"]
    stated += ["churn.1.at=30 s", "churn.1.event=rejoin", "churn.1.clients=[3]"]
    found = load_scenario(small, stated).churn
    assert [(entry.at, entry.event) for entry in found] == [(10.0, "crash"), (30.0, "rejoin")]
    with pytest.raises(UserError, match=r"churn is a list; its index must be a number from 0 to 2"):
        load_scenario(small, [*stated, "churn.3.at=40 s"])


def test_another_protocol_drops_what_it_does_not_know(small: Path) -> None:
    scenario = load_scenario(small, ["protocol.name=local", "protocol.local_steps=3"])
    assert scenario.protocol.name == "local"
    assert scenario.protocol.settings.model_dump(exclude=OF_ALL_METHODS) == {
        "local_steps": 3,
        "local_epochs": None,
    }


def test_another_protocol_refuses_what_is_overridden_for_it(small: Path) -> None:
    with pytest.raises(UserError, match=r"protocol\.period = \"1 s\" \(from --set\): unknown key"):
        load_scenario(small, ["protocol.name=local", "protocol.period=1 s"])


def test_a_whole_table_drops_nothing(small: Path) -> None:
    with pytest.raises(UserError, match=r"protocol\.period = \"1 s\" \(from --set\): unknown key"):
        load_scenario(small, ['protocol={ name = "local", period = "1 s" }'])


def test_the_same_protocol_named_again_drops_nothing(small: Path) -> None:
    assert load_scenario(small, ["protocol.name=gossip"]) == load_scenario(small)


def test_files_are_found_beside_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "edges.txt").write_text("0 1\n1 2\n2 3\n")
    text = changed(SMALL, "count = 4", 'count = 4\ntopology = { kind = "edge-list", file = "edges.txt" }')
    path = write(folder, text)
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario(path.relative_to(tmp_path))
    assert scenario.clients.topology.file == str(folder / "edges.txt")  # type: ignore[union-attr]
    # The copy in a result directory means the same file.
    assert load_scenario(write(tmp_path, to_toml(scenario), "scenario.toml")) == scenario


def test_a_scenario_knows_its_overrides_which_are_no_setting(small: Path) -> None:
    plain, stated = load_scenario(small), load_scenario(small, ["clients.count=4"], seed=0)
    assert plain.overrides == ()
    assert stated.overrides == ("clients.count=4", "run.seed=0")
    assert stated == plain
    assert digest(stated) == digest(plain)
    assert to_toml(stated) == to_toml(plain)
