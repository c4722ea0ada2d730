"""Scenarios that are drawn from a date."""

import datetime
import re
import tomllib
from typing import Any

import pytest

from benchmarks.draw import FAIR, NUMBERS, drawn, main, name_of, text_of
from sim.scenario.scenario import load_scenario
from tests.simulation.worlds import write

KEPT = ("run", "model", "training", "protocol")


@pytest.mark.parametrize("tuned", ["tuned.toml", "methods_tuned.toml"])
@pytest.mark.parametrize("number", NUMBERS)
def test_the_shipped_scenarios_are_those_of_their_date(number: int, tuned: str) -> None:
    text = (FAIR / name_of(number, tuned)).read_text(encoding="utf-8")
    date = re.search(r"benchmarks\.draw (\d{4}-\d\d-\d\d)", text)
    assert date is not None and text == text_of(datetime.date.fromisoformat(date[1]), number, tuned)


def test_only_the_partition_the_world_and_the_seeds_are_drawn(tmp_path: Any) -> None:
    untuned, tuned = (
        tomllib.loads((FAIR / f"{name}.toml").read_text(encoding="utf-8")) for name in ("untuned", "tuned")
    )
    tuning = {9001, 9002, *tuned["sweep"]["seeds"]}
    partitions = set()
    for day in range(1, 29):
        for number in NUMBERS:
            found = drawn(datetime.date(2027, 2, day), number)
            assert all(found[section] == untuned[section] for section in KEPT)
            assert found["sweep"]["case"] == tuned["sweep"]["case"]
            assert len(found["sweep"]["seeds"]) == 5 and not tuning & {*found["sweep"]["seeds"]}
            partitions.add(str(found["data"]["partition"]))
            text = text_of(datetime.date(2027, 2, day), number)
            load_scenario(write(tmp_path, text.partition("[sweep]")[0]))
    assert len(partitions) > 10


def test_a_date_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tomorrow"])
    assert ended.value.code == 2 and "tomorrow" in capsys.readouterr().err
