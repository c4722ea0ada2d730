"""The numbers in the tutorial are those of the commands that it prints."""

import json
import shlex
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli.live import app
from sim.results.text import size

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.long


def summary(folder: Path, step: str, seed: int = 1) -> dict[str, Any]:
    """Return the summary of the run that a command of the tutorial makes."""
    [command] = [line for line in PAGE.splitlines() if f"run.name={step} " in f"{line} "]
    options = ["--seed", str(seed), "--out", str(folder), "--quiet"]
    made = CliRunner().invoke(app, [*shlex.split(command)[1:], *options])
    assert made.exit_code == 0, made.output
    [found] = folder.glob(f"{step}-{seed}-*/summary.json")
    result: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return result


def accuracy(step: dict[str, Any], of: str = "mean") -> str:
    return f"{step['accuracy'][of]:.1%}"


def sent(step: dict[str, Any]) -> str:
    return size(step["messages"]["bytes"]).replace("\N{NO-BREAK SPACE}", " ")


def test_the_numbers_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs/examples/tutorial")
    steps = {number: summary(tmp_path, f"step-{number}") for number in range(1, 6)}
    lost = summary(tmp_path, "step-4-lost")
    assert f"The final accuracy is {accuracy(steps[1])}." in PAGE
    worst = accuracy(steps[2], "worst_decile")
    assert f"The accuracy is {accuracy(steps[2])}, and {worst} for the worst 10% of the clients." in PAGE
    assert f"The accuracy is {accuracy(steps[3])}, ten percentage points above local training" in PAGE
    assert 0.09 < steps[3]["accuracy"]["mean"] - steps[1]["accuracy"]["mean"] < 0.11
    assert f"| accuracy | {accuracy(steps[3])} | {accuracy(steps[4])} |" in PAGE
    for label, step in (("5, 30% lost", steps[5]), ("4, 30% lost", lost), ("4, no lost messages", steps[4])):
        assert f"| step {label} | {accuracy(step)} | {sent(step)} |" in PAGE
    graph = steps[4]["graph"]
    assert (
        f"(precision\n{graph['edge_precision']:.2f})" in PAGE
        and f"(recall {graph['edge_recall']:.2f})" in PAGE
    )
    assert len({step["work"]["steps"]["mean"] for step in [*steps.values(), lost]}) == 1


def test_the_means_over_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs/examples/tutorial")
    runs = {
        step: [summary(tmp_path, f"step-{step}", seed)["accuracy"]["mean"] for seed in range(1, 5)]
        for step in (3, 4)
    }
    assert f"| accuracy, mean of seeds 1 to 4 | {fmean(runs[3]):.1%} | {fmean(runs[4]):.1%} |" in PAGE
