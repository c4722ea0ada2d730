"""engine.way = "compiled": the same numbers as vmap, one compilation for any number of clients, refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from protocols.objectives import Model, Parameters
from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.batch_norm import replace_batch_norms
from sim.learning.engine import kernels
from sim.learning.engine.compiled import CompiledForAnyCount, missing_compiler
from sim.learning.engine.kernels import Kernel, Vmapped, choose_way
from sim.learning.engine.tracing import DependsOnCount, graph_for_any_count
from sim.learning.models import MODELS
from sim.learning.objectives import cross_entropy
from tests.learning.engines import CLASSES, SHAPES, objective_of, small

CPU = torch.device("cpu")
COUNTS = (7, 2, 3, 33)
BATCH = 4
NORMED = "cnn with batch norms"

needs_compiler = pytest.mark.skipif(
    missing_compiler(CPU) is not None, reason="torch.compile needs a C++ compiler, and there is none"
)


def model(name: str) -> Architecture:
    if name != NORMED:
        return small(name)
    with torch.device("meta"):
        layers = [nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        module = replace_batch_norms(nn.Sequential(*layers, nn.Linear(4 * 64, CLASSES)))
    return Architecture(module, NORMED, SHAPES["cnn"])


def arguments(name: str, clients: int, batch: int = BATCH) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parameters, samples, targets and learning rates of clients that are all different."""
    random = torch.Generator().manual_seed(clients)
    architecture, shape = model(name), SHAPES["cnn" if name == NORMED else name]
    flat = torch.stack([architecture.initial(random) for _ in range(clients)])
    flat += 0.1 * torch.rand(flat.shape, generator=random)  # norms differ, too; variances stay > 0
    x = torch.randn(clients, batch, *shape, generator=random)
    y = torch.randint(CLASSES, (clients, batch), generator=random)
    return flat, x, y, torch.rand(clients, 1, generator=random)


def kernel(name: str, way: str = "compiled", precision: str = "float32") -> Kernel:
    return Kernel(model(name), objective_of(name), way, precision)


def stepped(kernel: Kernel, flat: Tensor, *others: Tensor) -> Tensor:
    flat = flat.clone()
    kernel.descend(flat, *others)
    return flat


@pytest.fixture(autouse=True)
def nothing_compiled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_compiled", {})


@pytest.fixture
def compilations() -> Iterator[dict[str, int]]:
    """What torch counts: "unique_graphs"."""
    counters.clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield counters["stats"]


@pytest.mark.parametrize("name", [*MODELS, NORMED])
def test_the_graph_holds_for_any_count(name: str) -> None:
    """Without compiling it: quick."""
    way = Vmapped(model(name), objective_of(name))
    graph = None
    for clients in COUNTS:
        flat, x, y, _ = arguments(name, clients)
        if graph is None:
            graph = graph_for_any_count(lambda *own: way.gradients(*own), [flat[0], x[0], y[0]])
        torch.testing.assert_close(graph(flat, x, y), way.gradients(flat, x, y), rtol=1e-4, atol=1e-6)


def test_a_graph_that_does_not_hold_for_any_count() -> None:
    def power(x: Tensor) -> Tensor:
        for _ in range(len(x)):
            x = x * x
        return x

    with pytest.raises(DependsOnCount, match="lengths"):
        graph_for_any_count(power, [torch.ones(2)])
    with pytest.raises(DependsOnCount, match="9, 25, 64"):
        graph_for_any_count(lambda x: x.new_zeros(len(x) ** 2), [torch.ones(2)])


@needs_compiler
def test_one_compilation_serves_any_number_of_clients(compilations: dict[str, int]) -> None:
    compiled, vmapped = kernel("logistic-regression"), kernel("logistic-regression", "vmap")
    for clients in (*COUNTS, 1, 200):
        flat, x, y, rates = arguments("logistic-regression", clients)
        for rate in (0.5, rates):
            expected = stepped(vmapped, flat, x, y, rate)
            torch.testing.assert_close(stepped(compiled, flat, x, y, rate), expected)
    assert compilations["unique_graphs"] == 1


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", ["logistic-regression", "mlp", "cnn", "decoupled", "point", NORMED])
def test_the_same_numbers_as_vmap(name: str, compilations: dict[str, int]) -> None:
    compiled, vmapped = kernel(name), kernel(name, "vmap")
    for clients in COUNTS:
        flat, x, y, rates = arguments(name, clients)
        both = [own.training_gradients(flat, x, y) for own in (compiled, vmapped)]
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)
        found = stepped(compiled, flat, x, y, rates)
        torch.testing.assert_close(found, stepped(vmapped, flat, x, y, rates), rtol=1e-4, atol=1e-6)
        again = compiled.training_gradients(flat, x, y)[0], stepped(compiled, flat, x, y, rates)
        assert torch.equal(again[0], both[0][0])
        assert torch.equal(again[1], found)
    assert compilations["unique_graphs"] == 2, "the gradient, and the step of plain SGD"


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", ["mlp", NORMED])
def test_bfloat16(name: str) -> None:
    """Where torch rounds between fused operations differs, and with it the sign of some inputs of ReLUs."""
    compiled, vmapped = (kernel(name, way, "bfloat16") for way in ("compiled", "vmap"))
    for clients in COUNTS:
        flat, x, y, rates = arguments(name, clients)
        expected, found = vmapped.gradients(flat, x, y), compiled.gradients(flat, x, y)
        assert (found - expected).norm() <= 0.1 * expected.norm()
        assert not torch.equal(found, kernel(name, "vmap").gradients(flat, x, y))
        step, expected_step = (stepped(own, flat, x, y, rates) - flat for own in (compiled, vmapped))
        assert (step - expected_step).norm() <= 0.1 * expected_step.norm()


@pytest.mark.slow
@needs_compiler
def test_each_batch_size_is_compiled_once_for_all_kernels_of_a_model_and_without_a_limit(
    compilations: dict[str, int],
) -> None:
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(2):
            compiled = kernel("point")
            for batch in (2, 3, 4):
                stepped(compiled, *arguments("point", 3, batch))
    assert compilations["unique_graphs"] == 3


@pytest.mark.parametrize("clients", [1, 3])
def test_only_training_steps_of_several_are_compiled(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(CompiledForAnyCount, "__call__", lambda self, *stacked: called.append(stacked))
    flat, x, y, rates = arguments("mlp", clients)
    compiled, vmapped = kernel("mlp"), kernel("mlp", "vmap")
    assert torch.equal(compiled.losses(flat, x, y), vmapped.losses(flat, x, y))
    assert torch.equal(compiled.outputs(flat, x), vmapped.outputs(flat, x))
    assert not called
    compiled.descend(flat, x, y, rates)
    assert len(called) == (clients > 1)


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    refusal = r'engine\.way = "compiled": .*cpu needs a C\+\+ compiler: "no-such-compiler".*or use "auto"'
    with pytest.raises(UserError, match=refusal):
        choose_way("compiled", small("mlp"), cross_entropy, CPU)
    with pytest.raises(UserError, match=refusal):
        stepped(kernel("mlp"), *arguments("mlp", 3))
    assert choose_way("auto", small("mlp"), cross_entropy, CPU) == "dense"


@needs_compiler
def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Tensor) -> None:
        raise RuntimeError("CppCompileError: C++ compile error\nCommand: ...")

    monkeypatch.setattr(torch, "compile", lambda graph, **options: fail)
    with pytest.raises(UserError, match=r"fails for mlp.* on cpu \(RuntimeError: Cpp.*error\);"):
        stepped(kernel("mlp"), *arguments("mlp", 3))


@needs_compiler
def test_an_objective_that_cannot_be_traced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of its own would be a constant of the graph."""
    weights = torch.rand(CLASSES)

    def weighted(architecture: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        return (architecture.forward(parameters, x) * weights).sum()

    with pytest.raises(UserError, match="compile fails for mlp"):
        stepped(Kernel(small("mlp"), weighted, "compiled"), *arguments("mlp", 3))


@needs_compiler
def test_memory_that_is_missing_is_not_the_compilers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", lambda graph, **options: fail)
    with pytest.raises(torch.OutOfMemoryError):
        stepped(kernel("mlp"), *arguments("mlp", 3))
