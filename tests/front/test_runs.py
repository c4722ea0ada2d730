"""`import coterie`: runs from Python give what the command gives, in scripts and in notebooks."""

import asyncio
import importlib
import inspect
import linecache
import pickle
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import coterie
import protocols
from coterie import Client, Run, UserError
from sim.cli.studies import app
from sim.scenario.protocol_lookup import given_protocol
from tests.protocols.worlds import QUADRATIC

CONTENTS: dict[str, Any] = {
    "run": {"duration": "8 s", "evaluate_every": "4 s"},
    "clients": {"count": 4},
    "data": {"name": "quadratic", "clusters": 1, "dimension": 3, "noise": 0, "samples": 2},
    "model": {"name": "point"},
    "training": {"learning_rate": 0.1, "batch_size": 2},
    "protocol": {"name": "gossip", "period": "1 s"},
    "network": {"latency": "250 ms", "uplink": "unlimited", "downlink": "unlimited"},
    "devices": {"step_time": "500 ms"},
}


class Halves(Client):
    """Trains with half of each update."""

    async def step(self) -> None:
        update = await self.train()
        self.params = self.params + 0.5 * update


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(**more: Any) -> Run:
    return coterie.run(CONTENTS, quiet=True, **more)


def test_contents_a_file_and_the_command_give_the_same_run(here: Path) -> None:
    (here / "world.toml").write_text(QUADRATIC, encoding="utf-8")
    run = coterie.run(
        here / "world.toml", protocol="gossip", set={"protocol.period": "1 s"}, seed=4, quiet=True
    )
    options = ["--set", "protocol.name=gossip", "--set", "protocol.period=1 s", "--seed", "4", "--quiet"]
    result = CliRunner().invoke(app, ["run", "world.toml", *options, "--out", "by_command"])
    assert result.exit_code == 0, result.output
    [folder] = (here / "by_command").iterdir()
    by_command = coterie.load(folder)
    of_contents = coterie.run(
        CONTENTS, set={"run.evaluate_every": "8 s", "run.name": "world"}, seed=4, out="contents", quiet=True
    )
    hashes = {each.summary["trace_hash"] for each in (run, by_command, of_contents)}
    assert len(hashes) == 1
    assert run.scenario.partition("[run]")[2] == of_contents.scenario.partition("[run]")[2]


def test_what_a_run_has(here: Path) -> None:
    run = ran()
    assert run.directory.parent == Path("runs") and run.report.is_file()
    assert run.metrics.columns == ["time", "actor", "name", "value"]
    assert run.events.filter(event="sent").height == run.summary["messages"]["sent"] > 0
    assert run.intervals.height > 0 and run.graph.height == 0
    assert set(run.metrics["time"]) == {0.0, 4.0, 8.0}
    assert "gossip-0" not in repr(run) and repr(run).startswith("<Run scenario-0-")
    page = run._repr_html_()
    assert "<svg" in page and "gossip" in page and "<script" not in page
    distances = run.metrics.filter(name="distance")
    first, last = [distances.filter(time=time)["value"].to_numpy().mean() for time in (0.0, 8.0)]
    assert first > last  # so that least and most would be the other way round
    assert f"Mean distance over virtual time: {first:.4g} at the start, {last:.4g} at the end" in page
    marks = re.findall(r"<text [^>]*>([^<]*)</text>", page)
    assert marks == [f"{first:.4g}", f"{last:.4g}", "0\N{NO-BREAK SPACE}s", "8\N{NO-BREAK SPACE}s"]


def test_the_learned_graph_is_drawn(here: Path) -> None:
    run = ran(protocol="cobo")
    assert run.graph.height > 0
    assert run._repr_html_().count("<figure") == 2


def test_a_class_is_run_as_it_is_and_its_file_is_kept(here: Path) -> None:
    run = ran(protocol=Halves)
    in_contents = coterie.run(CONTENTS | {"protocol": {"name": Halves}}, out="other", quiet=True)
    assert run.summary["protocol"] == "Halves"
    assert run.summary["trace_hash"] == in_contents.summary["trace_hash"]
    [kept] = run.directory.glob("protocol-*")
    assert (kept / Path(__file__).name).read_text(encoding="utf-8") == Path(__file__).read_text(
        encoding="utf-8"
    )
    by_name = ran(protocol=f"{__file__}:Halves", out="by_name")
    assert by_name.summary["trace_hash"] == run.summary["trace_hash"]


def test_a_method_of_coterie_may_be_named_by_its_class(here: Path) -> None:
    from protocols.decentralized.gossip import Gossip

    assert ran(protocol=Gossip).scenario == ran(out="other").scenario


@pytest.mark.long
def test_a_class_of_a_notebook_is_run_and_its_cell_is_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = "class Written(Client):\n    async def step(self):\n        await self.train()\n"
    place = "<ipython-input-7-a1b2c3>"
    linecache.cache[place] = (len(cell), None, cell.splitlines(keepends=True), place)  # as IPython does
    space: dict[str, Any] = {"Client": Client, "__name__": "__main__"}
    exec(compile(cell, place, "exec"), space)
    run = coterie.run(CONTENTS, protocol=space["Written"])
    assert run.summary["protocol"] == "Written"
    assert set(run.metrics.filter(name="iterations", time=8.0)["value"]) == {16.0}
    [kept] = run.directory.glob("protocol-*/*.py")
    assert kept.read_text(encoding="utf-8") == cell
    assert "Written is not defined in a file" in capsys.readouterr().err
    kept.write_text(f"from coterie import Client\n\n{cell}", encoding="utf-8")  # by hand it is a file again
    again = coterie.run(CONTENTS, protocol=f"{kept}:Written", out="again", quiet=True)
    assert again.summary["trace_hash"] == run.summary["trace_hash"]


BARE = """
from coterie import AsyncClient, AsyncServer


class Mixing(AsyncServer):
    def arrived(self, work, client, staleness):
        self.params = work


class Bare(AsyncClient):
    server = Mixing
"""
MAIN = """

if __name__ == "__main__":
    import coterie

    coterie.run("world.toml", protocol=Bare, quiet=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("as_script", [False, True])
def test_a_class_without_functions_is_of_its_file(here: Path, as_script: bool) -> None:
    """Imported by a script, or written in it: its file is kept, and other code is another run."""
    (here / "world.toml").write_text(QUADRATIC, encoding="utf-8")
    (here / "script.py").write_text(f"from bare import Bare\n{MAIN}", encoding="utf-8")
    for text in (BARE, BARE.replace("work\n", "0.5 * work\n")):
        text += MAIN if as_script else ""
        (here / "bare.py").write_text(text, encoding="utf-8")
        script = "bare.py" if as_script else "script.py"
        done = subprocess.run([sys.executable, script], cwd=here, capture_output=True, text=True)
        assert done.returncode == 0 and "notebook" not in done.stderr, done.stderr
        assert text in [kept.read_text(encoding="utf-8") for kept in here.glob("runs/*/protocol-*/bare.py")]
    assert len({folder.name.split("-")[2] for folder in (here / "runs").iterdir()}) == 2


def test_a_class_has_the_file_of_its_own_lines() -> None:
    """Not that of a function which it takes from elsewhere, or of a decorator."""

    class Decorated(Client):
        trained = statistics.mean

        @torch.no_grad()
        async def step(self) -> None: ...

    assert given_protocol(Decorated).file == Path(__file__)


def test_a_class_without_functions_is_of_its_cell() -> None:
    cell = "class Unlike(Halves):\n    pass  # Nothing of its own\n"
    kind = written_in(cell, "<ipython-input-10-a1b2c3>", "Unlike")
    sources = given_protocol(kind).sources
    assert sources is not None and list(sources.files.values()) == [cell.encode()]
    kind = written_in(cell.replace("Nothing", "Not much"), "<ipython-input-11-a1b2c3>", "Unlike")
    sources = given_protocol(kind).sources
    assert sources is not None
    assert list(sources.files.values()) == [b"# The source of Unlike is unknown.\n"]


def written_in(cell: str, place: str, name: str = "Written") -> type[Client]:
    """The class of this name of a cell of a notebook."""
    linecache.cache[place] = (len(cell), None, cell.splitlines(keepends=True), place)  # as IPython does
    space: dict[str, Any] = {"Client": Client, "Halves": Halves, "__name__": "__main__"}
    exec(compile(cell, place, "exec"), space)
    found: type[Client] = space[name]
    return found


def test_a_class_of_a_notebook_is_resumed_and_forked_by_itself(here: Path) -> None:
    cell = "class Written(Client):\n    async def step(self):\n        await self.train()\n"
    kind = written_in(cell, "<ipython-input-8-a1b2c3>")
    run = ran(protocol=kind)
    longer = coterie.resume(run, until="12 s", protocol=kind, quiet=True)
    whole = ran(set={"run.duration": "12 s"}, protocol=kind, out="whole")
    assert longer.summary["trace_hash"] == whole.summary["trace_hash"]
    assert set(longer.state_dict(0)) == {"position"}  # without the class as an argument
    leaves = {"churn": [{"event": "leave", "clients": [0], "at": "10 s"}]}
    other = coterie.fork(longer, 9.0, leaves, protocol=kind, quiet=True)
    assert other.events.filter(event="leave")["time"].to_list() == [10.0]
    changed = written_in(cell.replace("train()", "train(2)"), "<ipython-input-9-a1b2c3>")
    with pytest.raises(
        UserError, match=r"the source text of protocol = Written differs from that of the method in"
    ):
        coterie.resume(longer, until="14 s", protocol=changed, quiet=True)


def test_in_a_notebook_a_loop_is_running_already(here: Path) -> None:
    async def cell() -> Run:
        run = ran()
        await asyncio.sleep(0)  # the notebook's loop goes on
        return run

    assert asyncio.run(cell()).summary["trace_hash"] == ran(out="other").summary["trace_hash"]


def test_resume_and_fork(here: Path) -> None:
    run = ran()
    longer = coterie.resume(run.directory, until="12 s", quiet=True)
    whole = ran(set={"run.duration": "12 s"}, out="whole")
    assert longer.summary["trace_hash"] == whole.summary["trace_hash"]
    other = coterie.fork(
        longer.directory, 9.0, {"churn": [{"event": "leave", "clients": [0], "at": "10 s"}]}, quiet=True
    )
    assert other.summary["fork"]["at"] == 9.0
    assert other.events.filter(event="leave")["time"].to_list() == [10.0]


@pytest.mark.parametrize(
    ("scenario", "more", "problem"),
    [
        ("nowhere", {}, "no such scenario file"),
        (CONTENTS, {"set": {"run.duratio": "1 s"}}, "did you mean 'duration'"),
        (
            CONTENTS | {"data": {"name": object()}},
            {},
            r"data\.name = <object .*: must be a number, a string, a list or a dict of these",
        ),
        (CONTENTS, {"protocol": int}, "must be a class derived from Client"),
        (CONTENTS, {"protocol": "gosip"}, "did you mean 'gossip'"),
        (CONTENTS, {"set": {"network.latency": None}}, "network.latency: is missing"),
    ],
)
def test_what_cannot_be_run_is_refused(here: Path, scenario: Any, more: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        coterie.run(scenario, quiet=True, **more)
    assert not (here / "runs").exists()


def test_a_folder_without_results_is_refused(here: Path) -> None:
    with pytest.raises(UserError, match=r"no summary\.json"):
        coterie.load(here)
    with pytest.raises(UserError, match=r"^nowhere: no such folder$"):
        coterie.load("nowhere")


def test_a_run_that_fails_says_so_and_keeps_what_it_has(here: Path) -> None:
    class Fails(Client):
        async def step(self) -> None:
            await self.train()
            raise ValueError("no step")

    with pytest.raises(RuntimeError, match=r"the run failed: .*results so far are in runs") as failed:
        ran(protocol=Fails)
    assert len(list((here / "runs").glob("scenario-*/summary.json"))) == 1
    line = inspect.getsourcelines(Fails)[1] + 3
    assert f"first: client-0 at 500\N{NO-BREAK SPACE}ms, {__file__}:{line})" in str(failed.value)
    assert isinstance(failed.value, coterie.RunFailed)
    assert failed.value.run.summary["failed"]["first"]["error"] == "ValueError: no step"
    [note] = failed.value.__notes__
    assert f'File "{__file__}", line {line}, in step' in note and "sim/run" not in note
    assert pickle.loads(pickle.dumps(failed.value)).directory == failed.value.directory


def test_the_advice_at_the_end_of_a_long_error_is_kept(here: Path) -> None:
    class Fails(Client):
        async def step(self) -> None:
            await self.train()
            raise ValueError("long, " * 100 + "\nand so: write this")

    with pytest.raises(RuntimeError, match=r"(long, ){100}\nand so: write this .*are in runs"):
        ran(protocol=Fails)


def test_all_that_methods_are_written_with_is_there() -> None:
    assert set(protocols.__all__) <= set(coterie.__all__) == set(dir(coterie))
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = coterie.nothing


def test_the_import_is_light() -> None:
    """Torch, polars and plotly come with the first name that needs them."""
    code = (
        "import coterie, sys; print([name for name in ('torch', 'polars', 'plotly') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_file_that_coterie_hides_is_told_of(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sim.py").write_text("STEPS = 2\n", encoding="utf-8")
    step = "    async def step(self):\n        await self.train()\n"
    mine = f"from coterie import Client\n{{}}\nclass Mine(Client):\n{step}"
    for imported, told in (("import sim", True), ("import simple_math as sim", False)):
        (here / "simple_math.py").write_text("", encoding="utf-8")
        (here / "mine.py").write_text(mine.format(imported), encoding="utf-8")
        coterie.run(CONTENTS, protocol="mine.py:Mine", overwrite=True)
        said = "`import sim` finds the package of coterie, not sim.py next to your code"
        assert (said in capsys.readouterr().err) == told


class Forgets(Client):
    """Trains, and does not assign what it learned."""

    async def step(self) -> None:
        await self.train()


class LearnsAnother(Client):
    """Keeps what it learns in a model beside `params`, as FedEM does."""

    def setup(self) -> None:
        self.another = self.params

    async def step(self) -> None:
        update = await self.train(start=self.another)
        self.another = self.another + update

    def evaluated(self) -> dict[str, Any]:
        return {"another": self.another}


class Sleeps(Client):
    """Does nothing."""

    async def step(self) -> None:
        await self.sleep(1.0)


@pytest.mark.parametrize(
    ("method", "told"), [(Forgets, True), (Halves, False), (LearnsAnother, False), (Sleeps, False)]
)
def test_a_run_in_which_nobody_learned_says_so(
    here: Path, capsys: pytest.CaptureFixture[str], method: type[Client], told: bool
) -> None:
    run = ran(protocol=method)
    assert (len(run.summary["warnings"]) == 1) == told
    assert ("no client's model changed" in capsys.readouterr().err) == told


class LearnsAndFails(Client):
    """All but the first learn something, and fail; the first sleeps."""

    async def step(self) -> None:
        if self.name == "client-0":
            await self.sleep(1.0)
            return
        update = await self.train()
        self.params = self.params + update
        raise ValueError("as it happens")


def test_that_those_who_learned_have_failed_is_not_that_nobody_learned(here: Path) -> None:
    with pytest.raises(coterie.RunFailed) as failed:
        ran(protocol=LearnsAndFails)
    assert failed.value.run.summary["warnings"] == []


@pytest.mark.parametrize(
    ("patience", "said"),
    [
        ("2 s", []),
        (
            "1 min",
            [
                "3 of 3 clients ended no iteration from 6 s to the end at 20 s; `coterie explain` prints the "
                'event that a client waits for (each wait lasts at most protocol.patience = "1 min")'
            ],
        ),
    ],
)
def test_a_run_says_that_most_clients_stood_still(
    here: Path, capsys: pytest.CaptureFixture[str], patience: str, said: list[str]
) -> None:
    """Whoever crashes is waited for with the default patience until long after the end."""
    crash = {"churn": [{"at": "5 s", "event": "crash", "clients": [0]}]}
    times = {"run.duration": "20 s", "run.evaluate_every": "2 s", "protocol.patience": patience}
    run = ran(set={"protocol.name": "dpsgd", **crash, **times})
    assert run.summary["warnings"] == said
    assert capsys.readouterr().err.count("ended no iteration") == len(said)


def test_a_newcomer_that_ended_no_iteration_is_one_of_those_that_stood_still(here: Path) -> None:
    events = [{"at": "5 s", "event": "crash", "clients": [0]}, {"at": "7 s", "event": "join", "clients": [3]}]
    times = {"run.duration": "30 s", "run.evaluate_every": "2 s", "protocol.patience": "1 min"}
    run = ran(set={"protocol.name": "dpsgd", "clients.count": 4, "churn": events, **times})
    [said] = run.summary["warnings"]
    assert said.startswith("3 of 3 clients ended no iteration from ")


def test_that_a_server_has_asked_others_since_is_no_standstill(here: Path) -> None:
    """In rounds of one client each, three of five had theirs in the first half alone."""
    sampled = {"protocol.name": "fedavg", "protocol.fraction": 0.1, "clients.count": 12, "run.seed": 1}
    assert ran(set={**sampled, "run.duration": "6 s", "run.evaluate_every": "1 s"}).summary["warnings"] == []


def test_a_home_is_a_home(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here / "home"))
    run = ran(out="~/runs")
    assert run.directory.parent == here / "home" / "runs"
    assert coterie.load(f"~/runs/{run.directory.name}").summary == run.summary


@pytest.mark.long
def test_numbers_of_numpy_paths_and_ranges_are_taken(here: Path) -> None:
    shown = coterie.run(
        CONTENTS | {"clients": {"count": np.int64(4)}},
        set={
            "training.learning_rate": np.float32(0.5),
            "protocol.name": "local",
            "network.loss": np.float64(0),
        },
        quiet=True,
    )
    assert "learning_rate = 0.5" in shown.scenario


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda run: coterie.run(None), "scenario = None: must be a name, a path, or the contents"),
        (
            lambda run: coterie.run(CONTENTS, protocol=Halves.step),
            "protocol = .*: must be the name of a method",
        ),
        (
            lambda run: coterie.run(CONTENTS, set={"model.name": lambda x: x}),
            "must be defined at the top level of",
        ),
        (lambda run: coterie.run(CONTENTS, set=["a=1"]), "set = .*: must be a dict of values by key"),
        (lambda run: coterie.run(CONTENTS, out=None), "out = None: must be a path"),
        (lambda run: coterie.fork(run, None, {}), "at = None: must be seconds, or a string such as"),
        (lambda run: coterie.fork(run, "soon", {}), "at = 'soon': must be seconds, or a string such as"),
        (lambda run: coterie.load(3), "directory = 3: must be a path, or a Run or Sweep"),
    ],
)
def test_wrong_arguments_are_answered(here: Path, call: Callable[[Run], object], problem: str) -> None:
    run = ran()
    with pytest.raises(UserError, match=problem):
        call(run)


METHOD = """\
from coterie import Client


class Alone(Client):
    async def step(self):
        await self.train()
"""
BEGINS = 'import coterie\ncoterie.run("gossip", quiet=True)\n'


def test_an_imported_class_is_resumed_where_it_was_imported(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a_method_to_import.py").write_text(METHOD, encoding="utf-8")
    monkeypatch.syspath_prepend(here)
    run = ran(protocol=importlib.import_module("a_method_to_import").Alone)
    longer = coterie.resume(run, until=12, quiet=True)
    assert longer.summary["virtual_seconds"] == 12.0
    assert coterie.fork(run, "5 s", {"network.loss": 0.5}, quiet=True).summary["fork"]["at"] == 5.0


def test_an_imported_class_whose_helpers_are_others_by_now_is_not_resumed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "another_method_to_import.py").write_text(METHOD, encoding="utf-8")
    (here / "its_helper.py").write_text("STEPS = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(here)
    run = ran(protocol=importlib.import_module("another_method_to_import").Alone)
    (here / "its_helper.py").write_text("STEPS = 2\n", encoding="utf-8")
    with pytest.raises(UserError, match="has the name of another Python module"):
        coterie.resume(run, until=12, quiet=True)


def test_a_method_whose_file_begins_runs_is_refused(here: Path) -> None:
    (here / "begins.py").write_text(f"{METHOD}\n\n{BEGINS}", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"starts a run while coterie loads it; move the code that starts runs"
    ):
        ran(protocol="begins.py:Alone")
    assert not (here / "runs").exists()


NET = """\\
import torch


class Net(torch.nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer = torch.nn.Linear(input_shape[0], classes)

    def forward(self, x):
        return self.layer(x)


def blobs(rng, clients):
    labels = rng.integers(2, size=40)
    return rng.normal(size=(40, 3)) + labels[:, None], labels
"""


def test_models_and_data_may_be_given_as_they_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mine_to_give.py").write_text(NET, encoding="utf-8")
    monkeypatch.syspath_prepend(here)
    mine = importlib.import_module("mine_to_give")
    contents = CONTENTS | {"model": {"name": mine.Net}, "data": {"name": mine.blobs, "partition": "iid"}}
    run = coterie.run(contents, quiet=True)
    assert "mine_to_give.py:Net" in run.scenario
    by_name = {"model.name": "mine_to_give.py:Net", "data.name": "mine_to_give.py:blobs"}
    again = coterie.run(contents, set=by_name, quiet=True)
    assert again.summary["trace_hash"] == run.summary["trace_hash"]
    assert coterie.resume(run, until=12, quiet=True).summary["virtual_seconds"] == 12.0


def test_what_a_notebook_has_is_to_be_in_a_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = importlib.import_module("types").ModuleType("__main__")
    exec(compile(NET, "<cell>", "exec"), vars(cell))
    monkeypatch.setitem(sys.modules, "__main__", cell)
    with pytest.raises(
        UserError,
        match=r"model.name = Net: must be defined in a file, because results keep a copy of the code$",
    ):
        coterie.run(CONTENTS | {"model": {"name": cell.Net}}, quiet=True)
