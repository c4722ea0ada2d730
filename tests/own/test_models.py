"""Models of the user's own, each from a file: computed like ours, or refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sim.errors import UserError
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.setup.builder import build, prepare
from sim.run.setup.checking import check
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from tests.protocols.worlds import ran
from tests.simulation.worlds import DIGITS, write

GOOD = {
    "plain": '''
class Net(nn.Sequential):
    def __init__(self, classes, hidden: int = 12):
        super().__init__(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, classes))
''',
    "batch norm": '''
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, classes))

    def forward(self, x):
        return self.body(x)
''',
    "dropout": '''
class Net(nn.Module):
    def __init__(self, classes, drop: float = 0.3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Dropout(drop), nn.Linear(40, classes))

    def forward(self, x):
        return self.body(x)
''',
    "transformer": '''
class Net(nn.Module):
    def __init__(self, classes, width: int = 16):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.places = nn.Parameter(torch.randn(8, width) / 10)
        self.register_buffer("waves", torch.sin(torch.arange(8.0))[:, None].repeat(1, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.layer.self_attn.dropout = 0.0
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        tokens = self.embed(x.view(-1, 8, 8)) + self.places + self.waves
        return self.head(self.layer(tokens).mean(dim=1))
''',
    "a function": '''
from beside import head

def Net(input_shape: tuple[int, ...], classes: int, widths: list[int] = [16]):
    layers, before = [], input_shape[0]
    for width in widths:
        layers += [nn.Linear(before, width), nn.Tanh()]
        before = width
    return nn.Sequential(*layers, head(before, classes))
''',
}  # fmt: skip
HEAD = "import torch\nfrom torch import nn\n"


def net(folder: Path, text: str) -> str:
    write(folder, "from torch import nn\ndef head(a, b):\n    return nn.Linear(a, b)\n", "beside.py")
    return f"model.name={write(folder, HEAD + text, 'net.py')}:Net"


@pytest.mark.long
@pytest.mark.parametrize("name", GOOD)
def test_it_learns(tmp_path: Path, name: str) -> None:
    options = (net(tmp_path, GOOD[name]), "run.duration=6 s", "run.evaluate_every=6 s")
    training = ("protocol.name=local", "training.learning_rate=0.2", "protocol.local_steps=2")
    scenario = load_scenario(write(tmp_path, DIGITS), [*options, *training])
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert not result.summary["failures"]
    table = RunDirectory.load(result.directory).scan("metrics").collect().filter(name="accuracy")  # type: ignore[arg-type]
    means = [table.filter(time=time)["value"].mean() for time in (0.0, 6.0)]
    assert means[-1] > means[0] + (0.15 if name == "transformer" else 0.25), means


@pytest.mark.long
@pytest.mark.parametrize("name", GOOD)
def test_all_at_once_is_one_after_the_other(tmp_path: Path, name: str) -> None:
    ends = []
    for way in ("vmap", "loop"):
        options = (net(tmp_path, GOOD[name]), f"engine.way={way}", "protocol.name=local", "run.duration=2 s")
        built = build(load_scenario(write(tmp_path, DIGITS), options), device="cpu")
        built.run()
        ends.append(np.stack([client.params.numpy() for client in built.clients]))
        built.close()
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_computed_one_client_after_the_other(tmp_path: Path, layer: str) -> None:
    model = net(
        tmp_path,
        f"""
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.{layer}(8, 16, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.layer(x.view(-1, 8, 8))[0][:, -1])
""",
    )
    options = (model, "run.duration=6 s", "run.evaluate_every=6 s", "training.learning_rate=0.5")
    ends, taken = [], []
    for way in ("auto", "fastest", "loop"):
        run = prepare(load_scenario(write(tmp_path, DIGITS), [*options, f"engine.way={way}"]), device="cpu")
        built = run.simulation
        built.run()
        taken.append(run.scenario.engine.way)
        ends.append(np.stack([client.params.numpy() for client in built.clients]))
        start = built.clients[0].compute.initial().numpy()
        built.close()
    assert taken == ["loop"] * 3
    assert (ends[0] == ends[2]).all() and (ends[1] == ends[2]).all()
    assert np.linalg.norm(ends[0][0] - start) > 0.1
    scenario = load_scenario(write(tmp_path, DIGITS), [*options, "engine.way=vmap"])
    with pytest.raises(
        UserError, match=r'engine\.way = "vmap" does not support recurrent.*use "auto", .* or "loop"'
    ):
        check(scenario)


def test_its_keys_are_those_of_its_class(tmp_path: Path) -> None:
    text, name = write(tmp_path, DIGITS), net(tmp_path, GOOD["plain"])
    wide = load_scenario(text, [name, "model.hidden=40"])
    assert wide.model.options == {"hidden": 40}
    assert digest(wide) != digest(load_scenario(text, [name]))
    for override, message in {
        "model.hidden=many": "model.hidden = .many.*: must be a whole number",
        "model.hiden=3": "model.hiden = 3.*unknown key; allowed: .*hidden",
        "model.initialisation=other": "model.initialisation",
    }.items():
        with pytest.raises(UserError, match=message):
            load_scenario(text, [name, override])


def test_a_models_key_has_the_values_of_all_its_arguments(tmp_path: Path) -> None:
    code = """
def Net(classes, sizes: dict[str, int] = {"a": 3}, hidden: int | None = None):
    return nn.Sequential(nn.Linear(64, sizes["a"]), nn.Linear(sizes["a"], hidden or classes))
"""
    text, name = write(tmp_path, DIGITS), net(tmp_path, code)

    def key(*overrides: str) -> str:
        [work] = check(load_scenario(text, [name, *overrides])).learning.work[:1]
        return work.model.key

    assert key().endswith("net.py:Net(sizes={'a': 3}, hidden=None) (64,) -> 10")
    assert len({key(), key("model.sizes={a=7}"), key("model.hidden=10")}) == 3


def test_starts_hang_on_the_seed_alone_and_leave_torchs_generator_alone(tmp_path: Path) -> None:
    def starts(seed: int, kind: str) -> np.ndarray:
        options = (net(tmp_path, GOOD["transformer"]), f"run.seed={seed}", f"model.initialisation={kind}")
        built = build(load_scenario(write(tmp_path, DIGITS), options), device="cpu")
        rows = np.stack([client.compute.initial().numpy() for client in built.clients])
        built.close()
        return rows

    before = torch.random.get_rng_state()
    one, again, other = starts(1, "shared"), starts(1, "shared"), starts(2, "shared")
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert np.array_equal(one[0], one[1])
    apart = starts(1, "independent")
    assert not np.array_equal(apart[0], apart[1])
    assert apart.std() == pytest.approx(one.std(), rel=0.1)


def test_results_keep_the_file_and_what_it_imports_and_run_again_from_there(tmp_path: Path) -> None:
    scenario = load_scenario(
        write(tmp_path, DIGITS), [net(tmp_path, GOOD["a function"]), "model.widths=[8, 8]"]
    )
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert result.directory is not None
    [folder] = result.directory.glob("model-*")
    assert sorted(path.name for path in folder.iterdir()) == [".coterie", "beside.py", "net.py"]
    copy = load_scenario(result.directory / "scenario.toml")
    again = run_scenario(copy, RunOptions(out=tmp_path / "again", device="cpu"))
    assert again.summary["trace_hash"] == result.summary["trace_hash"]
    (tmp_path / "beside.py").write_text(
        "from torch import nn\ndef head(a, b):\n    return nn.Linear(a, b, False)\n"
    )
    edited = load_scenario(write(tmp_path, DIGITS), scenario.overrides)
    assert digest(edited) != digest(scenario)


WRONG = {
    "a branch": ("return self.a(x) if x.sum() > 0 else -self.a(x)", "net.py:8: Net cannot be computed"),
    "chance": ("return self.a(x) + torch.randn(10)", "net.py:8: Net cannot be computed"),
    "state": (
        "self.count += 1; return self.a(x)",
        "Net cannot be computed: .*Net changes its buffer count, which all clients share",
    ),
    "a wrong shape": ("return self.a(x)[:, :9]", r"shape \(2, 9\), not \(2, 10\) \(samples, outputs\)"),
    "an exception": ("raise KeyError('mine')", "net.py:8: Net cannot be computed.*KeyError: 'mine'"),
    "layers that do not fit": ("return self.a(self.a(x))", "net.py:8: Net cannot be computed"),
}
CLASS = """class Net(nn.Module):
    def __init__(self, classes):
        super().__init__(); self.a = nn.Linear(64, classes); self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        FORWARD
"""
ELSE = {
    "no module": ("def Net(classes):\n    return 3", "must return an nn.Module, not an object of type int"),
    "an error when it is made": (
        "def Net(classes):\n    return nn.Linear(64)",
        "net.py:4: Net cannot be created",
    ),
    "a list": ("Net = []", "must be a class or a function, but is of type list"),
    "attention that drops": (
        "def Net(classes):\n    return nn.TransformerEncoderLayer(64, 2)",
        "cannot be created: ValueError: self_attn drops values .*set self_attn.dropout = 0.0",
    ),
    "batch norm with a mean of all batches": (
        "def Net(classes):\n    return nn.Sequential(nn.BatchNorm1d(64, momentum=None), nn.Linear(64, 10))",
        "cannot be created: ValueError: .*set a momentum",
    ),
}


def test_a_model_that_leaves_is_refused_with_its_line(tmp_path: Path) -> None:
    text = GOOD["plain"].replace("super()", "exit(4)\n        super()")
    with pytest.raises(UserError, match=r"net.*py:\d+: Net cannot be created: SystemExit: 4"):
        build(load_scenario(write(tmp_path, DIGITS), [net(tmp_path, text)]), device="cpu")


@pytest.mark.parametrize("name", [*WRONG, *ELSE])
def test_what_cannot_be_computed_for_all_is_refused_with_file_and_line(tmp_path: Path, name: str) -> None:
    text, message = (
        (CLASS.replace("FORWARD", WRONG[name][0]), WRONG[name][1]) if name in WRONG else ELSE[name]
    )
    with pytest.raises(UserError, match=rf"model\.name = .*{message}"):
        build(load_scenario(write(tmp_path, DIGITS), [net(tmp_path, text)]), device="cpu")


NORMED = """
def Net(classes):
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))
"""
OVER_PLACES = """
def Net(classes):
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, classes)
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *layers)
"""


@pytest.mark.parametrize(
    ("text", "override", "who"),
    [
        (NORMED, "training.batch_size=1", "client-0"),
        (NORMED, "data.partition={kind='file',path='PLACE'}", "client-2"),
        (OVER_PLACES, "training.batch_size=1", None),
        (NORMED, "training.batch_size=2", None),
    ],
)
def test_single_samples_and_batch_norms_are_refused_before_the_run(
    tmp_path: Path, text: str, override: str, who: str | None
) -> None:
    owners = [[k, k + 10, k + 20] if k != 2 else [2] for k in range(6)]
    place = tmp_path / "owners.json"
    place.write_text(json.dumps(owners))
    scenario = load_scenario(
        write(tmp_path, DIGITS), [net(tmp_path, text), override.replace("PLACE", str(place))]
    )
    if who is None:
        check(scenario)
        return
    with pytest.raises(UserError, match=f"must be 2 or more; {who} trains on one sample at a time"):
        check(scenario)


def test_a_method_that_exchanges_parts_needs_a_decoupled_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='exchanges parts of models; must be "decoupled"'):
        build(load_scenario(write(tmp_path, DIGITS), [net(tmp_path, GOOD["plain"]), "protocol.name=mapl"]))


@pytest.mark.long
def test_the_example_learns(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "models" / "transformer.py"
    options = (f"model.name={example}:Transformer", "training.optimizer=adam", "training.learning_rate=0.02")
    with ran(DIGITS, *options, "protocol.name=local", "protocol.local_steps=5", "run.duration=10 s") as built:
        latest = built.observer.metrics.latest("accuracy")
        assert np.mean(list(latest.values())) > 0.4
