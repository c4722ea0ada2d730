"""Bad scenarios: each ends with exit code 2 and one clear message."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.errors import UserError
from sim.scenario.scenario import load_scenario
from tests.scenario.texts import SMALL, changed, write

UNITS = 'write a number and one of us, ms, s, min, h, day, such as "20 s"'
RATES = 'write a number and one of bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, GB/s, such as "10 Mbit/s"'
CHURN = '\n[[churn]]\nat = "{at}"\nevent = "{event}"\nclients = [{clients}]\n'
LATENCIES = "constant, uniform, normal, lognormal, pareto, matrix, positions, trace"
CUT = "\n[[network.partition]]\n"


def join(at: str, event: str, clients: str) -> str:
    return CHURN.format(at=at, event=event, clients=clients)


def edited(old: str, new: str) -> str:
    return changed(SMALL, old, new)


IID = '{ kind = "iid", samples_per_client = 20 }'
GOSSIP = 'name = "gossip"\nperiod = "500 ms"'

# What is in the file, and what stands behind "small.toml: ".
BAD = {
    "unknown key": (
        edited("batch_size = 4", "batch_size = 4\nmomentun = 0.9"),
        "training.momentun = 0.9: unknown key; allowed: optimizer, learning_rate, schedule, clip_norm, "
        "momentum, dampening, nesterov, weight_decay, betas, epsilon, batch_size, sampling, augmentation; "
        "did you mean 'momentum'?",
    ),
    "one of two betas": (
        edited("batch_size = 4", "batch_size = 4\nbetas = [0.9]"),
        "training.betas.1: is missing; training.betas has a value too few",
    ),
    "augmentation of what is no image": (
        edited("batch_size = 4", "batch_size = 4\n[training.augmentation]"),
        'training.augmentation: changes images, and a sample of data.name = "digits" is none but a row of '
        'numbers; leave the section out, or take another data set, such as "fashion-mnist"',
    ),
    "augmentation more often than always": (
        edited("batch_size = 4", "batch_size = 4\naugmentation = { flip = 1.5 }"),
        "training.augmentation.flip = 1.5: must be at most 1",
    ),
    "range that begins with its end": (
        edited("batch_size = 4", "batch_size = 4\naugmentation = { blur_sigma = [2.0, 0.1] }"),
        "training.augmentation.blur_sigma = [2.0, 0.1]: must begin with the smaller number",
    ),
    "unknown section": (
        SMALL + "\n[netwrok]\nloss = 0.5\n",
        "netwrok = { loss = 0.5 }: unknown key; allowed: run, clients, data, model, training, protocol, "
        "network, devices, churn, churn_process, change, engine, supervision, server, sweep; "
        "did you mean 'network'?",
    ),
    "missing section": (
        edited('[devices]\nstep_time = "100 ms"\n', ""),
        "devices: is missing; write a table with the keys step_time, speed, memory, class, "
        "override, slowdown, transient, periodic, measured",
    ),
    "section that is no table": (
        edited('[devices]\nstep_time = "100 ms"\n', "").replace("[run]", 'devices = "fast"\n[run]'),
        'devices = "fast": must be a table with the keys step_time, speed, memory, class, '
        "override, slowdown, transient, periodic, measured",
    ),
    "missing latency": (
        edited('latency = "20 ms"\n', ""),
        f"network.latency: is missing; {UNITS}, or a table whose kind is one of ",
    ),
    "latency without a unit": (
        edited('latency = "20 ms"', "latency = 20"),
        f"network.latency = 20: 20 has no unit; {UNITS}",
    ),
    "wrong unit": (
        edited('latency = "20 ms"', 'latency = "20 mss"'),
        f"network.latency = \"20 mss\": '20 mss' has the unknown unit 'mss' (did you mean 'ms'?); {UNITS}",
    ),
    "negative latency": (
        edited('latency = "20 ms"', 'latency = "-20 ms"'),
        f"network.latency = \"-20 ms\": '-20 ms' must be 0 or more; {UNITS}",
    ),
    "unknown distribution": (
        edited('latency = "20 ms"', 'latency = { kind = "log-normal", mean = "1 s" }'),
        f"network.latency.kind = \"log-normal\": must be one of {LATENCIES}; did you mean 'lognormal'?",
    ),
    "distribution without its kind": (
        edited('latency = "20 ms"', 'latency = { median = "1 s", sigma = 0.5 }'),
        f"network.latency.kind: is missing; must be one of {LATENCIES}",
    ),
    "incomplete distribution": (
        edited('latency = "20 ms"', 'latency = { kind = "lognormal", median = "1 s" }'),
        "network.latency.sigma: is missing; write a number, at least 0",
    ),
    "bounds the wrong way round": (
        edited('latency = "20 ms"', 'latency = { kind = "uniform", low = "2 s", high = "1 s" }'),
        'network.latency.high = "1 s": must be at least low (2 s)',
    ),
    "missing bandwidth": (
        edited('uplink = "10 Mbit/s"\n', ""),
        f'network.uplink: is missing; {RATES}, or "unlimited"',
    ),
    "unit in the wrong case": (
        edited('"10 Mbit/s"', '"10 mbit/s"'),
        "network.uplink = \"10 mbit/s\": '10 mbit/s' has the unknown unit 'mbit/s' (did you mean 'Mbit/s'?); "
        f'{RATES}, or "unlimited"',
    ),
    "loss of everything": (
        edited('latency = "20 ms"', 'latency = "20 ms"\nloss = 1'),
        "network.loss = 1: must be less than 1",
    ),
    "cut that ends before it starts": (
        SMALL + CUT + 'start = "2 s"\nend = "1 s"\ngroups = [[0], [1]]\n',
        'network.partition.0.end = "1 s": must be after start (2 s)',
    ),
    "cut after the end": (
        SMALL + CUT + 'start = "2 min"\nend = "3 min"\ngroups = [[0], [1]]\n',
        'network.partition.0.start = "2 min": comes after the end of the run; must be before run.duration ',
    ),
    "slow times after the end": (
        SMALL + '\n[[devices.slowdown]]\nshare = 0.5\nfactor = 2\nstart = "1 min"\nend = "3 min"\n',
        'devices.slowdown.0.start = "1 min": comes after the end of the run; must be before run.duration ',
    ),
    "cut without sides": (
        SMALL + CUT + 'start = "1 s"\nend = "2 s"\nfrom = [1]\n',
        "network.partition.0.to: state both 'from' and 'to'",
    ),
    "cut of an unknown client": (
        SMALL + CUT + 'start = "1 s"\nend = "2 s"\ngroups = [[0], [1, 4]]\n',
        "network.partition.0.groups.1 = [1, 4]: there is no client 4; must be numbers from 0 to 3",
    ),
    "no clients": (edited("count = 4", "count = 0"), "clients.count = 0: must be more than 0"),
    "text for a number": (edited("count = 4", 'count = "4"'), 'clients.count = "4": must be a whole number'),
    "truth for a number": (
        edited("count = 4", "count = true"),
        "clients.count = true: must be a whole number",
    ),
    "unknown topology": (
        edited("count = 4", 'count = 4\ntopology = "rings"'),
        'clients.topology = "rings": must be one of complete, ring, k-regular, erdos-renyi, small-world, '
        "clusters, edge-list; did you mean 'ring'?",
    ),
    "topology without its degree": (
        edited("count = 4", 'count = 4\ntopology = "k-regular"'),
        "clients.topology.degree: is missing; write a whole number, more than 0",
    ),
    "impossible degree": (
        edited("count = 4", 'count = 4\ntopology = { kind = "k-regular", degree = 4 }'),
        "clients.topology.degree = 4: must be less than clients.count = 4, and their product must be even",
    ),
    "topology of other size": (
        edited("count = 4", 'count = 4\ntopology = { kind = "clusters", sizes = [2, 3] }'),
        "clients.topology.sizes = [2, 3]: the sizes must add up to clients.count = 4, not 5",
    ),
    "missing edge list": (
        edited("count = 4", 'count = 4\ntopology = { kind = "edge-list", file = "/none/edges.txt" }'),
        'clients.topology.file = "/none/edges.txt": no such file; must be a text file with two ',
    ),
    "unknown data": (
        edited('name = "digits"', 'name = "digit"'),
        'data.name = "digit": must be one of digits, fashion-mnist, mnist, cifar-10, cifar-100, adult, '
        "synthetic-regression, quadratic, arrays, table; did you mean 'digits'?",
    ),
    "more clusters than clients": (
        edited(IID, '{ kind = "permuted-clusters", clusters = 5 }'),
        "data.partition.clusters = 5: more clusters than clients; must be at most clients.count = 4",
    ),
    "cluster sizes that do not add up": (
        edited(IID, '{ kind = "disjoint-clusters", sizes = [1, 2] }'),
        "data.partition.sizes = [1, 2]: the sizes must add up to clients.count = 4, not 3",
    ),
    "clusters given twice": (
        edited(IID, '{ kind = "permuted-clusters", clusters = 2, sizes = [2, 2] }'),
        "data.partition.sizes = [2, 2]: state exactly one of 'clusters' or 'sizes'",
    ),
    "more classes than there are": (
        edited(IID, '{ kind = "classes-per-client", classes = 11 }'),
        'data.partition.classes = 11: must be at most the number of classes of "digits", 10',
    ),
    "Dirichlet with alpha 0": (
        edited(IID, '{ kind = "dirichlet", alpha = 0 }'),
        "data.partition.alpha = 0: must be more than 0",
    ),
    "model that does not fit the data": (
        edited('name = "mlp"\nhidden = [8]', 'name = "point"'),
        'model.name = "point": only for data.name = "quadratic", this is "digits"; must be one of '
        "logistic-regression, mlp, cnn, resnet9, decoupled",
    ),
    "backbones that need images": (
        edited('name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = ["small-mlp", "small-cnn"]'),
        'model.backbones = ["small-mlp", "small-cnn"]: the inputs of data.name = "digits" are 64 numbers',
    ),
    "no backbone": (
        edited('name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = []'),
        "model.backbones = []: must not be empty",
    ),
    "unknown backbone": (
        edited('name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = ["resnet8"]'),
        'model.backbones.0 = "resnet8": must be one of small-mlp, deep-mlp, small-cnn',
    ),
    "data that does not fit the model": (
        edited(f'name = "digits"\npartition = {IID}', 'name = "quadratic"\nclusters = 2'),
        'model.name = "mlp": must be "point" for data.name = "quadratic"',
    ),
    "setting of another model": (
        edited('name = "mlp"', 'name = "logistic-regression"'),
        "model.hidden = [8]: unknown key; allowed: initialisation, name",
    ),
    "empty layer": (edited("[8]", "[8, 0]"), "model.hidden.1 = 0: must be more than 0"),
    "groups that do not divide": (
        edited('name = "mlp"\nhidden = [8]', 'name = "resnet9"\nwidth = 8\ngroups = 3'),
        "model.groups = 3: must divide width (8)",
    ),
    "unknown optimizer": (
        edited("batch_size = 4", 'batch_size = 4\noptimizer = "Adam"'),
        "training.optimizer = \"Adam\": must be one of sgd, adam, adamw; did you mean 'adam'?",
    ),
    "momentum of another optimizer": (
        edited("batch_size = 4", 'batch_size = 4\noptimizer = "adam"\nmomentum = 0.9'),
        'training.momentum = 0.9: belongs to optimizer "sgd", this is "adam"',
    ),
    "dampening of Nesterov's momentum": (
        edited("batch_size = 4", "batch_size = 4\nmomentum = 0.9\nnesterov = true\ndampening = 0.9"),
        "training.dampening = 0.9: needs momentum > 0, and must be 0 for nesterov = true",
    ),
    "learning rate that is no number": (
        edited("learning_rate = 0.1", "learning_rate = nan"),
        "training.learning_rate = NaN: must be a finite number",
    ),
    "unknown protocol": (
        edited('name = "gossip"', 'name = "gossipp"'),
        'protocol.name = "gossipp": must be one of afl, cga, ',
    ),
    "averaging what starts apart": (
        edited("hidden = [8]", 'hidden = [8]\ninitialisation = "independent"')
        .replace(GOSSIP, 'name = "dfedavgm"')
        .replace("batch_size", "momentum = 0.9\nbatch_size"),
        'model.initialisation = "independent": protocol.name = "dfedavgm" averages layers of different '
        'clients, which means little if these start apart; must be "shared" (protocol.unusual = '
        '["model.initialisation"] takes it all the same)',
    ),
    "a backbone of what has none": (
        edited("hidden = [8]", 'hidden = [8]\ninitialisation = "shared-backbone"'),
        'model.initialisation = "shared-backbone": must be one of shared, independent',
    ),
    "local steps without momentum": (
        edited(GOSSIP, 'name = "dfedavgm"'),
        'training.momentum = 0.0: protocol.name = "dfedavgm" takes local steps of SGD with momentum; must be '
        "more than 0 (",
    ),
    "missing protocol file": (
        edited(GOSSIP, 'name = "/none/mine.py:Mine"'),
        'protocol.name = "/none/mine.py:Mine": there is no file /none/mine.py',
    ),
    "unknown protocol setting": (
        edited("period =", "perod ="),
        'protocol.perod = "500 ms": unknown key; allowed: ',
    ),
    "wrong protocol setting": (
        edited('period = "500 ms"', "period = 0.5"),
        f"protocol.period = 0.5: 0.5 has no unit; {UNITS}",
    ),
    "no end": (
        edited('duration = "1 min"\n', ""),
        "run.duration: state 'duration', 'iterations', 'budget' or several (the first one ends the run)",
    ),
    "empty budget": (
        edited("[run]", "[run]\nbudget = {}"),
        "run.budget.steps: state exactly one of 'steps' or 'samples' or 'time' or 'bytes'",
    ),
    "two budgets": (
        edited("[run]", '[run]\nbudget = { steps = 100, time = "1 min" }'),
        "run.budget.time = \"1 min\": state exactly one of 'steps' or 'samples' or 'time' or 'bytes'",
    ),
    "budget of nothing": (
        edited("[run]", "[run]\nbudget = { steps = 0 }"),
        "run.budget.steps = 0: must be more than 0",
    ),
    "budget that nobody may spend": (
        edited('duration = "1 min"', 'budget = { bytes = "1 MB" }'),
        "run.budget.bytes = \"1 MB\": needs 'duration' or 'iterations' beside it, as who sends nothing never "
        "spends it",
    ),
    "no evaluation": (
        edited('evaluate_every = "15 s"\n', ""),
        f'run.evaluate_every: is missing; {UNITS}, or iterations, such as "100 iterations"',
    ),
    "evaluation after the end": (
        edited('"15 s"', '"2 min"'),
        'run.evaluate_every = "2 min": must be at most the duration (1 min)',
    ),
    "evaluation every 0 iterations": (
        edited('"15 s"', '"0 iterations"'),
        'run.evaluate_every = "0 iterations": must be at least 1; write a duration, or iterations, such as ',
    ),
    "negative seed": (edited("[run]", "[run]\nseed = -1"), "run.seed = -1: must be at least 0"),
    "no cost of a step": (
        edited('step_time = "100 ms"', ""),
        "devices.step_time: state exactly one of 'step_time' or 'speed'",
    ),
    "two costs of a step": (
        edited('step_time = "100 ms"', 'step_time = "100 ms"\nspeed = "1 GFLOP/s"'),
        "devices.speed = \"1 GFLOP/s\": state exactly one of 'step_time' or 'speed'",
    ),
    "device of an unknown client": (
        SMALL + "\n[[devices.override]]\nclients = [9]\nslowdown = 2\n",
        "devices.override.0.clients = [9]: there is no client 9; must be numbers from 0 to 3",
    ),
    "slowdown of nothing": (
        SMALL + "\n[[devices.override]]\nclients = [1]\nslowdown = 0\n",
        "devices.override.0.slowdown = 0: must be more than 0",
    ),
    "override in other terms": (
        SMALL + '\n[[devices.override]]\nclients = [1]\nspeed = "1 GFLOP/s"\n',
        "devices.override.0.speed = \"1 GFLOP/s\": these devices are described by 'step_time', so state that",
    ),
    "step without duration": (
        edited('step_time = "100 ms"', 'step_time = "0 s"'),
        f"devices.step_time = \"0 s\": '0 s' must be more than 0; {UNITS}",
    ),
    "steps of a class without duration": (
        SMALL + '\n[[devices.class]]\nname = "a"\nshare = 0.5\n'
        'step_time = { kind = "uniform", low = "0 s", high = "0 s" }\n',
        f"devices.class.0.step_time.high = \"0 s\": '0 s' must be more than 0; {UNITS}",
    ),
    "event after the end": (
        SMALL + join("1 min", "crash", "1"),
        'churn.0.at = "1 min": comes after the end of the run; must be before run.duration (60 s)',
    ),
    "unknown event": (
        SMALL + join("1 s", "die", "1"),
        'churn.0.event = "die": must be one of join, leave, crash, rejoin',
    ),
    "event of nobody": (SMALL + join("1 s", "crash", ""), "churn.0.clients = []: must not be empty"),
    "event of an unknown client": (
        SMALL + join("1 s", "crash", "4"),
        "churn.0.clients = [4]: there is no client 4; must be numbers from 0 to 3",
    ),
    "fresh state of a crash": (
        SMALL + join("10 s", "crash", "1") + 'state = "fresh"\n',
        'churn.0.state = "fresh": only a rejoin can be fresh, this is a crash',
    ),
    "broken TOML": (
        SMALL + "\n[churn\n",
        "not valid TOML: Expected ']' at the end of a table declaration (at line ",
    ),
}


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_there_are_at_least_thirty_kinds() -> None:
    assert len(BAD) >= 30


@pytest.mark.parametrize("kind", BAD)
def test_refused(tmp_path: Path, runner: CliRunner, kind: str) -> None:
    text, complaint = BAD[kind]
    path = write(tmp_path, text)
    result = runner.invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert result.output.startswith(f"{path}: {complaint}")
    assert result.output.count("\n") == 1


def test_an_unknown_section_comes_before_those_that_are_missing(tmp_path: Path, runner: CliRunner) -> None:
    path = write(tmp_path, '[swep]\nscenario = "other.toml"\n')
    first, *others = runner.invoke(app, ["check", str(path)]).output.splitlines()
    assert first.startswith(f'{path}: swep = {{ scenario = "other.toml" }}: unknown key; allowed: run,')
    assert first.endswith("sweep; did you mean 'sweep'?")
    assert others and all("is missing" in line for line in others)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("netwrok.loss=0.1", "netwrok = { loss = 0.1 } (from --set): unknown key"),
        ("network.loss=2", "network.loss = 2 (from --set): must be less than 1"),
        ("network.loss", "--set network.loss: must be section.key=value"),
        ("network..loss=1", "--set network..loss=1: must be section.key=value"),
        (
            "network.latency.median=1 s",
            '--set network.latency.median=1 s: network.latency is "20 ms", which has no',
        ),
        (
            "model.hidden.3=1",
            "--set model.hidden.3=1: model.hidden is a list; after it comes a number from 0 to 0",
        ),
        ("model.hidden.0.x=1", "--set model.hidden.0.x=1: model.hidden.0 is 8, which has no keys"),
    ],
)
def test_refused_overrides(tmp_path: Path, runner: CliRunner, override: str, complaint: str) -> None:
    path = write(tmp_path, SMALL)
    result = runner.invoke(app, ["check", str(path), "--set", override])
    assert result.exit_code == 2
    assert result.output.startswith(f"{path}: {complaint}")
    assert result.output.count("\n") == 1


def test_an_empty_file_is_told_what_is_required(tmp_path: Path, runner: CliRunner) -> None:
    result = runner.invoke(app, ["check", str(write(tmp_path, ""))])
    assert result.exit_code == 2
    assert "run: is missing; write a table with the key evaluate_every, among others\n" in result.output
    assert "clients: is missing; write a table with the key count, among others\n" in result.output


def test_a_refused_seed_names_its_option(tmp_path: Path, runner: CliRunner) -> None:
    result = runner.invoke(app, ["check", str(write(tmp_path, SMALL)), "--seed", "-1"])
    assert result.exit_code == 2
    assert "run.seed = -1 (from --seed): must be at least 0" in result.output


def test_of_two_seeds_it_is_said_which_is_taken(tmp_path: Path, runner: CliRunner) -> None:
    path = write(tmp_path, SMALL)
    result = runner.invoke(app, ["check", str(path), "--set", "run.seed=3", "--seed", "4"])
    assert result.exit_code == 0
    assert f"{path}: --seed 4 is taken instead of what --set says of run.seed" in result.stderr
    assert "--seed" not in runner.invoke(app, ["check", str(path), "--seed", "4"]).stderr


def test_several_problems_are_a_line_each(tmp_path: Path, runner: CliRunner) -> None:
    text = changed(edited("count = 4", "count = 0"), "hidden = [8]", "hiden = [8]")
    path = write(tmp_path, text)
    lines = runner.invoke(app, ["check", str(path)]).output.splitlines()
    assert lines == [
        f"{path}: clients.count = 0: must be more than 0",
        f"{path}: model.hiden = [8]: unknown key; allowed: initialisation, name, hidden; "
        "did you mean 'hidden'?",
    ]


def test_a_missing_file_is_answered_with_the_nearest_beside_it(tmp_path: Path, runner: CliRunner) -> None:
    there = write(tmp_path, SMALL)
    path = tmp_path / "smal.toml"
    result = runner.invoke(app, ["check", str(path)])
    assert (result.exit_code, result.output) == (2, f"{path}: no such scenario file; did you mean {there}?\n")
    result = runner.invoke(app, ["check", str(tmp_path / "zzz.toml")])
    assert result.output.endswith("such scenario file; `coterie list scenarios` names those that there are\n")


def test_a_folder_is_no_scenario(tmp_path: Path, runner: CliRunner) -> None:
    result = runner.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 2
    assert result.output.startswith(f"{tmp_path}: cannot be read: ")


def test_a_missing_data_folder_names_the_data(
    tmp_path: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, edited('name = "digits"', 'name = "cifar-10"'))
    missing = tmp_path / "nowhere"
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    result = runner.invoke(app, ["check", str(path), "--data-dir", str(missing)])
    assert result.exit_code == 2
    assert result.output.startswith(f"{path}: ")
    assert f"{missing} (from --data-dir): no such folder" in result.output


def test_images_for_a_model_that_needs_them(tmp_path: Path, runner: CliRunner) -> None:
    path = write(tmp_path, edited('name = "mlp"\nhidden = [8]', 'name = "cnn"'))
    result = runner.invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert result.output.startswith(f'{path}: model.name = "cnn": needs images')


@pytest.mark.parametrize("kind", ["wrong unit", "unknown protocol setting"])
def test_the_command_itself_shows_no_traceback(tmp_path: Path, kind: str) -> None:
    text, complaint = BAD[kind]
    path = write(tmp_path, text)
    command = [sys.executable, "-m", "sim.cli.commands", "check", str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.startswith(f"{path}: {complaint}")
    assert finished.stderr.count("\n") == 1


def test_a_link_that_leads_nowhere_is_answered_once(tmp_path: Path) -> None:
    link = tmp_path / "nowhere.toml"
    link.symlink_to(tmp_path / "gone.toml")
    with pytest.raises(UserError, match=r"nowhere\.toml: no such scenario file; `coterie list scenarios`"):
        load_scenario(link)
