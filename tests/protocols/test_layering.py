"""Who may import whom, and what nobody on the simulated path may use; read from the sources."""

import ast
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import protocols
from tests.lists import require_listed

ROOT = Path(__file__).parents[2]
OURS = {"actors", "protocols", "sim"}

# Wall time is for statistics and progress; nothing that is simulated depends on it.
WALL_CLOCK = {
    "sim/run/save/watcher.py": {""},
    "sim/run/running.py": {""},
    "sim/run/resume/checkpoint.py": {""},  # when one is due; it changes nothing that is simulated
    "sim/run/watchdog.py": {"Watchdog._look"},  # it only talks
    "sim/run/save/provenance.py": {"", "provenance"},  # the date of a run, beside its results
    "sim/studies/sweep.py": {"run_sweep", "run_sweep.show_running"},
    "sim/cli/pretrain.py": {""},  # how long it took, for people
    "sim/cli/artifacts.py": {"reproduce", "reproduce.show"},  # also for people
    "sim/studies/artifacts/packing.py": {"", "_end"},  # dates of runs, as their provenance states them
    "sim/learning/engine/engine.py": {"Engine._run"},
    # Live runs are on the wall clock; the simulator uses nothing of them.
    "sim/live/reporting.py": {""},
    "sim/live/worker.py": {""},
    "sim/live/coordinator.py": {""},
    "sim/live/processes.py": {""},
    "sim/live/running.py": {""},
    "sim/live/certificates.py": {""},
    "sim/live/calibrate.py": {""},
    "sim/learning/engine/autotune.py": {"_seconds"},
}
# Modules with global state: the clock, the process's random numbers.
CLOCKS = ("time.", "datetime.")
GLOBAL_RANDOMNESS = (
    "random.",
    "secrets.",
    "uuid.",
    "os.urandom",
    "torch.manual_seed",
    "torch.seed",
    "torch.random.",
    "torch.cuda.manual_seed",
    "torch.rand",  # rand, randn, randint, randperm: without a generator of their own they use the global one
    "torch.normal",
    "torch.bernoulli",
    "np.random.",
    "numpy.random.",
)
HARMLESS = {
    # Between real processes nothing is simulated: secrets must not repeat, and retries not coincide.
    ("actors/tcp/handshake.py", "secrets.token_bytes"),
    ("actors/tcp/outgoing.py", "random.Random"),
    ("sim/live/running.py", "secrets.token_bytes"),
    ("sim/live/certificates.py", "secrets.token_hex"),
    ("sim/live/calibrate.py", "os.urandom"),
    ("sim/results/store/output_dir.py", "uuid.uuid4"),  # of a folder that is renamed before anybody sees it
    # A user's constructor draws from torch's generator: seeded for it, and put back as it was.
    ("sim/learning/models/own.py", "torch.random"),
    ("sim/learning/models/own.py", "torch.random.fork_rng"),
    ("sim/learning/models/own.py", "torch.manual_seed"),
    # Read, to tell whether the user's code has drawn from them, or put back as they were after trial calls.
    ("sim/learning/models/purity.py", "random.Random"),
    ("sim/learning/models/purity.py", "random.getstate"),
    ("sim/learning/models/purity.py", "random.setstate"),
    ("sim/learning/models/purity.py", "np.random"),
    ("sim/learning/models/purity.py", "np.random.get_state"),
    ("sim/learning/models/purity.py", "np.random.set_state"),
    ("sim/learning/models/purity.py", "torch.random"),
    ("sim/learning/models/purity.py", "torch.random.fork_rng"),
    ("sim/run/foreign_draws.py", "random.getstate"),
    ("sim/run/foreign_draws.py", "np.random"),
    ("sim/run/foreign_draws.py", "np.random.get_state"),
    ("sim/run/foreign_draws.py", "torch.get_rng_state"),
}
# Interfaces with their one implementation.
SAME_NAMES = {"Bell", "Scalar", "Vector"}
GENERATORS = {
    f"{numpy}.random.{each}" for numpy in ("np", "numpy") for each in ("Generator", "Philox", "PCG64")
}


def sources(*folders: str) -> list[Path]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > len(folders)
    return paths


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def found(problems: Callable[[Path], list[Any]], *folders: str) -> dict[str, list[Any]]:
    """The files of these folders that have problems, with them."""
    return {name_of(path): list_ for path in sources(*folders) if (list_ := problems(path))}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at whatever depth, also for type checking only."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            modules |= {
                part.value
                for part in node.args
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
    return modules


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def outsiders(path: Path, *allowed: str) -> list[str]:
    """What a file imports beside the standard library and `allowed`."""
    return sorted(
        module
        for module in imports(path)
        if module.partition(".")[0] not in sys.stdlib_module_names and not within(module, *allowed)
    )


def test_actors_know_nothing_of_learning_or_simulation() -> None:
    def problems(path: Path) -> list[str]:
        is_settings = path.parent == ROOT / "actors" / "settings"
        return (
            outsiders(path, "actors", "pydantic", "pydantic_core")
            if is_settings
            else outsiders(path, *allowed)
        )

    allowed = ("actors", "msgpack", "numpy")
    assert found(problems, "actors") == {}


def test_actors_need_no_settings() -> None:
    def problems(path: Path) -> list[str]:
        return [each for each in imports(path) if within(each, "actors.settings")]

    assert [name for name in found(problems, "actors") if not name.startswith("actors/settings/")] == []


def test_protocols_never_import_the_simulator() -> None:
    libraries = ("networkx", "numpy", "opacus", "pydantic", "scipy", "sklearn", "threadpoolctl", "torch")
    allowed = ("protocols", "actors", *libraries)
    assert found(lambda path: outsiders(path, *allowed), "protocols") == {}


ROOMS = (
    "errors",
    "members",
    "files",
    "plugins",
    "kernel",
    "world",
    "learning",
    "results",
    "core",
    "scenario",
    "run",
    "live",
    "studies",
    "cli",
)
"""The rooms of the simulator: each imports from those before it, and none from those behind it."""


def imported_by(path: Path) -> set[str]:
    """The modules of ours that a file imports outside of functions, also for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules: set[str] = set()
    blocks = [node.body for node in tree.body if isinstance(node, ast.If)]
    for node in itertools.chain(tree.body, *blocks):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules |= {name if file_of(name) else str(node.module) for name in names}
    return {module for module in modules if within(module, *OURS)}


def file_of(module: str) -> Path | None:
    """The file of a module of ours; None for what is none."""
    path = ROOT / module.replace(".", "/")
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def later_rooms(path: Path) -> list[str]:
    """What a file imports from rooms behind its own, types included."""
    room = path.relative_to(ROOT / "sim").parts[0].removesuffix(".py")
    later = ROOMS[ROOMS.index(room) + 1 :] if room in ROOMS else ()
    return sorted(module for module in imports(path) if within(module, *[f"sim.{each}" for each in later]))


@pytest.mark.long
def test_the_rooms_import_one_way() -> None:
    rooms = [path.name.removesuffix(".py") for path in (ROOT / "sim").iterdir() if path.name[0] != "_"]
    require_listed(rooms, ROOMS, f"ROOMS in {__file__}, and to the table of docs/architecture.md")
    assert found(later_rooms, "sim") == {}


@pytest.mark.long
def test_no_circle_of_imports() -> None:
    graph = {path: [file_of(m) for m in imported_by(path)] for path in sources(*sorted(OURS))}
    while leaves := [path for path, needed in graph.items() if not any(each in graph for each in needed)]:
        for path in leaves:
            del graph[path]
    assert sorted(map(name_of, graph)) == []


@pytest.mark.long
def test_no_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in sources(*sorted(OURS)):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    new = {name: files for name, files in twice.items() if name not in SAME_NAMES}
    assert not new, f"rename one of each, so that a name is found by a search: {new}"


def test_the_kernel_knows_nothing_but_time_and_chance() -> None:
    assert found(lambda path: outsiders(path, "sim.kernel", "actors", "numpy"), "sim/kernel") == {}


def test_the_world_knows_nothing_of_learning() -> None:
    ours = ("sim.world", "sim.kernel", "sim.plugins", "sim.files", "sim.members", "sim.errors", "actors")
    keys = ("protocols.membership", "pydantic")
    assert found(lambda path: outsiders(path, *ours, *keys, "numpy", "networkx"), "sim/world") == {}


def test_learning_knows_nothing_of_the_world() -> None:
    own = ("sim.learning", "sim.kernel.random", "sim.errors", "sim.files", "sim.members", "sim.plugins")
    # Where in a user's file an error came from.
    own += ("actors.settings", "actors.source_location", "actors.message.describe")
    methods = ("protocols.framework.objectives",)
    assert (
        found(
            lambda path: [m for m in imports(path) if within(m, *OURS) and not within(m, *own, *methods)],
            "sim/learning",
        )
        == {}
    )


def test_results_need_neither_torch_nor_the_simulation() -> None:
    own = ("sim.results", "sim.errors", "sim.files")
    foreign = ("torch", *OURS)
    assert (
        found(
            lambda path: [m for m in imports(path) if within(m, *foreign) and not within(m, *own)],
            "sim/results",
        )
        == {}
    )


@pytest.mark.long
def test_torchvision_is_imported_in_one_place() -> None:
    users = found(
        lambda path: [m for m in imports(path) if within(m, "torchvision")], "actors", "protocols", "sim"
    )
    assert list(users) == ["sim/learning/vision.py"]


# --- no state that all share --------------------------------------------------------------------------------


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """(where, what) of every dotted name such as `time.perf_counter`; where is "Class.function", or ""."""

    def visit(node: ast.AST, where: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            inner = where
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{where}.{child.name}".removeprefix(".")
            if isinstance(child, ast.Attribute):
                name = ast.unparse(child)
                if name.replace(".", "").isidentifier():
                    yield where, name
            if isinstance(child, ast.ImportFrom):
                yield from ((where, f"{child.module}.{alias.name}") for alias in child.names)
            yield from visit(child, inner)

    return visit(ast.parse(path.read_text(encoding="utf-8")), "")


def forbidden(path: Path) -> list[tuple[str, str]]:
    file = name_of(path)
    places = WALL_CLOCK.get(file, set())
    return [
        (where, name)
        for where, name in uses(path)
        if (file, name) not in HARMLESS
        and (
            (name.startswith(CLOCKS) and not (places & {"", where}))
            or (name.startswith(GLOBAL_RANDOMNESS) and name not in GENERATORS)
        )
    ]


@pytest.mark.long
def test_nobody_reads_the_wall_clock_or_a_global_random_state() -> None:
    assert found(forbidden, "actors", "protocols", "sim") == {}


def test_the_search_finds_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        "import time\nfrom random import choice\n"
        "class Bad:\n"
        "    def now(self):\n"
        "        return time.time(), np.random.rand(3), torch.manual_seed(1)\n"
        "generator = np.random.Generator(np.random.Philox(1))\n"
        "torch.Generator().manual_seed(1), self.time.x\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert forbidden(path) == [
        ("", "random.choice"),
        ("Bad.now", "time.time"),
        ("Bad.now", "np.random.rand"),
        ("Bad.now", "torch.manual_seed"),
    ]
    assert outsiders(path) == []  # standard library only


def test_the_face_of_protocols_says_the_same_to_type_checkers() -> None:
    (block,) = [
        node
        for node in ast.parse((ROOT / "protocols/__init__.py").read_text()).body
        if isinstance(node, ast.If)
    ]
    for_checkers = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert for_checkers == protocols.MODULES
    assert len(for_checkers) == len(block.body)
    for name in protocols.__all__:
        assert getattr(protocols, name).__module__ in (protocols.MODULES[name], "typing", "builtins")


CORE_LINES_MAX = 20_000
BESIDE_THE_CORE = ("scenario", "run", "results.report", "results.store", "live", "studies", "cli")


@pytest.mark.long
def test_the_core_reads_alone() -> None:
    """What a simulation needs to run: no scenario, no files of results, no readers of data, no commands."""
    script = "import sys, sim.core.simulation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = [name for name in done.stdout.split() if within(name, *OURS)]
    assert [name for name in modules if within(name, *[f"sim.{each}" for each in BESIDE_THE_CORE])] == []
    readers = {f"sim.learning.data.{path.stem}" for path in (ROOT / "sim" / "learning" / "data").glob("*.py")}
    assert sorted(readers & set(modules)) == []
    files = [file for name in modules if (file := file_of(name)) is not None]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= CORE_LINES_MAX
