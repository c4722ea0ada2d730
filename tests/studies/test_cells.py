"""Which runs a sweep consists of."""

import json
import re
from pathlib import Path

import pytest

from sim.errors import UserError
from sim.results.store.summary_file import KNOWN_KEYS
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from sim.scenario.sections.sweep import Seeds
from sim.studies.cells import plan
from sim.studies.option_values import as_toml
from tests.scenario.texts import SMALL
from tests.studies.worlds import STUDY, study


def test_every_combination_is_run_with_every_seed(tmp_path: Path) -> None:
    planned = plan(study(tmp_path))
    assert planned.axes == {"method": ("alone", "gossip"), "network.loss": (0, 0.2)}
    assert planned.seeds == (3, 4)
    values = [(cell.values["method"], cell.values["network.loss"], cell.seed) for cell in planned.cells]
    assert values == [(m, loss, seed) for m in ("alone", "gossip") for loss in (0, 0.2) for seed in (3, 4)]
    assert len({cell.key for cell in planned.cells}) == 8


def test_an_axis_is_left_out_for_a_case_that_it_cannot_change(tmp_path: Path) -> None:
    text = STUDY.replace('name = "alone"\n', 'name = "alone"\nwithout = ["network.loss"]\n')
    planned = plan(study(tmp_path, text), seeds=1)
    values = [(cell.values["method"], cell.values["network.loss"]) for cell in planned.cells]
    assert values == [("alone", 0), ("gossip", 0), ("gossip", 0.2)]
    narrowed = plan(study(tmp_path, text), seeds=1, only=["network.loss=0.2"])
    assert [cell.values["network.loss"] for cell in narrowed.cells] == [0.2, 0.2]
    assert len(plan(study(tmp_path, text), ["network.loss=0.1"], seeds=1).cells) == 2
    with pytest.raises(UserError) as caught:
        plan(study(tmp_path, text.replace('without = ["network.loss"]', 'without = ["network.los"]')))
    said = "sweep.case.0.without = network.los: unknown axis; must be one of method, network.loss"
    assert said in str(caught.value)


def test_a_cell_is_the_run_of_its_overrides(tmp_path: Path) -> None:
    file = study(tmp_path)
    cell = plan(file).cells[-1]
    options = ["protocol.name=gossip", "protocol.period=500 ms", "network.loss=0.2"]
    assert cell.key == digest(load_scenario(file, options, 4))


def test_lists_on_the_command_line_are_axes_and_take_the_place_of_the_files(tmp_path: Path) -> None:
    planned = plan(study(tmp_path), ["network.loss=0.3", "network.latency=1 ms, 2 ms"], seeds=(7,))
    assert planned.axes == {"method": ("alone", "gossip"), "network.latency": ("1 ms", "2 ms")}
    assert {cell.seed for cell in planned.cells} == {7}
    begun = ["devices.override.0.clients=[0, 1]", "devices.override.0.slowdown=2,5"]
    assert plan(study(tmp_path), begun, seeds=(7,)).axes["devices.override.0.slowdown"] == (2, 5)
    lists = plan(study(tmp_path), ["devices.override=[{clients=[0,1],slowdown=2}],[]"])
    assert lists.axes["devices.override"] == ('[{"clients" = [0, 1], "slowdown" = 2}]', "[]")


def test_the_full_form_replaces_axes_of_the_same_key(tmp_path: Path) -> None:
    planned = plan(study(tmp_path), full=True)
    assert planned.axes["network.loss"] == (0.1,) and planned.seeds == (3, 4, 5)
    assert "run.duration=5 s" in planned.cells[0].overrides


def test_rows_go_together(tmp_path: Path) -> None:
    text = STUDY.replace(
        "[sweep.grid]\nnetwork.loss = [0, 0.2]", "[sweep.zip]\nnetwork.loss = [0, 0.2]\nrun.seed = [1, 2]"
    )
    planned = plan(study(tmp_path, text), seeds=1)
    rows = [(cell.values["network.loss"], cell.values["run.seed"]) for cell in planned.cells]
    assert rows == [(0, 1), (0.2, 2)] * 2


def test_an_option_takes_precedence_over_cases_and_the_settings_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(SMALL)
    file = tmp_path / "alone.toml"
    cases = [
        f'[[sweep.case]]\nname = "{steps}"\nset = ["protocol.local_steps={steps}"]\n' for steps in (4, 8)
    ]
    file.write_text(f'[sweep]\nscenario = "base.toml"\nset = ["network.loss=0.1"]\n{"".join(cases)}')

    def found(*options: str) -> list[tuple[int, float]]:
        planned = plan(file, ["protocol.name=local", *options], seeds=1)
        made = [load_scenario(tmp_path / "base.toml", cell.overrides) for cell in planned.cells]
        return [(each.protocol.settings.local_steps, each.network.loss.probability) for each in made]

    assert found() == [(4, 0.1), (8, 0.1)]
    assert found("protocol.local_steps=2", "network.loss=0.2") == [(2, 0.2), (2, 0.2)]
    table = ["protocol={name='local',local_steps=3}", "protocol.local_steps=5,6"]
    assert sorted(found(*table)) == [(5, 0.1), (5, 0.1), (6, 0.1), (6, 0.1)], "lists stay axes"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("network.loss=0,7", "network.loss = 7"),
        ("network.loss=0,,1", "a value is missing before or after a comma"),
        ("sweep.seeds=0", "sweep.seeds = 0 (from --set): must be a whole number from 1"),
        ("sweep.grid=3", "sweep.grid = 3 (from --set): must be a table"),
        ("sweep.grid.a=3", "sweep.grid.a = 3"),
        ("sweep.zip={a=[1],b=[1,2]}", "all lists must have the same length"),
        ("sweep.case=[{nam='x'}]", "did you mean 'name'?"),
        ("sweep.case=[{name=''}]", 'sweep.case.0.name = "" (from --set): must not be empty'),
        ("sweep.case=[{name='x',axis=' '}]", 'sweep.case.0.axis = " " (from --set): must not be empty'),
        ("sweep.labels={'network.loss'=''}", 'sweep.labels: network.loss = "": must not be empty'),
        ("sweep.compare.clients=[4]", "sweep.compare.clients: no client 4; must be from 0 to 3"),
        ("sweep.case=[{name='x'},{name='x'}]", "already has a case with this name"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tmp_path: Path, option: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(study(tmp_path), [option])
    assert said in str(caught.value)


def test_whoever_is_wrong_in_one_case_only_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        plan(study(tmp_path), ["network.loss=0,7"])
    assert caught.value.__notes__ == ["in the runs with method = alone, network.loss = 7"]


@pytest.mark.parametrize("methods", ["gossip,dpsgd", "dpsgd,gossip"])
def test_a_key_that_one_method_lacks_is_told_with_the_method(tmp_path: Path, methods: str) -> None:
    with pytest.raises(UserError, match=r"protocol\.merge = .*unknown key; allowed: ") as caught:
        plan(study(tmp_path, SMALL), [f"protocol.name={methods}", "protocol.merge=age"])
    assert caught.value.__notes__ == [
        "in the runs with protocol.name = dpsgd",
        "put a key that only some runs have into `set` of a [[sweep.case]]",
    ]


def test_an_unknown_key_of_all_runs_is_told_with_the_hint_on_cases(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(SMALL)
    file = tmp_path / "alone.toml"
    file.write_text(
        '[sweep]\nscenario = "base.toml"\n[[sweep.case]]\nname = "x"\nset = ["protocol.name=local"]'
    )
    with pytest.raises(UserError, match=r"protocol\.merg = .*unknown key; allowed: ") as caught:
        plan(file, ["protocol.merg=age"])
    assert caught.value.__notes__ == [
        "in the scenario without the cases of the sweep",
        "put a key that only some runs have into `set` of a [[sweep.case]]",
    ]


def test_an_unknown_key_of_a_case_is_one_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(SMALL)
    file = tmp_path / "alone.toml"
    case = '[[sweep.case]]\nname = "x"\nset = ["protocol.name=local", "protocol.stps=3"]\n'
    file.write_text(f'[sweep]\nscenario = "base.toml"\n{case}')
    with pytest.raises(UserError, match=r"protocol\.stps = 3 \(from the sweep\): unknown key") as caught:
        plan(file)
    assert caught.value.__notes__ == ["in the runs with case = x"], "it is in a case already"
    with pytest.raises(UserError, match=r"protocol\.nam = .* \(from --set\): .*did you mean 'name'\?"):
        plan(file, ["protocol.nam=gossip"])


def test_a_label_of_a_misspelled_axis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"network\.los is not an axis of the sweep; did you mean 'network\."):
        plan(study(tmp_path), ["sweep.labels={'network.los'='messages lost'}"])
    labels = "sweep.labels={'network.loss'='messages lost','clients.count'='clients'}"
    assert plan(study(tmp_path), [labels]).labels["clients.count"] == "clients"


def test_the_labels_of_two_axes_in_a_file_are_different(tmp_path: Path) -> None:
    labels = "sweep.labels={'network.loss'='lost','clients.count'='lost'}"
    with pytest.raises(UserError, match=r"labels: network\.loss = lost: clients\.count has the same label"):
        plan(study(tmp_path), [labels, "clients.count=4,5"])
    assert plan(study(tmp_path), [labels]).labels, "clients.count is no axis of this sweep"


def test_a_misspelled_metric_is_noticed_before_the_runs(tmp_path: Path) -> None:
    def notices(metric: str) -> tuple[str, ...]:
        return plan(study(tmp_path), [f'sweep.compare.metrics=["{metric}"]']).notices

    said = "a method reports acuracy, which is not a metric of coterie; did you mean 'accuracy'?"
    assert [said in notice for notice in notices("acuracy.worst_decile")] == [True]
    for metric in (
        "accuracy.worst_decile",
        "accuracy_alone",
        "graph.l1",
        "bytes_sent",
        "staleness",
        "my_own",
    ):
        assert notices(metric) == ()


def test_no_key_of_a_summary_is_taken_for_a_misspelled_metric(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(SMALL)
    scenario = load_scenario(tmp_path / "base.toml", ["run.target_accuracy=0.5"])
    keys = [*KNOWN_KEYS, *run_scenario(scenario, RunOptions(out=tmp_path)).summary]
    assert {"messages", "energy", "target", "work"} < set(keys)
    metrics = json.dumps([f"{key}.mean" for key in keys])
    assert plan(study(tmp_path), [f"sweep.compare.metrics={metrics}"]).notices == ()
    (notice,) = plan(study(tmp_path), ['sweep.compare.metrics=["mesages_sent.mean"]']).notices
    assert notice.endswith("did you mean 'messages_sent'?"), "keys of summaries are not proposed"


def test_a_first_seed_is_set_without_notices(tmp_path: Path) -> None:
    planned = plan(study(tmp_path), ["run.seed=50"])
    assert planned.seeds == (50, 51) and not planned.notices
    assert [cell.seed for cell in planned.cells[:2]] == [50, 51]
    assert plan(study(tmp_path), ["run.seed=50"], seeds=3).seeds == (50, 51, 52)


@pytest.mark.parametrize(
    ("option", "seeds", "said"),
    [
        ("run.seed=5,6", None, "--set run.seed=5,6: seeds are no axis; pass --seeds 5,6"),
        ("run.seed = 5, 6", 2, "--set run.seed = 5, 6: seeds are no axis; pass --seeds 5,6"),
        (
            "run.seed=50",
            (5, 6),
            "all seeds are listed (5, 6); omit this option, or pass the number of seeds: --seeds 2",
        ),
    ],
)
def test_seeds_are_stated_once(tmp_path: Path, option: str, seeds: Seeds | None, said: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(study(tmp_path), [option], seeds=seeds)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [True, 3, 0.5, "20 ms", "true", "a,b", " x", "", [1, "a"], {"k": [True]}])
def test_a_value_is_read_again_as_it_was(value: object) -> None:
    from sim.scenario.overrides import _value

    assert _value(as_toml(value), "--set") == value


def test_a_single_run_knows_nothing_of_the_sweep(tmp_path: Path) -> None:
    file = study(tmp_path)
    without = tmp_path / "without" / "study.toml"
    without.parent.mkdir()
    without.write_text(STUDY[: STUDY.index("[sweep]")])
    assert digest(load_scenario(file)) == digest(load_scenario(without))


ALONE = """\
# Does loss hurt?
[sweep]
scenario = "study.toml"
seeds = 1
set = ["protocol.name=gossip", "protocol.period=500 ms"]

[[sweep.case]]
axis = "weather"
name = "calm"

[[sweep.case]]
axis = "weather"
name = "lost"
set = ["network.loss=0.2"]
excluded = [2, 0]
"""


def test_a_file_may_hold_a_sweep_of_another_files_scenario(tmp_path: Path) -> None:
    file = study(tmp_path)
    alone = tmp_path / "loss.toml"
    alone.write_text(ALONE)
    planned = plan(alone)
    assert (planned.name, planned.question, planned.file) == ("loss", "Does loss hurt?", file)
    options = ["protocol.name=gossip", "protocol.period=500 ms", "network.loss=0.2"]
    assert [cell.key for cell in planned.cells][1] == digest(load_scenario(file, options, 3))
    assert [cell.excluded for cell in planned.cells] == [(), (0, 2)]
    assert len(plan(alone, ["sweep.seeds=3", "network.latency=1 ms"]).cells) == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{ALONE}[run]\nseed = 2\n",
            'but this file also has "run"; put changes to the scenario into sweep.set',
        ),
        (
            ALONE.replace("study.toml", "stud.toml"),
            'sweep.scenario = "stud.toml": no such scenario file; did you mean',
        ),
        (ALONE.replace('"study.toml"', "3"), "sweep.scenario = 3: must be text"),
        (ALONE.replace('"study.toml"', '"loss.toml"'), "is a sweep of"),
    ],
)
def test_what_is_wrong_with_a_sweep_alone_is_said(tmp_path: Path, text: str, said: str) -> None:
    study(tmp_path)
    (tmp_path / "loss.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        plan(tmp_path / "loss.toml")
    assert said in str(caught.value)


def test_axes_are_narrowed_to_some_values(tmp_path: Path) -> None:
    planned = plan(study(tmp_path), only=["network.loss=0.2", "method=gossip"])
    assert [cell.values for cell in planned.cells] == [{"method": "gossip", "network.loss": 0.2}] * 2
    both = plan(study(tmp_path), only=["method=alone", "method=gossip"])
    assert both.cells == plan(study(tmp_path)).cells
    for wrong in ("method=gossi", "loss=0.2", "method"):
        said = (
            f"--only {wrong}: must be an axis and one of its values: method=alone|gossip; network.loss=0|0.2"
        )
        with pytest.raises(UserError, match=re.escape(said)):
            plan(study(tmp_path), only=[wrong])
    # As it may be written after --set.
    assert plan(study(tmp_path), only=["network.loss=0.20"]).axes["network.loss"] == (0.2,)
    logical = plan(study(tmp_path), ["run.keep_messages=true,false"], only=["run.keep_messages=false"])
    assert logical.axes["run.keep_messages"] == (False,)


def test_defaults_of_compare_name_an_axis_by_its_label(tmp_path: Path) -> None:
    text = STUDY + "\n[sweep.compare]\nby = 'lost messages'\nbaseline = 'lost messages = 0'\n"
    assert plan(study(tmp_path, text)).compare.by == "lost messages"
    with pytest.raises(UserError, match=r"sweep\.compare\.by = lost: unknown axis"):
        plan(study(tmp_path, text), ["sweep.compare.by=lost"])


def test_a_file_with_only_a_sweep_names_its_scenario(tmp_path: Path) -> None:
    file = tmp_path / "alone.toml"
    file.write_text("[sweep]\nseeds = 2\n")
    with pytest.raises(UserError, match=r"sweep\.scenario: is missing: a file with only a \[sweep\] names"):
        plan(file)


def test_axes_are_narrowed_by_their_labels(tmp_path: Path) -> None:
    by_key = plan(study(tmp_path), only=["network.loss=0.2"]).cells
    assert plan(study(tmp_path), only=["lost messages=0.2"]).cells == by_key
    label = "sweep.labels={'network.loss'='share that is lost'}"
    for name in ("share that is lost", "network.loss"):
        found = plan(study(tmp_path), [label], only=[f"{name} = 0.2"]).cells
        assert [cell.key for cell in found] == [cell.key for cell in by_key]
    with pytest.raises(UserError, match=r"--only lost messages=0\.2: must be an axis and one of its values"):
        plan(study(tmp_path), [label], only=["lost messages=0.2"])


def test_values_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    """Their runs could not be told apart: `compare` refused them, all done as they were."""
    with pytest.raises(UserError, match=r"sweep: network\.loss = 0\.1 appears twice; values of an axis"):
        plan(study(tmp_path), ["network.loss=0.1,0.2,0.10"])


def test_a_row_that_is_none_is_refused(tmp_path: Path) -> None:
    text = STUDY.replace(
        "[sweep.grid]\nnetwork.loss = [0, 0.2]", "[sweep.zip]\nnetwork.loss = [0, 0.2]\nrun.seed = [1, 2]"
    )
    assert len(plan(study(tmp_path, text), only=["network.loss=0", "run.seed=1"]).cells) == 4
    with pytest.raises(
        UserError, match=r"--only: no run has this combination of values of network\.loss, run\.seed"
    ):
        plan(study(tmp_path, text), only=["network.loss=0", "run.seed=2"])


@pytest.mark.parametrize(
    ("excluded", "said"),
    [
        ("[4]", "sweep.case: gossip excludes client 4; must be from 0 to 3"),
        ("[0, 1, 2, 3]", "sweep.case: gossip excludes all 4 clients; must leave at least one"),
    ],
)
def test_a_case_excludes_some_of_the_clients_that_there_are(tmp_path: Path, excluded: str, said: str) -> None:
    text = STUDY.replace('500 ms"]\n', f'500 ms"]\nexcluded = {excluded}\n')
    with pytest.raises(UserError, match=re.escape(said)):
        plan(study(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('by = "los"', "sweep.compare.by = los: unknown axis; must be one of method, network.loss"),
        (
            'baseline = "method=gosip"',
            "sweep.compare.baseline = method=gosip: must be an axis and one of its values: method=",
        ),
    ],
)
def test_what_is_compared_by_is_an_axis(tmp_path: Path, line: str, said: str) -> None:
    file = study(tmp_path, f"{STUDY}\n[sweep.compare]\n{line}\n")
    with pytest.raises(UserError, match=re.escape(said)):
        plan(file)


def test_axes_that_are_stated_or_narrowed_may_be_compared_by(tmp_path: Path) -> None:
    file = study(tmp_path, f'{STUDY}\n[sweep.compare]\nby = "network.loss"\nbaseline = "method=alone"\n')
    assert len(plan(file, ["network.loss=0.3"], only=["method=gossip"]).cells) == 2


def test_a_sweep_does_not_sweep_itself(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"keys of \[sweep\] apply to all runs; give one value"):
        plan(study(tmp_path), ["sweep.seeds=2,3"])
    with pytest.raises(UserError, match="but this file also has"):
        plan(study(tmp_path), ["sweep.scenario=other.toml"])
    alone = tmp_path / "loss.toml"
    alone.write_text(ALONE)
    assert plan(alone, unset=["sweep.set"]).cells[0].overrides == ()


def test_an_old_file_is_told_the_new_key(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(STUDY.replace('500 ms"]\n', '500 ms"]\nstruck = [1]\n'))
    with pytest.raises(UserError, match=r"struck = \[1\]: is now called excluded"):
        plan(tmp_path / "old.toml")


def test_a_list_of_a_key_in_quotes_is_named_by_its_whole_key(tmp_path: Path) -> None:
    text = STUDY.replace("network.loss = [0, 0.2]", '"network.loss" = []')
    with pytest.raises(UserError, match=r"sweep\.grid\.network\.loss = \[\]: must be a list of at least one"):
        plan(study(tmp_path, text))
