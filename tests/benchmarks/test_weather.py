"""The tables of bad weather: what the sweeps say happens, and what is made of their runs."""

import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import weather
from benchmarks.weather_picture import picture
from benchmarks.weather_table import KEYS, as_table, control_of, load, means, with_slow_client
from sim.results.store.run_directory import RunDirectory
from sim.scenario.protocol_lookup import list_protocols
from sim.studies.cells import plan
from sim.studies.study import load_study
from sim.studies.sweep import SweepResult, run_sweep
from tests.studies.conftest import here

PAGE = weather.DOCS.with_suffix(".md")
RUN = {
    "data": "digits",
    "family": "Personal models",
    "commit": "abc",
    "accuracy": 0.8,
    "calm": 0.8,
    "worst": 0.25,
    "precision": 1.0,
    "recall": 0.5,
    "seconds": 8.0,
    "messages": 100,
    "finished": True,
}


def runs(method: str, sky: str, *accuracies: float, **stated: object) -> list[dict]:
    """Runs of one method in one weather, a seed each."""
    return [
        {**RUN, "method": method, "weather": sky, "seed": seed, "accuracy": accuracy, **stated}
        for seed, accuracy in enumerate(accuracies, 11)
    ]


def cases(name: str, axis: str) -> dict[str, dict]:
    """The cases of an axis of one of the sweeps, by name."""
    contents = tomllib.loads((weather.STUDIES / f"{name}.toml").read_text(encoding="utf-8"))
    return {case["name"]: case for case in contents["sweep"]["case"] if case["axis"] == axis}


@pytest.mark.parametrize("name", weather.FAMILIES)
def test_the_excluded_are_those_to_whom_something_happens_and_halves_split_both_clusters(name: str) -> None:
    excluded = {
        case: set(what["excluded"]) for case, what in cases(name, "weather").items() if "excluded" in what
    }
    assert excluded == {
        "one slow": {3},
        "three slow": {3, 6, 9},
        "churn": {1, 2, 8, 10, 11, 12},
        "all at once": {3, 6, 9, 1, 2, 8, 10, 11, 12},
        "slow absent": {3, 6, 9},
        "excluded absent": {3, 6, 9, 1, 2, 8},
    }
    for count, case in ((10, "partition"), (13, "all at once")):
        planned = plan(weather.STUDIES / f"{name}.toml", only=["method=local", f"weather={case}"])
        [cut] = [text for text in planned.cells[0].overrides if text.startswith("network.partition=")]
        [stated] = tomllib.loads(f"cut = {cut.partition('=')[2]}")["cut"]
        halves = [set(group) - {"servers"} for group in stated["groups"]]
        assert set.union(*halves) == set(range(count)) and not set.intersection(*halves)
        assert all(half & set(cluster) for half in halves for cluster in (range(5), range(5, count)))


def test_means_are_over_seeds_and_beside_the_control_of_the_same_weather() -> None:
    found = means(
        as_table(
            runs("local", "calm", 0.7, 0.7, calm=0.7)
            + runs("local", "5 % lost", 0.7, 0.7, calm=0.7)
            + runs("cobo", "calm", 0.8, 0.8)
            + runs("cobo", "5 % lost", 0.79, 0.775, precision=None)
            + runs("gossip", "5 % lost", 0.6, 0.7, finished=False)
        )
    )
    rows = {(row["method"], row["weather"]): row for row in found.to_dicts()}
    assert found["method"].to_list() == ["local", "local", "cobo", "cobo", "gossip"]
    cobo, gossip = rows["cobo", "5 % lost"], rows["gossip", "5 % lost"]
    assert cobo["seeds"] == 2
    assert cobo["accuracy"] == pytest.approx(78.25)
    assert cobo["deviation"] == pytest.approx(1.06, abs=0.005)
    assert cobo["against_calm"] == pytest.approx(-1.75)
    assert (cobo["worst"], cobo["precision"], cobo["recall"], cobo["messages"]) == (25.0, None, 0.5, 100)
    assert (cobo["below_control"], gossip["below_control"]) == (False, True)
    assert rows["local", "5 % lost"]["below_control"] is None
    assert (cobo["finished"], gossip["finished"]) == (True, False)


def test_the_slow_client_stands_beside_its_control() -> None:
    table = means(
        as_table(
            runs("local, of 80 %", "one slow", 0.7, 0.7, excluded=0.5)
            + runs("local", "one slow", 0.7, 0.7, excluded=0.525)
            + runs("cobo", "one slow", 0.8, 0.8, excluded=0.75)
            + runs("meta-l2c, asynchronous", "one slow", 0.8, 0.8, excluded=0.4)
        )
    )
    assert table["alone"].to_list() == [None, None, 52.5, 50.0]
    both = pl.concat([table, table.with_columns(data=pl.lit("fashion-mnist"), excluded=10.0)])
    head = "### Personal models: all\n\n| method | calm | slow client | its alone |\n"
    page = (
        head
        + "| --- | ---: | ---: | ---: |\n| local | 1.0 | | |\n| cobo | 2.0 | 9 | 9 |\n\n| cobo | kept |\n"
    )
    filled = "| local | 1.0 | 52.5 / 10.0 | - / - |\n| cobo | 2.0 | 75.0 / 10.0 | 52.5 / 52.5 |\n\n"
    assert with_slow_client(page, both) == page.replace(
        "| local | 1.0 | | |\n| cobo | 2.0 | 9 | 9 |\n\n", filled
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """Two methods in two weathers, for a short time."""
    folder = tmp_path_factory.mktemp("studies")
    shorter = {"100 s": "2500 ms", '"5 s"': '"500 ms"', "test_samples = 500": "test_samples = 20"}
    shorter['name = "mlp"\nhidden = [50]'] = 'name = "logistic-regression"'
    for name in ("weather", "weather_one_model"):
        text = (weather.STUDIES / f"{name}.toml").read_text(encoding="utf-8")
        for old, new in shorter.items():
            text = text.replace(old, new)
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    only = ["method=local", "method=gossip, average", "weather=calm", "weather=one slow"]
    return run_sweep(plan(folder / "weather_one_model.toml", only=only), out=folder / "runs", execute=here)


@pytest.mark.long
def test_a_row_is_of_the_clients_that_are_not_excluded(
    swept: SweepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weather, "STUDIES", swept.directory.parents[1])
    study = load_study([swept.directory])
    found = {(row["method"], row["weather"]): row for row in weather.measured(study)}
    assert len(found) == 4
    views = {(str(run.values["method"]), str(run.values["weather"])): run.view for run in study.runs}
    counted = [client for client in range(10) if client != 3]
    for method in ("local", "gossip, average"):
        row = found[method, "one slow"]
        slow, calm = views[method, "one slow"], views[method, "calm"]
        assert row["accuracy"] == pytest.approx(slow.at_the_end[counted].mean(), abs=1e-12)
        assert row["calm"] == pytest.approx(calm.at_the_end[counted].mean(), abs=1e-12)
        assert row["excluded"] == slow.at_the_end[3]
        assert row["worst"] == slow.at_the_end.min()
        assert row["messages"] == slow.summary["messages"]["sent"]
        assert (row["messages"] > 0) == (method != "local")
        run = next(run for run in study.runs if run.view is slow)
        commit = RunDirectory.load(run.directory).provenance()["commit"]
        assert row["commit"] == (commit or "")[:10]


OF_ADAPTERS = {"flexlora", "flora"}
"""Methods for low-rank adapters, which the models of the studies do not have."""


def test_every_method_there_is_stands_in_a_table() -> None:
    stated = [
        change.removeprefix("protocol.name=")
        for name in weather.FAMILIES
        for case in cases(name, "method").values()
        for change in case["set"]
    ]
    missing = sorted(set(list_protocols()) - set(stated) - OF_ADAPTERS)
    assert not missing, (
        f"add cases of {', '.join(missing)} to the axis method of scenarios/studies/weather.toml, "
        "weather_one_model.toml or weather_decoupled.toml, and measure them: make weather METHOD=..."
    )
    assert any(name.endswith("docs/examples/divshare.py:DivShare") for name in stated)


def test_every_method_is_held_against_one_of_its_table() -> None:
    for name in weather.FAMILIES:
        methods = cases(name, "method")
        controls = {method: control_of(method) for method in methods}
        assert {control for control in controls.values() if control is not None} <= methods.keys()
        for method, control in controls.items():
            is_trained_on_less = "data.validation_share=0.2" in methods[method]["set"]
            assert control is None or is_trained_on_less == (control == "local, of 80 %")


def test_all_runs_are_there_and_the_tables_are_made_of_them() -> None:
    runs = load(weather.DOCS / weather.RUNS)
    assert runs.select(KEYS).rows() == weather.planned_runs()
    table = means(runs)
    assert (weather.DOCS / weather.MEANS).read_text(encoding="utf-8") == weather.as_csv(table)
    assert (weather.DOCS / weather.PICTURE).read_text(encoding="utf-8") == picture(table)
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_slow_client(page, table), "run python -m benchmarks.weather --write"


def test_the_page_says_what_the_table_says() -> None:
    """Of each method shown: accuracy in calm weather, then points, of digits / Fashion-MNIST."""
    keys = ["data", "family", "method", "weather"]
    columns = ("accuracy", "against_calm", "excluded", "alone")
    known = {
        row[:4]: row[4:] for row in means(load(weather.DOCS / weather.RUNS)).select(*keys, *columns).rows()
    }
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    families = re.findall(r"^### ([^:\n]*): .*\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert {family for family, _ in families} == set(weather.FAMILIES.values())
    for family, table in families:
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for method, *cells in lines[2:]:
            for sky, cell in zip(lines[0][1:], cells, strict=True):
                for data, figure in zip(("digits", "fashion-mnist"), cell.split(" / "), strict=True):
                    of_the_slow = sky in ("slow client", "its alone")
                    row = known[data, family, method, "one slow" if of_the_slow else sky]
                    accuracy, points, excluded, alone = row
                    shown = {"calm": accuracy, "slow client": excluded, "its alone": alone}.get(sky, points)
                    if shown is None:  # a baseline has no other
                        assert (figure, sky) == ("-", "its alone")
                    else:
                        assert float(figure) == pytest.approx(shown, abs=0.0501), (data, method, sky)


def test_the_page_counts_the_methods_with_rounds_that_lose_little_to_lost_messages() -> None:
    table = means(load(weather.DOCS / weather.RUNS))
    lost = {
        method: points
        for data, method, sky, points in table.select("data", "method", "weather", "against_calm").rows()
        if data == "digits" and sky == "30 % lost"
    }
    without_rounds = ("asynchronous", "gossip", "local", "alone", "fedasync", "fedbuff", "divshare")
    of_rounds = [-points for method, points in lost.items() if not any(w in method for w in without_rounds)]
    few, many = [each for each in of_rounds if each <= 3], [each for each in of_rounds if each > 3]
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    counts = f"{len(few)} of {len(of_rounds)}"
    assert f"With 30% lost, {counts} methods with rounds lose at most three points on digits" in page
    assert f"and the others {min(many):.1f} to {max(many):.1f}: FedEM, pFedSim," in page
    assert f"The study ran {table['method'].n_unique()} methods and baselines" in page


PROTECTED = {
    "weather": (
        "cobo, asynchronous",
        "scool (attention), asynchronous",
        "scool (sbm), asynchronous",
        "federico, asynchronous",
        "meta-l2c, asynchronous",
    ),
    "weather_decoupled": ("mapl, asynchronous", "mapl-plus, asynchronous"),
}


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("name", "method"), [(name, each) for name in PROTECTED for each in PROTECTED[name]])
def test_a_slow_client_loses_nothing_without_rounds(name: str, method: str, tmp_path: Path) -> None:
    """Mean over ten seeds, for which nothing was tuned: at most a point below its own alone."""
    control = control_of(method)
    only = [f"method={method}", f"method={control}", "weather=one slow"]
    planned = plan(weather.STUDIES / f"{name}.toml", only=only, seeds=tuple(range(201, 211)))
    study = load_study([run_sweep(planned, out=tmp_path, execute=here).directory])
    found: dict[object, list[float]] = {method: [], control: []}
    for run in study.runs:
        found[run.values["method"]].append(float(run.view.at_the_end[3]))
    assert np.mean(found[method]) >= np.mean(found[control]) - 0.01
