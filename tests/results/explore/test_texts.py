"""Texts of the pages' JavaScript, computed by Node.js."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import sim

NODE = shutil.which("node")
TEMPLATES = Path(sim.__file__).parent

pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")


def computed(file: str, *expressions: str) -> list[str]:
    code = (TEMPLATES / file).read_text(encoding="utf-8")
    code += f"; console.log(JSON.stringify([{','.join(expressions)}]))"
    ran = subprocess.run([str(NODE), "-e", code], check=True, capture_output=True, text=True)
    return [str(each) for each in json.loads(ran.stdout)]


def test_times_are_rounded_before_they_are_split() -> None:
    assert computed(
        "results/explore/templates/explore_text.js",
        *["clock(119.997)", "clock(7199.997)", "clock(0.99999)", "clock(61.5)", "clock(-0.25)", "clock(0)"],
        *["age(0.9999)", "age(0.0003)", "age(0.0123)", "age(0)", "age(12.34)"],
    ) == [
        *["2 min", "2 h", "1 s", "1 min 1.5 s", "-0.25 s", "0 s"],
        *["1 s", "0.3 ms", "12 ms", "0 s", "12.3 s"],
    ]


def test_values_of_a_study_are_those_of_its_tables() -> None:
    metric = "{scale: 1}"
    values = [1287.4, 12_345, 0.012345, 99.95, 1e6, 0]
    shown = computed(
        "studies/templates/study_data.js", *[f"shown_value({value}, {metric})" for value in values]
    )
    assert shown == ["1,287", "12,345", "0.0123", "100", "1,000,000", "0"]
    assert computed("studies/templates/study_data.js", "shown_value(0.8725, {scale: 100})") == ["87.3"]
