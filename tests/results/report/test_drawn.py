"""Each picture that the code of the report can draw is on its page."""

import ast
from collections import Counter
from pathlib import Path

import sim.results.report

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
