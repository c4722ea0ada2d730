"""Runs of adapters on a base that all share: who is called what, what travels, and who is the better off."""

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from sim.cli.console import results_table
from sim.cli.studies import app
from sim.errors import UserError
from sim.learning.language.base import BaseNotes, save_base
from sim.learning.language.shapes import TransformerShape
from sim.run.options import RunOptions
from sim.run.running import RunResult, run_scenario
from sim.run.save.progress import Progress
from sim.run.setup.builder import build
from sim.scenario.protocol_lookup import list_protocols
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from tests.learning.test_language import GPT2
from tests.learning.test_llama import LLAMA
from tests.simulation.worlds import write

SHAPE = TransformerShape(vocabulary=256, context=8, width=16, depth=1, heads=2, inner=32)
NUMBERS = 2 * (16 + 48)  # of an adapter of rank 2
TEXT = """\
# Do adapters find each other?
[run]
seed = 1
duration = "3 s"
evaluate_every = "1 s"

[clients]
count = 6

[data]
name = "text"
texts = [
    { language = "ab", file = "ab.txt", family = "first" },
    { language = "cd", file = "cd.txt", family = "first" },
    { language = "ef", file = "ef.txt" },
]
context = 8
windows = 12
test_windows = 6
validation_share = 0.25

[model]
name = "lora"
base = "base.safetensors"
rank = 2

[training]
learning_rate = 0.1
batch_size = 4

[protocol]
name = "gossip"
period = "500 ms"

[network]
latency = "50 ms"
uplink = "10 Mbit/s"
downlink = "10 Mbit/s"

[devices]
step_time = "100 ms"
"""


def world(folder: Path, *, seed: int = 1) -> Path:
    """A scenario, its base and its texts."""
    drawn = torch.Generator().manual_seed(seed)
    named = SHAPE.made().named_parameters()
    weights = {name: 0.3 * torch.randn(each.shape, generator=drawn) for name, each in named}
    save_base(folder / "base.safetensors", weights, BaseNotes(heads=2, tokenizer="bytes"))
    for name, words in (("ab", "abba "), ("cd", "cddc "), ("ef", "feef ")):
        write(folder, words * 100, f"{name}.txt")
    return write(folder, TEXT)


def run(folder: Path, *overrides: str) -> RunResult:
    return run_scenario(load_scenario(world(folder), overrides), RunOptions(out=folder / "runs"))


@pytest.mark.report
def test_clients_are_called_after_their_languages_and_judged_by_perplexity(tmp_path: Path) -> None:
    result = run(tmp_path, "run.compare_alone=true")
    summary = result.summary
    assert summary["client_names"] == ["ab-1", "ab-2", "cd-1", "cd-2", "ef-1", "ef-2"]
    assert summary["measure"] == "perplexity"
    perplexity, loss = summary["perplexity"]["clients"], summary["loss"]["clients"]
    assert perplexity == 6 == loss
    assert result.directory is not None
    metrics = pl.read_parquet(result.directory / "metrics.parquet").filter(pl.col("time") == 3.0)
    at = {
        name: dict(metrics.filter(pl.col("name") == name).select("actor", "value").iter_rows())
        for name in ("perplexity", "loss", "perplexity_alone")
    }
    np.testing.assert_allclose(list(at["perplexity"].values()), np.exp(list(at["loss"].values())), rtol=1e-6)
    # Less is better.
    better = np.mean([at["perplexity"][name] < alone for name, alone in at["perplexity_alone"].items()])
    assert summary["better_than_alone"] == pytest.approx(better)
    report = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "ab-1" in report and "client-0" not in report


def test_a_target_is_reached_from_above(tmp_path: Path) -> None:
    result = run(tmp_path, "run.target=200", "run.evaluate_every=500 ms", "protocol={name='local'}")
    assert result.directory is not None
    metrics = pl.read_parquet(result.directory / "metrics.parquet").filter(pl.col("name") == "perplexity")
    mean = metrics.group_by("time").agg(pl.col("value").mean()).sort("time")
    below = mean.filter(pl.col("value") <= 200)["time"]
    assert 0 < len(below) < len(mean)
    found = result.summary["target"]
    assert (found["perplexity"], found["seconds"]) == (200, below[0])


@pytest.mark.long
@pytest.mark.report
def test_newcomers_and_survivors_are_told_by_perplexity(tmp_path: Path) -> None:
    churn = '[{at="1 s", event="crash", clients=[0]}, {at="1500 ms", event="join", clients=[5]}]'
    result = run(tmp_path, f"churn={churn}", "run.evaluate_every=250 ms", "protocol={name='local'}")
    population, settled = result.summary["population"], result.summary["settled"]
    assert (population["newcomers"], population["departures"]) == (1, 1)
    assert settled["mean"] > 1 and settled["worst_decile"] >= settled["mean"]
    assert result.directory is not None
    table = StringIO()
    Console(file=table, width=120).print(results_table(result.summary))
    said = table.getvalue()
    assert "reached 111% of the other clients' perplexity" in said
    report = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "111% of the mean perplexity" in report
    numbers = report[report.index("<h3>Settled</h3>") :]
    assert f"<td>mean</td><td class=number>{settled['mean']:.1f}</td>" in numbers[:400]  # no share


def test_progress_is_told_by_perplexity(tmp_path: Path) -> None:
    shown: list[Progress] = []
    scenario = load_scenario(world(tmp_path), ["run.duration=1 s"])
    result = run_scenario(scenario, RunOptions(progress=shown.append, out=tmp_path / "runs"))
    assert shown[-1].measure.name == "perplexity"
    assert shown[-1].reached == pytest.approx(result.summary["perplexity"]["mean"])


def test_a_message_carries_the_adapter_alone(tmp_path: Path) -> None:
    simulation = build(load_scenario(world(tmp_path)))
    try:
        base_bytes = (tmp_path / "base.safetensors").stat().st_size
        (architecture,) = {client.compute.settings.architecture for client in simulation.clients}
        assert architecture.numel == NUMBERS
        assert 0.9 * base_bytes < architecture.constant_bytes < base_bytes
        simulation.run()
        sent = [event for event in simulation.trace.to_table().to_pylist() if event["event"] == "sent"]
        models = [event["bytes"] for event in sent if event["bytes"] > 4 * NUMBERS]
        assert models and max(models) < 4 * NUMBERS + 200  # of words around it, whatever the adapter weighs
        assert simulation.clusters == (0, 0, 0, 0, 1, 1)
    finally:
        simulation.close()


def test_check_tells_what_all_share(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(world(tmp_path))])
    assert result.exit_code == 0, result.output
    said = result.output.replace("\N{NO-BREAK SPACE}", " ")
    assert f"{NUMBERS} parameters (512 B), 25.9 kB of constants, shared by all clients" in said


def test_results_are_named_by_the_content_of_base_and_texts(tmp_path: Path) -> None:
    first = digest(load_scenario(world(tmp_path)))
    assert digest(load_scenario(world(tmp_path))) == first
    assert digest(load_scenario(world(tmp_path, seed=2))) != first
    world(tmp_path)
    write(tmp_path, "other words", "cd.txt")
    assert digest(load_scenario(tmp_path / "world.toml")) != first


def test_a_checkpoint_of_hugging_face_runs_and_names_its_results(tmp_path: Path) -> None:
    shutil.copytree(GPT2, tmp_path / "gpt2")
    overrides = ["model.base=gpt2", "data.tokenizer=characters", "data.context=7", "engine.micro_batch=2"]
    result = run(tmp_path, *overrides)
    assert np.isfinite(result.summary["perplexity"]["mean"])
    named = digest(load_scenario(tmp_path / "world.toml", overrides))
    config = tmp_path / "gpt2" / "config.json"
    config.write_text(config.read_text() + " ")
    assert digest(load_scenario(tmp_path / "world.toml", overrides)) != named


@pytest.mark.long
def test_a_run_on_llama_is_verified_resumed_and_forked(tmp_path: Path) -> None:
    """Grouped queries, in four parts; and its digest changes with each of them."""
    shutil.copytree(LLAMA, tmp_path / "llama")
    changes = ["model.base=llama", "data.tokenizer=characters", "data.context=7", "run.duration=2 s"]
    whole = run(tmp_path, *changes)
    assert whole.summary["perplexity"]["mean"] < 19
    file, scenario = tmp_path / "world.toml", load_scenario(tmp_path / "world.toml", changes)

    def trace_of(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--quiet"])
        assert done.exit_code == 0, done.output
        (report,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
        folder = Path(report.removeprefix("report: ")).parent
        return str(json.loads((folder / "summary.json").read_text())["trace_hash"])

    stated = [word for change in changes for word in ("--set", change)]
    assert (
        trace_of("run", str(file), *stated, "--verify", "--out", str(tmp_path / "verified"))
        == (whole.summary["trace_hash"])
    )
    shorter = load_scenario(file, [*changes[:-1], "run.duration=1 s"])
    first = run_scenario(shorter, RunOptions(out=tmp_path / "first", checkpoints_s=[0.5]))
    assert trace_of("resume", str(first.directory), "--until", "2 s") == whole.summary["trace_hash"]
    forked = trace_of("fork", str(first.directory), "--at", "500 ms", "--set", "run.duration=2 s")
    assert forked == whole.summary["trace_hash"]
    before = digest(scenario)
    part = tmp_path / "llama" / "model-00003-of-00004.safetensors"
    part.write_bytes(part.read_bytes()[:-4] + bytes(4))
    assert digest(scenario) != before


NEEDS = {"dfedavgm": ["training.momentum=0.5"]}


@pytest.mark.long
@pytest.mark.parametrize("protocol", list_protocols())
def test_every_method_runs_or_says_what_it_needs(protocol: str, tmp_path: Path) -> None:
    overrides = [f"protocol={{name='{protocol}'}}", *NEEDS.get(protocol, []), "run.duration=1 s"]
    try:
        result = run(tmp_path, *overrides)
    except UserError as error:
        reason = "classification" if protocol == "flt" else 'exchanges parts of models; must be "decoupled"'
        hint = f"{error}: add the settings that {protocol} needs to NEEDS in {__file__}"
        assert reason in str(error), hint
        return
    assert "failures" not in result.summary or not result.summary["failures"]
    assert np.isfinite(result.summary["perplexity"]["mean"])


@pytest.mark.long
def test_the_same_run_again_and_from_a_checkpoint(tmp_path: Path) -> None:
    method = "protocol={name='cobo', domain='simplex', sampling_scale=4}"
    whole = run(tmp_path, method)
    scenario = load_scenario(tmp_path / "world.toml", [method])
    again = run_scenario(scenario, RunOptions(out=tmp_path / "kept", checkpoints_s=[1.0]))
    assert whole.summary["trace_hash"] == again.summary["trace_hash"]
    words = ["fork", str(again.directory), "--at", "1 s", "--quiet", "--set", "run.duration=4 s"]
    forked = CliRunner().invoke(app, words)
    assert forked.exit_code == 0, forked.output
    folder = Path(forked.stdout.splitlines()[-1].removeprefix("report: ")).parent
    found = json.loads((folder / "summary.json").read_text())
    assert found["trace_hash"] == run(tmp_path, method, "run.duration=4 s").summary["trace_hash"]


@pytest.mark.long
def test_parts_of_batches_and_all_ways_lead_to_the_same_numbers(tmp_path: Path) -> None:
    found: list[Any] = []
    for settings in (["engine.way=vmap"], ["engine.way=loop"], ["engine.micro_batch=3"]):
        found.append(run(tmp_path, *settings).summary["loss"]["mean"])
    np.testing.assert_allclose(found, found[0], rtol=1e-5)


def test_clients_devices_must_hold_the_base(tmp_path: Path) -> None:
    scenario = load_scenario(world(tmp_path), ["devices.memory=20 kB"])
    with pytest.raises(UserError, match=r"devices.memory: .* gradient\), 25,920 bytes of constants"):
        build(scenario)


def test_a_base_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = world(tmp_path)
    (tmp_path / "base.safetensors").unlink()
    result = CliRunner().invoke(app, ["run", str(file)])
    assert result.exit_code == 2
    assert 'model.base = "base.safetensors": no such file in the current folder' in result.output
    assert "run `coterie pretrain` (default file: english.safetensors)" in result.output


@pytest.mark.long
def test_a_run_verified_swept_interrupted_and_gone_on_with_is_the_same(tmp_path: Path) -> None:
    """The base, which is in no checkpoint, is found again."""
    (base := tmp_path / "study").mkdir()
    file = world(base)
    whole = run(base, "run.duration=2 s").summary["trace_hash"]

    def found(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*words, "--quiet"])
        assert done.exit_code == 0, done.output
        (report,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
        folder = Path(report.removeprefix("report: ")).parent
        return dict(json.loads((folder / "summary.json").read_text()))

    verified = ["--verify", "--set", "run.duration=2 s", "--out", str(tmp_path / "verified")]
    assert found("run", str(file), *verified)["trace_hash"] == whole
    scenario = load_scenario(file, ["run.duration=1 s"])
    first = run_scenario(scenario, RunOptions(out=tmp_path / "runs"))
    assert found("resume", str(first.directory), "--until", "2 s")["trace_hash"] == whole
    words = ["sweep", str(file), "--set", "model.rank=1,2", "--set", "run.duration=2 s", "--jobs", "1"]
    swept = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "swept"), "--quiet"])
    assert swept.exit_code == 0, swept.output
    summaries = [json.loads(each.read_text()) for each in (tmp_path / "swept").glob("*/summary.json")]
    assert len(summaries) == 2 and whole in [each["trace_hash"] for each in summaries]
