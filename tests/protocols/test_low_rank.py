"""FlexLoRA and FLoRA: their mathematics against numpy, and their rounds with adapters of several ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import coterie
from protocols.shared.low_rank import (
    Sizes,
    best_factors,
    concatenated_factors,
    refit_factors,
    sum_of_products,
    with_factors,
    with_products,
)
from sim.cli.studies import app
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import DIGITS, churn, learner, loaded, messages, ran
from tests.resume.crashes import require_goes_on_anywhere
from tests.simulation import test_language_models as languages

MODEL = Path(__file__).parents[2] / "docs/examples/models/low_rank.py"


def own(rank: int, **keys: Any) -> str:
    settings = "".join(f", {key} = {value}" for key, value in keys.items())
    return f'{{ name = "{MODEL}:LowRank", hidden = 5, rank = {rank}{settings} }}'


RANKS = (
    f"model={own(2)}",
    f"model_group=[{{ clients = [1, 4], model = {own(1)} }}, {{ clients = [5], model = {own(4)} }}]",
)
RANK_OF = (2, 1, 2, 2, 1, 4)


Products = list[np.ndarray]
"""What the adapters of a model add to each layer."""


# -- Mathematics


Drawn = tuple[list[Sizes], np.random.Generator]


@st.composite
def adapters(draw: st.DrawFn) -> Drawn:
    """Sizes of the adapters of some clients, on the same layers."""
    layers = draw(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=3))
    clients = draw(st.integers(1, 4))
    ranks, scales = st.integers(1, 8), st.sampled_from([0.5, 1.0, 8.0])
    sizes = [
        tuple([(inputs, draw(ranks), outputs, draw(scales)) for inputs, outputs in layers])
        for _ in range(clients)
    ]
    return sizes, np.random.default_rng(draw(st.integers(0, 999)))


def drawn(sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(sum((inputs + outputs) * rank for inputs, rank, outputs, _ in sizes))


def matrices(factors: np.ndarray, sizes: Sizes) -> list[np.ndarray]:
    """scale A B of each adapter."""
    found, at = [], 0
    for inputs, rank, outputs, scale in sizes:
        a = factors[at : at + inputs * rank].reshape(inputs, rank)
        b = factors[at + inputs * rank : at + (inputs + outputs) * rank].reshape(rank, outputs)
        found.append(scale * a @ b)
        at += (inputs + outputs) * rank
    return found


def vector(array: np.ndarray | Sequence[float]) -> torch.Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.float32)


@pytest.mark.long
@given(adapters())
def test_stacks_are_the_weighted_sum_of_products(
    drawn_sizes: Drawn,
) -> None:
    sizes, rng = drawn_sizes
    factors, weights = [drawn(each, rng) for each in sizes], rng.dirichlet(np.ones(len(sizes)))
    found = sum_of_products(vector(weights), *map(vector, factors), sizes=tuple(sizes)).numpy()
    each = [matrices(part, own) for part, own in zip(factors, sizes, strict=True)]
    expected = [
        sum(weight * products[layer] for weight, products in zip(weights, each, strict=True))
        for layer in range(len(sizes[0]))
    ]
    flat = np.concatenate([part.ravel() for part in expected])
    np.testing.assert_allclose(found, flat, atol=1e-6 * max(1, np.abs(flat).max()))


@pytest.mark.long
@given(adapters())
def test_factors_are_as_close_as_any_of_their_rank(
    drawn_sizes: Drawn,
) -> None:
    (sizes, *_), rng = drawn_sizes
    layers = [rng.standard_normal((inputs, outputs)).astype(np.float32) for inputs, _, outputs, _ in sizes]
    flat = vector(np.concatenate([layer.ravel() for layer in layers]))
    found = best_factors(flat, sizes=sizes).numpy()
    for layer, product, (_, rank, _, _) in zip(layers, matrices(found, sizes), sizes, strict=True):
        left, values, right = np.linalg.svd(layer.astype(np.float64), full_matrices=False)
        best = (left[:, :rank] * values[:rank]) @ right[:rank]
        np.testing.assert_allclose(product, best, atol=1e-5)
        error = np.linalg.norm(layer - product)
        assert error == pytest.approx(np.sqrt((values[rank:] ** 2).sum()), abs=1e-5)


def test_the_sign_of_singular_vectors_is_chosen() -> None:
    sizes: Sizes = ((3, 2, 4, 2.0),)
    matrix = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    factors = best_factors(matrix.flatten(), sizes=sizes)
    left = factors[:6].reshape(3, 2)
    assert (left.gather(0, left.abs().argmax(dim=0, keepdim=True)) > 0).all()
    np.testing.assert_allclose(best_factors(-matrix.flatten(), sizes=sizes)[:6], factors[:6], atol=1e-6)


def test_products_that_are_not_finite_have_factors_of_nan() -> None:
    sizes: Sizes = ((2, 1, 2, 1.0), (1, 1, 1, 1.0))
    found = best_factors(vector([1, 0, np.inf, 1, 4]), sizes=sizes)
    assert found[:4].isnan().all() and found[4:].tolist() == [1, 4]


def test_ranks_beyond_the_layer_stay_unused() -> None:
    sizes: Sizes = ((2, 4, 3, 2.0),)
    matrix = np.arange(6.0).reshape(2, 3)
    found = best_factors(vector(matrix.ravel()), sizes=sizes).numpy()
    np.testing.assert_allclose(matrices(found, sizes)[0], matrix, atol=1e-5)


@pytest.mark.long
@given(adapters(), st.integers(1, 8), st.sampled_from([0.5, 2.0]))
def test_best_factors_cut_to_a_smaller_rank_are_the_best_of_that_rank(
    drawn_sizes: Drawn, rank: int, scale: float
) -> None:
    (given, *_), rng = drawn_sizes
    sizes = tuple([(inputs, rank, outputs, scale) for inputs, _, outputs, _ in given])
    products = vector(rng.standard_normal(sum(inputs * outputs for inputs, _, outputs, _ in given)))
    factors = best_factors(products, sizes=given)
    found = refit_factors(factors, vector(drawn(sizes, rng)), given=given, sizes=sizes).numpy()
    kept = tuple([(inputs, min(rank, most), outputs, scale) for inputs, most, outputs, _ in given])
    best = best_factors(products, sizes=kept).numpy()
    for one, other in zip(matrices(found, sizes), matrices(best, kept), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_factors_and_products_have_their_places_in_the_model() -> None:
    sizes: Sizes = ((1, 1, 2, 1.0), (2, 1, 1, 1.0))
    places = ((0, 1, 3), (5, 7, 8))  # the second matrix of products is behind its B
    model, factors = torch.arange(10.0), torch.arange(100.0, 106.0)
    changed = with_factors(model, factors, sizes=sizes, places=places)
    assert changed.tolist() == [100, 101, 102, 3, 4, 103, 104, 105, 8, 9]
    assert concatenated_factors(changed, sizes=sizes, places=places).tolist() == factors.tolist()
    products = torch.tensor([10.0, 20.0, 30.0, 40.0])
    assert with_products(model, products, sizes=sizes, places=places, add=True).tolist() == [
        *(0, 1, 2, 13, 24, 5, 6, 7, 38, 49),
    ]
    assert with_products(model, products, sizes=sizes, places=places, add=False)[3:5].tolist() == [10, 20]


# -- Rounds


def products_in(world: Simulation, client: int) -> list[np.ndarray]:
    """The sum that a client's model adds to each frozen layer, merged products included."""
    actor = learner(world, client)
    model, params = actor.context.model, actor.params.numpy()
    assert model is not None
    found = []
    for each in model.adapters:
        a, b = [params[part.offset :][: part.numel].reshape(part.shape) for part in (each.a, each.b)]
        merged = each.merged
        added = 0 if merged is None else params[merged.offset :][: merged.numel].reshape(merged.shape)
        found.append(added + each.scale * a @ b)
    return found


ONE_ROUND = ("protocol.rounds=1", "protocol.broadcast=all", "protocol.local_steps=2", "run.duration=30 s")


def trained_factors(name: str, *overrides: str) -> tuple[list[np.ndarray], list[Sizes], list[Products]]:
    """What the clients sent in the first round, factors and sizes, and the sums in all models after it."""
    answers: dict[str, Any] = {}

    def watch(simulation: Simulation) -> None:
        send = simulation.network.send

        def watching(envelope: Any) -> None:
            message = envelope.message
            trained = getattr(message, "trained", message)
            if hasattr(trained, "factors") and hasattr(trained, "samples"):
                answers.setdefault(envelope.sender, trained)
            send(envelope)

        simulation.network.send = watching  # type: ignore[method-assign]

    with ran(DIGITS, f"protocol.name={name}", *RANKS, *ONE_ROUND, *overrides, prepare=watch) as world:
        found = [answers[f"client-{client}"] for client in range(6)]
        products = [products_in(world, client) for client in range(6)]
        return [each.factors.numpy() for each in found], [each.sizes for each in found], products


@pytest.mark.parametrize("name", ["flexlora", "flora"])
def test_a_round_averages_products_of_all_ranks(name: str) -> None:
    factors, sizes, in_models = trained_factors(name)
    assert [each[0][1] for each in sizes] == list(RANK_OF)
    each = [matrices(part, own) for part, own in zip(factors, sizes, strict=True)]
    means = [sum(products[layer] for products in each) / 6 for layer in range(2)]
    assert all(np.abs(mean).max() > 1e-3 for mean in means)
    for client, products in enumerate(in_models):
        for mean, found in zip(means, products, strict=True):
            left, values, right = np.linalg.svd(mean, full_matrices=False)
            kept = RANK_OF[client] if name == "flexlora" else len(values)
            np.testing.assert_allclose(found, (left[:, :kept] * values[:kept]) @ right[:kept], atol=1e-6)


def test_averages_of_factors_are_not_averages_of_products() -> None:
    """With one rank, FedAvg averages factors: products of other clients' factors get in."""
    factors, sizes, _ = trained_factors("flexlora", "model_group=[]")
    each = [matrices(part, own) for part, own in zip(factors, sizes, strict=True)]
    mean = np.mean(factors, axis=0)
    exact = [np.mean([products[layer] for products in each], axis=0) for layer in range(2)]
    for product, expected in zip(matrices(mean, sizes[0]), exact, strict=True):
        assert np.abs(product - expected).max() > 1e-4


TYPES = {"flexlora": ("FactorsTask", "TrainedFactors"), "flora": ("MergeTask", "MergedFactors")}


@pytest.mark.parametrize("name", ["flexlora", "flora"])
def test_only_factors_travel(name: str) -> None:
    with ran(DIGITS, f"protocol.name={name}", *RANKS, "protocol.local_steps=1") as world:
        sent = world.network.counts.by_type
        task, answer = TYPES[name]
        assert {task, answer} <= set(sent)
        largest = 4 * sum((inputs + outputs) * 4 for inputs, outputs in ((64, 5), (5, 10)))
        count, size = sent[answer]
        assert size / count < largest
        assert messages(world, answer, "delivered")


def test_a_client_that_missed_stacks_gets_the_sum(tmp_path: Path) -> None:
    crash = churn("crash", 3, "1.2 s") + churn("rejoin", 3, "5.2 s", "keep")
    options = (
        "protocol.name=flora",
        "protocol.local_steps=1",
        "run.duration=14 s",
        "protocol.patience=2 s",
    )
    with ran(DIGITS + crash, *RANKS, *options) as world:
        versions = {learner(world, client).version for client in range(6)}  # type: ignore[attr-defined]
        assert max(versions) - min(versions) <= 1 and min(versions) > 3
        newest = [client for client in range(6) if learner(world, client).version == max(versions)]  # type: ignore[attr-defined]
        for client in newest[1:]:
            pairs = zip(products_in(world, client), products_in(world, newest[0]), strict=True)
            for one, other in pairs:
                np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("state", ["keep", "fresh"])
@pytest.mark.parametrize("who", ["client", "server"])
def test_versions_agree_again_after_a_restart(who: str, state: str) -> None:
    crash = churn("crash", 0, "3.1 s") + churn("rejoin", 0, "4 s", state)
    if who == "server":
        crash = f'\n[[server.crash]]\nat = "3.1 s"\nback = "4 s"\nstate = "{state}"\n'
    options = (
        "protocol.name=flora",
        "protocol.local_steps=1",
        "run.duration=16 s",
        "protocol.patience=2 s",
    )
    with ran(DIGITS + crash, *RANKS, *options) as world:
        server = world.servers[0].actor
        assert server is not None and server.version > 3  # type: ignore[attr-defined]
        for client in range(6):
            assert learner(world, client).version >= server.version - 1  # type: ignore[attr-defined]


# -- Refusals


@pytest.mark.parametrize("name", ["flexlora", "flora"])
@pytest.mark.parametrize(
    "overrides, problem",
    [
        (("model.name=logistic-regression",), 'averages products of low-rank adapters; must be "lora"'),
        (
            (f'model={{ name = "{MODEL.parent}/transformer.py:Transformer" }}',),
            "averages low-rank adapters, but the model has none",
        ),
    ],
)
def test_models_without_adapters_are_refused(name: str, overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UserError, match=problem), ran(DIGITS, f"protocol.name={name}", *overrides):
        pass


# -- Runs


@pytest.mark.long
@pytest.mark.parametrize("name", ["flexlora", "flora"])
def test_a_run_goes_on_from_anywhere(name: str, tmp_path: Path) -> None:
    lossy = ("network.link=datagram", "network.loss=0.2", "protocol.patience=2 s", "protocol.local_steps=1")
    scenario = loaded(DIGITS, f"protocol.name={name}", *RANKS, *lossy)
    assert require_goes_on_anywhere(tmp_path / "run", scenario, events=5, crashes=2) > 3


GROUPS = (
    "model.rank=3",
    'model_group=[{ clients = [1, 4], model = { name = "lora", base = "base.safetensors", rank = 1 } }]',
    "protocol.broadcast=all",
    "protocol.rounds=2",
    "run.duration=30 s",
)


@pytest.mark.parametrize("name", ["flexlora", "flora"])
def test_language_models_have_adapters_of_several_ranks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = languages.run(tmp_path, f"protocol.name={name}", "protocol.local_steps=2", *GROUPS)
    assert result.directory is not None
    monkeypatch.chdir(tmp_path)
    run, layer = coterie.load(result.directory), "h.0.attn.c_attn"
    states = [run.state_dict(client) for client in range(6)]
    assert [state[f"{layer}.lora_a"].shape[1] for state in states] == [3, 1, 3, 3, 1, 3]
    sums = [
        state.get(f"{layer}.merged", torch.zeros(()))
        + 32 / rank * state[f"{layer}.lora_a"] @ state[f"{layer}.lora_b"]
        for state, rank in zip(states, (3, 1, 3, 3, 1, 3), strict=True)
    ]
    assert all(sum_.abs().max() > 1e-4 for sum_ in sums)
    for client in (2, 3, 5) if name == "flexlora" else range(1, 6):
        np.testing.assert_allclose(sums[client], sums[0], atol=1e-5)
    exported = CliRunner().invoke(app, ["export", str(result.directory), "--format", "peft"])
    if name == "flora":
        assert exported.exit_code == 2 and "peft reads only adapters" in exported.stderr
    else:
        assert exported.exit_code == 0
