"""What `check` says a scenario comes to, beside what a run of it then does."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from actors.message import Envelope
from sim.cli.commands import app
from sim.cli.outline import _MESSAGE_BYTES, outline
from sim.files.data_folder import DataFolder
from sim.results.store.events_file import EventsFile
from sim.results.trace import Trace
from sim.run.setup.builder import build
from sim.run.setup.checking import check
from sim.run.setup.plan import plan_run
from sim.scenario.scenario import load_scenario
from tests.scenario.texts import SMALL, changed, write

SHORT = changed(changed(SMALL, '"1 min"', '"10 s"'), '"15 s"', '"3 s"')
JOIN = '\n[[churn]]\nat = "4 s"\nevent = "join"\nclients = [3]\n'
CRASH = '\n[[churn]]\nat = "5 s"\nevent = "crash"\nclients = [0, 1]\n'


def rows(folder: Path, text: str, *overrides: str) -> dict[str, str]:
    scenario = load_scenario(write(folder, text), overrides)
    said = dict(outline(scenario, check(scenario)))
    return {name: what.replace("\N{NO-BREAK SPACE}", " ") for name, what in said.items()}


def test_the_command_says_what_a_scenario_comes_to(tmp_path: Path) -> None:
    path = write(tmp_path, SHORT)
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0
    first, *lines = result.stdout.replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert first == f"{path}: ok"
    assert lines == [
        "  protocol  gossip",
        "  clients   4",
        "  data      digits; samples per client: 20 training, 359 test",
        "  model     mlp; 610 parameters (2.44 kB)",
        "  time      10 s virtual, evaluated every 3 s (5 times)",
        "  training  at most 400 steps, 100 ms each, if every device trains all the time",
        "  memory    9.76 kB of models and optimizers, 474 kB of samples, up to 512 MB of pending "
        "results; torch and each call need additional memory",
        "  trace     up to about 30 B of events.parquet for each message, so 12 kB if each step sends one",
        "  threads   1",
    ]


@pytest.mark.parametrize(
    ("protocol", "numbers"),
    [
        ('name = "pfedhn"\nembedding = 3\nhidden = [5]', 5 * (3 + 1) + 610 * (5 + 1) + 4 * 3),
        (
            'name = "learn-to-collaborate"\nunusual = ["data.validation_share"]\nhidden = [5]',
            2 * (5 * (4 + 1) + 610 * (5 + 1)),
        ),
        ('name = "pfedhn"\nembedding = 3\nhidden = [5]\nouter_momentum = 0.9', 2 * (20 + 610 * 6 + 12)),
        ('name = "ifca"\nmodels = 3', 3 * 610),
        ('name = "pfedhn"\nalone = true', 0),
        ('name = "fedavg"', 0),
    ],
)
def test_what_a_method_keeps_besides_the_models(tmp_path: Path, protocol: str, numbers: int) -> None:
    text = changed(SHORT, 'name = "gossip"\nperiod = "500 ms"', protocol)
    kilobytes = 4 * (4 * 610 + numbers) / 1000
    assert rows(tmp_path, text)["memory"].startswith(f"{kilobytes:.3g} kB of models")


def test_who_comes_and_goes(tmp_path: Path) -> None:
    said = rows(tmp_path, SHORT + JOIN + CRASH, "engine.threads=2", 'training.optimizer="adam"')
    assert said["clients"] == "4, 3 of them up at the start, 1 join, 2 crashes"
    assert said["training"].startswith("at most 260 steps, ")  # 5 s + 5 s + 10 s + 6 s
    assert said["threads"] == "2"
    assert said["memory"].startswith("29.3 kB of models")  # and two moments


def test_servers_validation_and_several_models(tmp_path: Path) -> None:
    text = changed(SHORT, 'name = "gossip"\nperiod = "500 ms"', 'name = "fedproto"')
    text = changed(
        text, 'name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = ["small-mlp", "deep-mlp"]'
    )
    said = rows(
        tmp_path,
        text,
        "data.validation_share=0.2",
        "devices.step_time={ kind = 'uniform', low = '1 s', high = '2 s' }",
    )
    assert said["clients"] == "4, 1 server"
    assert said["data"] == "digits; samples per client: 16 training, 4 validation, 359 test"
    assert said["model"].startswith("decoupled; ")
    assert said["model"].count(" at 2 clients") == 2
    assert " s to 1." in said["training"]


def test_what_cannot_be_known_is_called_unknown(tmp_path: Path) -> None:
    text = changed(SHORT, 'duration = "10 s"', "iterations = 50")
    said = rows(tmp_path, text)
    assert said["training"].startswith("an unknown number of steps, 100 ms each")
    assert said["time"] == "50 iterations, evaluated every 3 s (an unknown number of times)"
    said = rows(tmp_path, text, 'run.evaluate_every="20 iterations"')
    assert said["time"] == "50 iterations, evaluated every 20 iterations (at most 4 times)"


def test_a_control_is_called_one_and_has_no_server(tmp_path: Path) -> None:
    said = rows(tmp_path, SHORT, "protocol.name=fedavg", "protocol.alone=true")
    assert (said["protocol"], said["clients"]) == ("fedavg, alone", "4")


def test_a_budget_says_how_many_steps_there_are_at_most(tmp_path: Path) -> None:
    by_budget = changed(SHORT, 'duration = "10 s"', "budget = { steps = 50 }")
    said = rows(tmp_path, by_budget)
    assert said["time"] == "50 steps of each client, evaluated every 3 s (an unknown number of times)"
    assert said["training"] == "at most 200 steps, 100 ms each"
    said = rows(tmp_path, by_budget, "run.duration=2 s", "run.evaluate_every=1 s")
    assert said["time"] == "2 s virtual or 50 steps of each client, evaluated every 1 s (at most 3 times)"
    assert said["training"] == "at most 80 steps, 100 ms each, if every device trains all the time"
    said = rows(tmp_path, changed(SHORT, 'duration = "10 s"', "budget = { samples = 1_000 }"))
    assert said["time"].startswith("1,000 samples of each client, ")
    assert said["training"] == "at most 1,000 steps, 100 ms each"
    said = rows(tmp_path, changed(SHORT, 'duration = "10 s"', 'budget = { time = "1 min" }'))
    assert said["time"].startswith("1 min of each client, ")
    assert said["training"].startswith("an unknown number of steps")


@pytest.mark.parametrize("every", ["3 s", "5 s", "10 s", "100 ms"])
def test_a_run_does_what_was_said(tmp_path: Path, every: str) -> None:
    said = rows(tmp_path, SHORT + JOIN, f"run.evaluate_every={every}")
    simulation = build(load_scenario(write(tmp_path, SHORT + JOIN), [f"run.evaluate_every={every}"]))
    try:
        simulation.run()
        evaluations = len(simulation.observer.metrics.series("all", "alive").values)
        updates = simulation.engine.statistics.updates
    finally:
        simulation.close()
    assert f"({evaluations:,} times)" in said["time"]
    assert 0 < updates <= int(said["training"].split()[2])


def test_step_times_of_mean_zero_are_cut_off_above_it(tmp_path: Path) -> None:
    times = 'devices.step_time={kind="normal", mean=0, sigma="1 s", low="10 ms"}'
    assert "steps" in rows(tmp_path, SHORT, times)["training"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["protocol.patience=1 s"], None),
        (
            ["protocol.patience=900 ms"],
            "too short for 4 of 4 clients: they train for 1 s or more per round, but the server waits",
        ),
        (
            ["protocol.patience=3 s", "devices.override=[{clients=[1],slowdown=5}]"],
            "too short for 1 of 4 clients",
        ),
        (["protocol.patience=900 ms", "protocol.alone=true"], None),
        (["protocol.name=local"], None),
    ],
)
def test_a_round_that_is_longer_than_the_servers_patience(
    tmp_path: Path, more: list[str], said: str | None
) -> None:
    fedavg = ["protocol={name='fedavg'}", "protocol.local_steps=10"] if "local" not in more[0] else []
    found = rows(tmp_path, SHORT, *fedavg, *more).get("rounds")
    assert found is None if said is None else found is not None and found.startswith(said)


def test_what_the_trace_will_weigh(tmp_path: Path) -> None:
    def trace(*overrides: str) -> str:
        return rows(tmp_path, SHORT, *overrides)["trace"]

    assert trace() == ("up to about 30 B of events.parquet for each message, so 12 kB if each step sends one")
    assert trace("run.duration=100 s").endswith("so 120 kB if each step sends one")
    assert trace("run.keep_messages=false") == "messages are not kept (run.keep_messages)"


def test_the_last_round_of_a_server_ends_it(tmp_path: Path) -> None:
    text = changed(SHORT, 'name = "gossip"\nperiod = "500 ms"', 'name = "fedavg"\nrounds = 3')
    assert rows(tmp_path, text)["time"] == "10 s virtual or 3 rounds, evaluated every 3 s (at most 5 times)"
    assert (
        rows(tmp_path, text, "protocol.alone=true")["time"] == "10 s virtual, evaluated every 3 s (5 times)"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("training.optimizer=adam", "training.batch_size=7", "model={ name = 'logistic-regression' }"),
        ("devices={ speed = '1 GFLOP/s' }", "training.momentum=0.5", "run.budget={ samples = 100 }"),
        ("protocol={ name = 'fedavg', local_epochs = 2 }", "training.sampling=replacement"),
    ],
)
def test_a_plan_without_models_says_the_same(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    """Sizes stand for models; what is made of a plan has its numbers."""
    scenario = load_scenario(write(tmp_path, SHORT), overrides)
    light, whole = [plan_run(scenario, DataFolder(), made=made) for made in (False, True)]
    assert outline(scenario, light) == outline(scenario, whole) == outline(scenario, check(scenario))
    with closing(build(scenario, device="cpu")) as built:
        for plan, client in zip(light.clients, built.clients, strict=True):
            compute = client.compute
            assert plan.step_s == compute.step_s * client.device.slowdown
            assert (plan.steps, plan.steps_per_epoch) == (compute.steps_left, compute.steps_per_epoch)


def test_check_names_the_clients_of_each_override(tmp_path: Path) -> None:
    entries = ("share = 0.5\nbatch_size = 2", "clients = [3]\nlearning_rate = 0.5")
    overrides = "".join([f"\n[[training.override]]\n{entry}\n" for entry in entries])
    scenario = load_scenario(write(tmp_path, SHORT + overrides))
    plan = check(scenario)
    half, last = [what for name, what in outline(scenario, plan) if name == "override"]
    assert last == "1: 1 of 4 clients: client-3"
    chosen = [f"client-{index}" for index, own in enumerate(plan.clients) if own.work.batch_size == 2]
    assert half == f"0: 2 of 4 clients: {', '.join(chosen)}"


def test_a_message_takes_at_most_the_stated_bytes_of_the_events_file(tmp_path: Path) -> None:
    """Of a thousand clients, at times that all differ: a column more would take more."""
    number, draws = 20_000, np.random.default_rng(1)
    sent_s = np.sort(100 * draws.random(number))
    found = zip(
        sent_s,
        sent_s + draws.lognormal(-3.0, 0.5, number),
        draws.integers(1000, size=(number, 2)),
        strict=True,
    )
    rows = [
        (float(time_s), event, Envelope(f"client-{pair[0]}", f"client-{pair[1]}", None), index + 1)
        for index, (*times_s, pair) in enumerate(found)
        for time_s, event in zip(times_s, ("sent", "delivered"), strict=True)
    ]
    trace, path = Trace(), tmp_path / "events.parquet"
    trace.kept = file = EventsFile(path)
    for time_s, event, envelope, index in sorted(rows, key=lambda row: row[0]):
        trace.message(event, time_s, envelope, "Model", 1000, number=index)
    trace.flush()
    file.close({})
    taken = path.stat().st_size / number
    hint = f"a message takes {taken:.1f} B: change _MESSAGE_BYTES in sim/cli/outline.py"
    assert 0.6 * _MESSAGE_BYTES < taken < _MESSAGE_BYTES, hint
