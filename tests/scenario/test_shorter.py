"""A run that an option shortens needs no other option: later events are left out, and a line says so."""

from pathlib import Path

import pytest

from sim.errors import UserError
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import Scenario, load_scenario
from tests.simulation.worlds import QUADRATIC, run, write

LATE = """
[[churn]]
at = "1 s"
event = "crash"
clients = [4]

[[churn]]
at = "6 s"
event = "rejoin"
clients = [4]

[[change]]
at = "7 s"
network.loss = 0.5

[[network.partition]]
start = "3 s"
end = "4 s"
groups = [[0, 1, 2], [3, 4, 5]]

[[devices.slowdown]]
start = "1 s"
end = "2 s"
clients = [1]
factor = 2.0
"""


def loaded(folder: Path, *overrides: str, text: str = QUADRATIC + LATE) -> Scenario:
    return load_scenario(write(folder, text), overrides)


def test_later_events_are_left_out(tmp_path: Path) -> None:
    whole, short = loaded(tmp_path), loaded(tmp_path, "run.duration=3 s")
    assert len(whole.churn) == 2 and len(whole.change) == len(whole.network.partition) == 1
    assert not whole.notices
    assert [entry.event for entry in short.churn] == ["crash"]
    assert not short.change and not short.network.partition and len(short.devices.slowdown) == 1
    assert short.run.evaluate_every.seconds == 3.0
    assert short.notices == (
        "run.evaluate_every is longer than the run, and is now 3 s",
        "left out of churn: entries that do not start before the end of the run (1 of 2)",
        "left out of change: entries that do not start before the end of the run (1 of 1)",
        "left out of network.partition: entries that do not start before the end of the run (1 of 1)",
    )
    again = loaded(tmp_path, text=to_toml(short))
    assert to_toml(again) == to_toml(short) and not again.notices


def test_what_a_file_or_an_option_states_itself_is_still_refused(tmp_path: Path) -> None:
    for text in (QUADRATIC + LATE, QUADRATIC):
        with pytest.raises(UserError, match=r"run\.evaluate_every = \"5 s\": must be at most the duration"):
            loaded(tmp_path, text=text.replace('duration = "10 s"', 'duration = "3 s"'))
    with pytest.raises(UserError, match=r"churn\.1\.at = \"6 s\": is at the end of the run"):
        loaded(tmp_path, text=(QUADRATIC + LATE).replace('duration = "10 s"', 'duration = "6 s"'))
    with pytest.raises(UserError, match=r"run\.evaluate_every = \"4 s\" \(from --set\): must be"):
        loaded(tmp_path, "run.duration=3 s", "run.evaluate_every=4 s")
    with pytest.raises(UserError, match=r"churn\.1\.at = \"8 s\" \(from --set\): is after"):
        loaded(tmp_path, "run.duration=6 s", "churn.1.at=8 s")


@pytest.mark.parametrize("odd", ['"soon"', "3", "[1]", "-1 s", "0 s", "{}", "nan s"])
def test_odd_durations_are_refused_as_before(tmp_path: Path, odd: str) -> None:
    with pytest.raises(UserError, match=r"run\.duration"):
        loaded(tmp_path, f"run.duration={odd}")


def test_a_shorter_run_is_the_start_of_the_longer_one(tmp_path: Path) -> None:
    text = QUADRATIC.replace('"local"', '"gossip"') + LATE
    texts = [
        run(tmp_path, text, *each).directory for each in (("run.evaluate_every=3 s",), ("run.duration=3 s",))
    ]
    import polars as pl

    assert texts[0] is not None and texts[1] is not None
    long, short = [
        pl.read_parquet(each / "events.parquet").filter(pl.col("event") == "sent") for each in texts
    ]
    assert short.height > 10
    assert short.drop("message").equals(long.filter(pl.col("time") <= 3).drop("message"))
