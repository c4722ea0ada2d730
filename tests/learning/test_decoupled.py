"""Decoupled models: their parts, their order, what is trained, and representations."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sim.errors import UserError
from sim.learning.architecture import Architecture, TrainingPass
from sim.learning.engine import Optimizer
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.sampler import BatchSampler, TrainJob
from sim.learning.models.decoupled import PARTS
from tests.learning.engines import client_data, generator, new_engine
from tests.learning.sections import architecture

SHAPE, CLASSES, FEATURES, HIDDEN = (1, 10, 10), 3, 6, 9


def model(backbone: str = "small-mlp", parts: tuple[str, ...] = tuple(PARTS), **options: Any) -> Architecture:
    options = {"features": FEATURES, "projection_hidden": HIDDEN} | options
    return architecture("decoupled", {"backbone": backbone, "parts": parts, **options}, SHAPE, CLASSES)


def contrast(model: Any, parameters: Any, x: Tensor, y: Tensor) -> Tensor:
    """Uses every part."""
    features, projections, scores = model.embed(parameters, x)
    prototypes = functional.normalize(model.tensor(parameters, "prototypes"), dim=1)
    near = functional.normalize(projections, dim=1) @ prototypes.T
    anchor = model.tensor(parameters, "head_anchor").square().sum()
    loss = functional.cross_entropy(scores, y) + functional.cross_entropy(near, y)
    return loss + 0.01 * features.square().mean() + anchor


def test_parts_lie_in_order_and_in_one_piece() -> None:
    whole = model()
    names = ("backbone", "projection", "head", "head_anchor", "class_means", "prototypes")
    spans = [whole.part(name) for name in names]
    assert [span.start for span in spans] == [0, *[span.stop for span in spans[:-1]]]
    assert spans[-1].stop == whole.numel
    sizes = [span.stop - span.start for span in spans[1:]]
    projection = FEATURES * HIDDEN + HIDDEN + 4 * HIDDEN + HIDDEN * FEATURES + FEATURES
    head = CLASSES * (FEATURES + 1)
    assert sizes == [projection, head, head, CLASSES * FEATURES, CLASSES * FEATURES]
    assert whole.part("head.weight").stop == whole.part("head.bias").start
    assert whole.shape_of("prototypes") == whole.shape_of("head.weight") == (CLASSES, FEATURES)
    assert whole.shape_of("head_anchor") == (head,)
    assert whole.part("head") != whole.part("head_anchor"), "a prefix ends at a dot"


@pytest.mark.parametrize(
    "parts", [(), ("prototypes",), ("head_anchor",), ("projection", "prototypes")], ids=str
)
def test_only_the_parts_asked_for_are_there(parts: tuple[str, ...]) -> None:
    some = model(parts=parts)
    for part in ("backbone", "head", *parts):
        assert some.part(part).stop > some.part(part).start
    for part in set(PARTS) - set(parts):
        with pytest.raises(ValueError, match=rf'has no part "{part}"; it has backbone, .*head'):
            some.part(part)
        with pytest.raises(ValueError, match=f'has no parameter "{part}"'):
            some.shape_of(part)
    with pytest.raises(ValueError, match="has no part"):
        some.part(["head"])  # type: ignore[arg-type]


def test_a_parameter_by_name_is_a_view() -> None:
    whole = model()
    flat = whole.initial(generator())
    for place in whole.slices:
        view = whole.tensor(flat, place.name)
        assert torch.equal(view, whole.unflatten(flat)[place.name])
        assert torch.equal(view.flatten(), flat[whole.part(place.name)])
    whole.tensor(flat, "head.bias").fill_(7)
    assert flat[whole.part("head.bias")].tolist() == [7] * CLASSES
    assert whole.tensor(flat.expand(4, -1), "prototypes").shape == (4, CLASSES, FEATURES)
    assert torch.equal(whole.tensor({"head.bias": flat[:3]}, "head.bias"), flat[:3])


def test_initialisation() -> None:
    whole, flat = model(features=500), model(features=500).initial(generator())
    prototypes = whole.tensor(flat, "prototypes")
    bound = 500**-0.5  # as a linear layer's of 500 inputs
    assert 0.95 * bound < prototypes.abs().max() <= bound and abs(prototypes.mean()) < 0.05 * bound
    assert not whole.tensor(flat, "head_anchor").any()
    assert whole.tensor(flat, "projection.1.running_var").eq(1).all()
    less = model(features=500, parts=("projection",))
    assert torch.equal(less.initial(generator()), flat[: less.numel]), "what is added is drawn last"


def test_the_embedding_is_what_the_parts_make_of_the_input() -> None:
    whole = model()
    flat = whole.initial(generator())
    x = torch.randn(4, *SHAPE, generator=generator())
    embedding = whole.embed(flat, x)
    scores = functional.linear(
        embedding.features.relu(), whole.tensor(flat, "head.weight"), whole.tensor(flat, "head.bias")
    )
    assert torch.equal(embedding.scores, scores)
    assert torch.equal(whole.forward(flat, x), scores)
    hidden = functional.linear(
        embedding.features, whole.tensor(flat, "projection.0.weight"), whole.tensor(flat, "projection.0.bias")
    )
    hidden = (hidden / (1 + 1e-5) ** 0.5).relu()
    projected = functional.linear(
        hidden, whole.tensor(flat, "projection.3.weight"), whole.tensor(flat, "projection.3.bias")
    )
    assert embedding.projections is not None
    torch.testing.assert_close(embedding.projections, projected)
    assert model(parts=()).embed(flat[: model(parts=()).numel], x).projections is None


def test_other_models_have_no_representations() -> None:
    mlp = architecture("mlp", {}, (4,), 2)
    flat, x = mlp.initial(generator()), torch.zeros(1, 4)
    for own in (mlp, TrainingPass(mlp, {})):
        with pytest.raises(TypeError, match="decoupled"):
            own.embed(flat, x)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
@pytest.mark.parametrize("backbone", ["small-mlp", "small-resnet"])
def test_an_objective_on_all_parts(backbone: str, backend: str) -> None:
    whole = model(backbone)
    flat = torch.stack([whole.initial(generator(seed)) for seed in range(3)])
    flat[:, whole.part("head_anchor")] = 2.0
    x = torch.randn(3, 5, *SHAPE, generator=generator())
    y = torch.randint(CLASSES, (3, 5), generator=generator())
    kernel = ModelKernel(whole, contrast, backend)
    gradient, untrained = kernel.training_gradients(flat, x, y)
    expected, its_untrained = ModelKernel(whole, contrast, "loop").training_gradients(flat, x, y)
    assert untrained is not None and its_untrained is not None
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(untrained, its_untrained, rtol=1e-4, atol=1e-6)
    for part in ("backbone", "projection", "head", "prototypes"):
        assert gradient[:, whole.part(part)].any(dim=1).all()
    assert not gradient[:, whole.part("head_anchor")].any()
    kernel.descend(flat, x, y, torch.full((3, 1), 0.1))
    assert (flat[:, whole.part("head_anchor")] == 2.0).all()


def test_weight_decay_and_pulls_leave_the_anchor_alone() -> None:
    whole = model()
    engine = new_engine(client_data([6, 6], shape=SHAPE))
    kernel = engine.kernel(whole, contrast)
    operation = engine.training(
        kernel, Optimizer("adam", weight_decay=0.1), BatchSampler(engine.data.train, 4, "shuffled")
    )
    start = whole.initial(generator())
    start[whole.part("head_anchor")] = 2.0
    job = TrainJob(0, 5, 0, 3, 0.1, 0, (0.5,))
    origin = engine.vector(torch.zeros(whole.numel))
    trained = engine.train(operation, engine.vector(start), job, anchors=[origin])[0].tensor().cpu()
    assert (trained[whole.part("head_anchor")] == 2.0).all()
    assert (trained[whole.part("prototypes")] != start[whole.part("prototypes")]).all()


def test_the_key_tells_architectures_apart() -> None:
    keys = {
        model().key,
        model("small-cnn").key,
        model(features=7).key,
        model(projection_hidden=7).key,
        model(parts=("prototypes",)).key,
        model(parts=("projection",)).key,
        model(parts=()).key,
    }
    assert len(keys) == 7
    assert model().key == model().key


def test_projections_are_counted_in_training_alone() -> None:
    more, less = model(parts=("projection",)), model(parts=())
    assert more.forward_flops_per_sample == less.forward_flops_per_sample
    extra = 2 * 2 * FEATURES * HIDDEN
    assert more.training_flops_per_sample == less.training_flops_per_sample + 3 * extra


def test_unknown_parts_are_refused() -> None:
    with pytest.raises(
        UserError,
        match="attribute parts: a decoupled model has no prototype; allowed: projection, head_anchor",
    ):
        model(parts=("prototype",))
