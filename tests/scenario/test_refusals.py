"""Bad scenarios: each ends with exit code 2 and one clear message."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.scenario.refusals import kind_descriptions
from sim.world.latency.kinds import Latency
from tests.scenario.texts import SMALL, changed, write

UNITS = 'write a number and one of us, ms, s, min, h, day, such as "20 s"'
RATES = 'write a number and one of bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, GB/s, such as "10 Mbit/s"'
CHURN = '\n[[churn]]\nat = "{at}"\nevent = "{event}"\nclients = [{clients}]\n'
LATENCIES = ", ".join(kind_descriptions(Latency))
CUT = "\n[[network.partition]]\n"


def join(at: str, event: str, clients: str) -> str:
    return CHURN.format(at=at, event=event, clients=clients)


def edited(old: str, new: str) -> str:
    return changed(SMALL, old, new)


PERIODIC = "period = '1 s'\nshare = 0.5\nfactor = 2"
IID = '{ kind = "iid", samples_per_client = 20 }'
GOSSIP = 'name = "gossip"\nperiod = "500 ms"'

# What is in the file, and what stands behind "small.toml: ".
BAD = {
    "unknown key": (
        edited("batch_size = 4", "batch_size = 4\nmomentun = 0.9"),
        "training.momentun = 0.9: unknown key; allowed: optimizer, learning_rate, schedule, clip_norm, "
        "momentum, dampening, nesterov, weight_decay, betas, epsilon, batch_size, sampling, augmentation, "
        "override; did you mean 'momentum'?",
    ),
    "augmentation of what is no image": (
        edited("batch_size = 4", "batch_size = 4\n[training.augmentation]"),
        'training.augmentation: changes images, but samples of data.name = "digits" are not images; '
        'remove the section, or use another data set, such as "fashion-mnist"',
    ),
    "unknown section": (
        SMALL + "\n[netwrok]\nloss = 0.5\n",
        "netwrok = { loss = 0.5 }: unknown key; allowed: run, clients, data, model, model_group, "
        "training, protocol, network, devices, churn, churn_process, change, engine, supervision, server, "
        "energy, tuned, sweep; did you mean 'network'?",
    ),
    "missing section": (
        edited('[devices]\nstep_time = "100 ms"\n', ""),
        "devices: is missing; write a table with the keys step_time, speed, memory, "
        "power, region, class, override, slowdown, transient, periodic, measured",
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
    "unknown distribution": (
        edited('latency = "20 ms"', 'latency = { kind = "log-normal", mean = "1 s" }'),
        f"network.latency.kind = \"log-normal\": must be one of {LATENCIES}; did you mean 'lognormal'?",
    ),
    "distribution without its kind": (
        edited('latency = "20 ms"', 'latency = { median = "1 s", sigma = 0.5 }'),
        f"network.latency.kind: is missing; must be one of {LATENCIES}",
    ),
    "bounds the wrong way round": (
        edited('latency = "20 ms"', 'latency = { kind = "uniform", low = "2 s", high = "1 s" }'),
        'network.latency.high = "1 s": must be at least low (2 s)',
    ),
    "loss of everything": (
        edited('latency = "20 ms"', 'latency = "20 ms"\nloss = 1'),
        "network.loss = 1: must be less than 1",
    ),
    "cut that ends before it starts": (
        SMALL + CUT + 'start = "2 s"\nend = "1 s"\ngroups = [[0], [1]]\n',
        'network.partition.0.end = "1 s": must be after start (2 s)',
    ),
    "cut without sides": (
        SMALL + CUT + 'start = "1 s"\nend = "2 s"\nfrom = [1]\n',
        "network.partition.0.from = [1]: set either 'groups' or 'share' (two-way",
    ),
    "cut of an unknown client": (
        SMALL + CUT + 'start = "1 s"\nend = "2 s"\ngroups = [[0], [1, 4]]\n',
        "network.partition.0.groups.1 = [1, 4]: there is no client 4; must be numbers from 0 to 3",
    ),
    "no clients": (edited("count = 4", "count = 0"), "clients.count = 0: must be more than 0"),
    "text for a number": (edited("count = 4", 'count = "4"'), 'clients.count = "4": must be a whole number'),
    "unknown topology": (
        edited("count = 4", 'count = 4\ntopology = "rings"'),
        'clients.topology = "rings": must be one of complete, ring, k-regular, erdos-renyi, small-world, '
        "clusters, edge-list; did you mean 'ring'?",
    ),
    "impossible degree": (
        edited("count = 4", 'count = 4\ntopology = { kind = "k-regular", degree = 4 }'),
        "clients.topology.degree = 4: must be less than clients.count = 4",
    ),
    "topology of other size": (
        edited("count = 4", 'count = 4\ntopology = { kind = "clusters", sizes = [2, 3] }'),
        "clients.topology.sizes = [2, 3]: the sizes must add up to clients.count = 4, not 5",
    ),
    "unknown data": (
        edited('name = "digits"', 'name = "digit"'),
        'data.name = "digit": must be one of digits, fashion-mnist, mnist, cifar-10, cifar-100, '
        "cinic-10, svhn, adult, synthetic-regression, quadratic, arrays, table, images, huggingface, "
        "text-4lang, text; did you mean 'digits'?",
    ),
    "model that does not fit the data": (
        edited('name = "mlp"\nhidden = [8]', 'name = "point"'),
        'model.name = "point": does not support data.name = "digits"; must be one of logistic-regression, '
        "mlp, "
        "cnn, resnet9, decoupled",
    ),
    "backbones that need images": (
        edited('name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = ["small-mlp", "small-cnn"]'),
        'model.backbones = ["small-mlp", "small-cnn"]: the inputs of data.name = "digits" are 64 numbers',
    ),
    "data that does not fit the model": (
        edited(f'name = "digits"\npartition = {IID}', 'name = "quadratic"\nclusters = 2'),
        'model.name = "mlp": does not support data.name = "quadratic"; must be one of point',
    ),
    "groups that do not divide": (
        edited('name = "mlp"\nhidden = [8]', 'name = "resnet9"\nwidth = 8\ngroups = 3'),
        "model.groups = 3: must divide width (8)",
    ),
    "groups that do not divide all channels": (
        edited(
            f'name = "digits"\npartition = {IID}\n\n[model]\nname = "mlp"\nhidden = [8]',
            f'name = "mnist"\npartition = {IID}\n\n[model]\nname = "cnn"\nnorm = "group"\nchannels = [8, 12]',
        ),
        "model.groups = 8: must divide all channels (8, 12)",
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
        'clients, which has little effect if the layers start from different values; must be "shared" (to '
        "run it anyway, "
        'set protocol.unusual = ["model.initialisation"])',
    ),
    "what a protocol needs of other data": (
        edited(f'name = "digits"\npartition = {IID}', 'name = "quadratic"\nclusters = 2')
        .replace('name = "mlp"\nhidden = [8]', 'name = "point"')
        .replace(GOSSIP, 'name = "fedfomo"'),
        'data.name = "quadratic": has no data.validation_share, but protocol.name = "fedfomo" compares '
        "models on held-out samples; must be more than 0",
    ),
    "missing protocol file": (
        edited(GOSSIP, 'name = "/none/mine.py:Mine"'),
        'protocol.name = "/none/mine.py:Mine": no file /none/mine.py',
    ),
    "unknown protocol setting": (
        edited("period =", "perod ="),
        'protocol.perod = "500 ms": unknown key; allowed: ',
    ),
    "no end": (
        edited('duration = "1 min"\n', ""),
        "run.duration: set 'duration', 'iterations', 'budget' or several of these (the first one that is "
        "reached ends the run)",
    ),
    "budget that nobody may spend": (
        edited('duration = "1 min"', 'budget = { bytes = "1 MB" }'),
        "run.budget.bytes = \"1 MB\": also needs 'duration' or 'iterations': a client that sends "
        "nothing never uses this budget",
    ),
    "no evaluation": (
        edited('evaluate_every = "15 s"\n', ""),
        f'run.evaluate_every: is missing; {UNITS}, or iterations, such as "100 iterations"',
    ),
    "no cost of a step": (
        edited('step_time = "100 ms"', ""),
        "devices.step_time: set exactly one of 'step_time' or 'speed'",
    ),
    "device of an unknown client": (
        SMALL + "\n[[devices.override]]\nclients = [9]\nslowdown = 2\n",
        "devices.override.0.clients = [9]: there is no client 9; must be numbers from 0 to 3",
    ),
    "override in other terms": (
        SMALL + '\n[[devices.override]]\nclients = [1]\nspeed = "1 GFLOP/s"\n',
        "devices.override.0.speed = \"1 GFLOP/s\": [devices] sets 'step_time'; set 'step_time' here instead",
    ),
    "steps of a class without duration": (
        SMALL + '\n[[devices.class]]\nname = "a"\nshare = 0.5\n'
        'step_time = { kind = "uniform", low = "0 s", high = "0 s" }\n',
        f"devices.class.0.step_time.high = \"0 s\": '0 s' must be more than 0; {UNITS}",
    ),
    "event after the end": (
        SMALL + join("1 min", "crash", "1"),
        'churn.0.at = "1 min": is at the end of the run; must be before run.duration (60 s)',
    ),
    "fresh state of a crash": (
        SMALL + join("10 s", "crash", "1") + 'state = "fresh"\n',
        'churn.0.state = "fresh": only a rejoin can have this state, but this event is a crash',
    ),
    "a word for another, or a duration": (
        edited("[devices]", f"[devices.periodic]\n{PERIODIC}\nphase = 'rondom'\n[devices]"),
        "devices.periodic.phase = \"rondom\": must be one of random; did you mean 'random'?; or: 'rondom' is",
    ),
    "a bare number for a word, or a duration": (
        edited("[devices]", "[devices.measured]\nfile = 'x.csv'\noffset = 3\n[devices]"),
        "devices.measured.offset = 3: must be one of random; or: 3 has no unit; write a number",
    ),
    "a table for a duration": (
        edited('duration = "1 min"', "duration = { s = 1 }"),
        "run.duration = { s = 1 }: a table is not a duration; write",
    ),
    "true for a duration": (
        edited('duration = "1 min"', "duration = true"),
        "run.duration = true: true is not a duration; write",
    ),
    "a date for a duration": (
        edited('duration = "1 min"', "duration = 1979-05-27"),
        "run.duration = 1979-05-27: a date or time is not a duration; write",
    ),
    "groups of no norms": (
        edited('name = "mlp"\nhidden = [8]', 'name = "cnn"\ngroups = 4'),
        'model.groups = 4: has no effect: it applies to "group", but model.norm is "none"',
    ),
    "betas of sgd": (
        edited("batch_size = 4", "batch_size = 4\nbetas = [0.5, 0.9]"),
        'training.betas = [0.5, 0.9]: has no effect: only adam and adamw use it, and optimizer is "sgd"',
    ),
    "epsilon of sgd": (
        edited("batch_size = 4", "batch_size = 4\nepsilon = 1e-4"),
        "training.epsilon = 0.0001: has no effect: only adam and adamw use it",
    ),
    "momentum of adam": (
        edited("batch_size = 4", 'batch_size = 4\nmomentum = 0.9\noptimizer = "adam"'),
        'training.momentum = 0.9: has no effect: only sgd uses it, and optimizer is "adam"',
    ),
    "nesterov of adamw": (
        edited("batch_size = 4", 'batch_size = 4\nnesterov = true\noptimizer = "adamw"'),
        'training.nesterov = true: has no effect: only sgd uses it, and optimizer is "adamw"',
    ),
    "a change of nothing": (
        edited("[devices]", '[[change]]\nat = "1 s"\n[devices]'),
        "change.0.network: set 'network', 'training', 'churn' or 'protocol'; otherwise, the section has no "
        "effect",
    ),
    "a change to a network as it was": (
        edited("[devices]", '[[change]]\nat = "1 s"\nnetwork = {}\n[devices]'),
        "change.0.network.latency: set 'latency', 'loss', 'uplink' or 'downlink'; otherwise, the section has",
    ),
    "a change of no setting": (
        edited(
            "[devices]", '[[change]]\nat = "1 s"\nprotocol = {}\ntraining = { learning_rate = 1 }\n[devices]'
        ),
        "change.0.protocol = {}: is empty and changes nothing",
    ),
    "one of two betas": (
        edited("batch_size = 4", "batch_size = 4\nbetas = [0.9]"),
        "training.betas.1: is missing; training.betas has too few values",
    ),
    "section that is no table": (
        edited('[devices]\nstep_time = "100 ms"\n', "").replace("[run]", 'devices = "fast"\n[run]'),
        'devices = "fast": must be a table with the keys step_time, speed, memory, '
        "power, region, class, override, slowdown, transient, periodic, measured",
    ),
    "unknown backbone": (
        edited('name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = ["resnet8"]'),
        'model.backbones.0 = "resnet8": must be one of small-mlp, deep-mlp, small-cnn',
    ),
    "no backbone": (
        edited('name = "mlp"\nhidden = [8]', 'name = "decoupled"\nbackbones = []'),
        "model.backbones = []: must not be empty",
    ),
    "broken TOML": (
        SMALL + "\n[churn\n",
        "not valid TOML: Expected ']' at the end of a table declaration (at line ",
    ),
}


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


@pytest.mark.long
@pytest.mark.parametrize("kind", BAD)
def test_refused(tmp_path: Path, runner: CliRunner, kind: str) -> None:
    text, complaint = BAD[kind]
    path = write(tmp_path, text)
    result = runner.invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert result.output.startswith(f"{path}: {complaint}")
    assert result.output.count("\n") == 1


@pytest.mark.long
def test_an_unknown_section_comes_before_those_that_are_missing(tmp_path: Path, runner: CliRunner) -> None:
    path = write(tmp_path, '[swep]\nscenario = "other.toml"\n')
    first, *others = runner.invoke(app, ["check", str(path)]).output.splitlines()
    assert first.startswith(f'{path}: swep = {{ scenario = "other.toml" }}: unknown key; allowed: run,')
    assert first.endswith("sweep; did you mean 'sweep'?")
    assert others and all("is missing" in line for line in others)


@pytest.mark.long
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
    assert f"{path}: --seed 4 overrides run.seed from --set" in result.stderr
    assert "--seed" not in runner.invoke(app, ["check", str(path), "--seed", "4"]).stderr


def test_several_problems_are_a_line_each(tmp_path: Path, runner: CliRunner) -> None:
    text = changed(edited("count = 4", "count = 0"), "hidden = [8]", "hiden = [8]")
    path = write(tmp_path, text)
    lines = runner.invoke(app, ["check", str(path)]).output.splitlines()
    assert lines == [
        f"{path}: clients.count = 0: must be more than 0",
        f"{path}: model.hiden = [8]: unknown key; allowed: initialisation, start, name, hidden; "
        "did you mean 'hidden'?",
    ]


def test_a_missing_file_is_answered_with_the_nearest_beside_it(tmp_path: Path, runner: CliRunner) -> None:
    there = write(tmp_path, SMALL)
    path = tmp_path / "smal.toml"
    result = runner.invoke(app, ["check", str(path)])
    assert (result.exit_code, result.output) == (2, f"{path}: no such scenario file; did you mean {there}?\n")
    result = runner.invoke(app, ["check", str(tmp_path / "zzz.toml")])
    assert result.output.endswith("such scenario file; `coterie list scenarios` lists the known scenarios\n")


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
    assert result.output.startswith(f'{path}: model.name = "cnn" needs images')


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wrong unit", "unknown protocol setting"])
def test_the_command_itself_shows_no_traceback(tmp_path: Path, kind: str) -> None:
    text, complaint = BAD[kind]
    path = write(tmp_path, text)
    command = [sys.executable, "-m", "sim", "check", str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.startswith(f"{path}: {complaint}")
    assert finished.stderr.count("\n") == 1


def test_of_very_many_problems_the_first_are_told(tmp_path: Path, runner: CliRunner) -> None:
    unknown = "".join(f"unknown{number} = {number}\n" for number in range(99))
    file = write(tmp_path, SMALL.replace("[model]\n", f"[model]\n{unknown}"))
    result = runner.invoke(app, ["check", str(file)])
    *told, last = result.output.splitlines()
    assert result.exit_code == 2 and len(told) == 20 and last.endswith("and 79 more problems")
