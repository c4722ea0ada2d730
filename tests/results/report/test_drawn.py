"""Each picture that the code of the report can draw is on its page."""

import ast
import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import sim.results.report
from sim.results.view import RunView
from tests.lists import require_listed
from tests.results.synthetic import write_run

FOLDER = Path(sim.results.report.__file__).parent


def test_each_builder_of_a_picture_is_called() -> None:
    """A builder that no section calls leaves its picture out, and no message says so."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    called = Counter(
        ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)
    )
    builders = [
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.returns and "Figure" in ast.unparse(node.returns)
    ]
    idle = [name for name in builders if not called[name]]
    assert builders and not idle, (
        f"call {', '.join(idle)} in a section of sim/results/report/page.py, or remove it"
    )


ELSEWHERE = (
    "benefit_graph",
    "class_counts_figure",
    "latencies",
    "models_over_time",
    "network_map",
    "fork_and_parent_curves",
    "waits_by_peer_figure",
)
"""Builders of pictures of what `write_run` leaves out: other tests draw these pictures."""


def test_each_picture_is_drawn_by_a_test(tmp_path: Path) -> None:
    """A picture of what no test's run contains is None everywhere, and may fail in the first real report."""
    view = RunView(write_run(tmp_path, evaluations=5, steps=20))
    modules = [import_module(f"{sim.results.report.__name__}.{path.stem}") for path in FOLDER.glob("*.py")]
    builders = {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
        if "Figure" in str(inspect.signature(found).return_annotation)
        if list(inspect.signature(found).parameters)[:1] == ["view"]
    }
    needs_more = ("measure_curve", "observation_curve")  # which values to draw, and not only the run
    blank = [name for name, draw in builders.items() if name not in needs_more and not draw(view)]
    require_listed(blank, ELSEWHERE, f"ELSEWHERE in {__file__}, and draw it in a test that names it")
    tests = [path for path in FOLDER.parents[2].joinpath("tests").rglob("*.py") if path != Path(__file__)]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in tests)
    unnamed = [name for name in ELSEWHERE if not re.search(rf"\b{name.replace('_', '[-_]')}\b", texts)]
    assert not unnamed, f"draw {', '.join(unnamed)} in a test in tests/results/report/"
