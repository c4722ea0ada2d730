"""[[model_group]]: clients with other models, each trained as in a run in which all have that model."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie import Client
from sim.errors import UserError
from sim.run.setup.builder import build
from sim.scenario.resolved import to_toml
from sim.scenario.scenario import load_scenario
from tests.protocols.worlds import DIGITS, learner, loaded, ran

TRANSFORMER = Path(__file__).parents[2] / "docs/examples/models/transformer.py"
OWN = f'{{ name = "{TRANSFORMER}:Transformer", width = 8 }}'
MLP = '{ name = "mlp", hidden = [6] }'
GROUPS = f"model_group=[{{ clients = [1, 4], model = {MLP} }}, {{ clients = [4, 5], model = {OWN} }}]"


@pytest.mark.parametrize("way", ["dense", "loop", "vmap"])
def test_each_client_trains_as_if_all_had_its_model(way: str) -> None:
    ways = () if way == "dense" else (f"engine.way={way}",)
    with ran(DIGITS, GROUPS, *ways) as together:
        assert [learner(together, client).model_group for client in range(6)] == [0, 1, 0, 0, 2, 2]
        for model, clients in (('{ name = "logistic-regression" }', [0, 2, 3]), (MLP, [1]), (OWN, [4, 5])):
            with ran(DIGITS, f"model={model}", *ways) as alike:
                for client in clients:
                    own, other = (learner(each, client).params.numpy() for each in (together, alike))
                    np.testing.assert_allclose(own, other, atol=2e-6)
                    for name in ("accuracy", "loss"):
                        found = [each.observer.metrics.latest(name) for each in (together, alike)]
                        at = f"client-{client}"
                        assert found[0][at] == pytest.approx(found[1][at], abs=1e-5)


def test_a_share_and_a_cluster_select_the_clients() -> None:
    share = build(loaded(DIGITS, f"model_group=[{{ share = 0.5, model = {MLP} }}]"), device="cpu")
    widths = [client.compute.initial().width for client in share.clients]
    assert sorted(widths) == [460] * 3 + [650] * 3
    cluster = build(loaded(DIGITS, f"model_group=[{{ cluster = 1, model = {MLP} }}]"), device="cpu")
    assert [client.compute.initial().width for client in cluster.clients] == [650] * 3 + [460] * 3
    share.close()
    cluster.close()


def test_a_resolved_scenario_has_the_groups(tmp_path: Path) -> None:
    scenario = loaded(DIGITS, GROUPS)
    path = tmp_path / "again.toml"
    path.write_text(to_toml(scenario), encoding="utf-8")
    again = load_scenario(path)
    assert again.model_group == scenario.model_group
    assert [model.name for model in again.models] == ["logistic-regression", "mlp", scenario.models[2].name]


def test_own_start_files_belong_to_their_groups(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    start = tmp_path / "start.safetensors"
    drawn = torch.Generator().manual_seed(1)
    shapes = {"1.weight": (6, 64), "1.bias": (6,), "3.weight": (10, 6), "3.bias": (10,)}
    with ran(DIGITS, f"model={MLP}", "run.duration=1 ms", "run.evaluate_every=1 ms") as alike:
        model = learner(alike, 0).context.model
        assert model is not None
        names = [part.name for part in model.slices]
    values = {
        name: torch.randn(shape, generator=drawn) for name, shape in zip(names, shapes.values(), strict=True)
    }
    save_file(values, start)
    group = f'model_group=[{{ clients = [2], model = {{ name = "mlp", hidden = [6], start = "{start}" }} }}]'
    with ran(DIGITS, group, "run.duration=1 ms", "run.evaluate_every=1 ms") as simulation:
        flat = torch.cat([each.reshape(-1) for each in values.values()])
        np.testing.assert_array_equal(simulation.clients[2].compute.initial().numpy(), flat.numpy())
        assert simulation.clients[1].compute.initial().width == 650


class Sends(Client):
    """Averages models of all peers, although their widths may differ."""

    heterogeneous = True

    async def step(self) -> None:
        update = await self.train()
        self.params = self.params + update
        self.gossip(self.params)

    async def on_message(self, message: Any, sender: str) -> None:
        self.params = (self.params + message) / 2


def test_models_of_two_widths_cannot_be_averaged() -> None:
    world = build(loaded(DIGITS, GROUPS, f"protocol.name={__file__}:Sends"), device="cpu")
    world.run()
    errors = [str(each.error) for each in world.supervisor.failures]
    assert any(re.search("vectors of [0-9]+ and [0-9]+ numbers cannot be added", error) for error in errors)
    world.close()


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            ("protocol.name=gossip",),
            r'\[\[model_group\]\] states several models: protocol.name = "gossip" mixes',
        ),
        (
            ("protocol.name=fedavg",),
            "all clients need the same model; remove the groups, or use a method that never mixes them, "
            'such as "local"',
        ),
        (
            ("protocol.name=mapl",),
            '"mapl" exchanges parts of models; use model.name = "decoupled" with several',
        ),
        (("protocol.name=spdb",), '"spdb" exchanges parts of models; remove the groups$'),
        (("protocol.name=fedper",), '"fedper" exchanges parts of models; remove the groups$'),
        (
            ('clients.newcomers={ kind = "peer" }',),
            r'clients.newcomers.kind = "peer": copies whole models, but the models of clients differ \(\[\[',
        ),
        (("model_group.0.clients=[6]",), r"model_group.0.clients = \[6\] .*: there is no client 6"),
        (("model_group.0.share=0.5",), "model_group.0.share = 0.5"),
        (
            ('model_group.0.model={ name = "logistic-regression" }',),
            r"model_group.0.model: is the same model as \[model\]",
        ),
        (('model_group.0.model={ name = "point" }',), 'model_group.0.model.name = "point".*does not support'),
        (('model_group.0.model={ name = "mlp", hidden = [0] }',), "model_group.0.model.hidden"),
        ((f"model_group=[{{ share = 0.01, model = {MLP} }}]",), "model_group.0.share = 0.01: selects none"),
        ((f"model_group=[{{ cluster = 2, model = {MLP} }}]",), "model_group.0.cluster = 2: must be a number"),
        (("model_group=[{ clients = [1] }]",), "model_group.0.model .*: is missing"),
    ],
)
def test_groups_that_do_not_fit_are_refused(overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        build(loaded(DIGITS, GROUPS, *overrides), device="cpu")
