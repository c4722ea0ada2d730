"""Models of the clients."""

from collections.abc import Sequence
from typing import Any

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset
from sim.learning.models.backbones import client_backbones
from sim.learning.models.decoupled import Decoupled
from sim.learning.models.mlp import FullyConnected
from sim.learning.models.model import ModelSection
from sim.learning.models.own import OwnModel
from sim.learning.models.size import ModelProperties
from sim.learning.models.transformer import Lora
from sim.scenario.scenario import Scenario
from sim.scenario.sections.clients import FreshStart
from sim.world.participants import Participants


def groups_of_clients(scenario: Scenario, participants: Participants) -> tuple[int, ...]:
    """Return the group of each client: its index in `scenario.models`. Raises UserError."""
    groups = [0] * len(participants.clients)
    for number, group in enumerate(scenario.model_group):
        for client in group.selected("model_group", number, participants):
            groups[client] = number + 1
    return tuple(groups)


def models_of_clients(
    scenario: Scenario, groups: Sequence[int], dataset: Dataset, folder: DataFolder, *, made: bool
) -> tuple[ModelProperties, ...]:
    """Return the model of each client; clients with the same model share one object. Raises UserError.

    made: create each `Architecture`; otherwise only return the sizes of fully connected models.
    """
    method, models = scenario.protocol.method, scenario.models
    if method.parts is not None and scenario.model_group:
        several = 'use model.name = "decoupled" with several backbones instead'
        raise UserError(
            f'model_group: protocol.name = "{scenario.protocol.name}" exchanges parts of models; '
            f"{several if method.heterogeneous else 'remove the groups'}"
        )
    if len(set(groups)) > 1:
        _require_heterogeneous(scenario)
    of_group = [_models(scenario, model, groups, dataset, folder, made) for model in models]
    each = tuple([of_group[group][client] for client, group in enumerate(groups)])
    for number, found in enumerate(of_group[1:]):
        earlier = [other[0].key for other in of_group[: number + 1]]
        if found[0].key in earlier:
            same = earlier.index(found[0].key)
            stated = f"model_group.{same - 1}.model" if same else "[model]"
            raise UserError(f"model_group.{number}.model: is the same model as {stated}")
    return each


def _models(
    scenario: Scenario,
    model: ModelSection,
    groups: Sequence[int],
    dataset: Dataset,
    folder: DataFolder,
    made: bool,
) -> list[ModelProperties]:
    """Return the model that each client has in the group of this model."""
    shape, parts = dataset.input_shape, scenario.protocol.method.parts
    each, options = ["common"] * len(groups), {"common": dict[str, Any]()}
    if isinstance(model, Decoupled):
        if len(model.backbones) > 1:
            _require_heterogeneous(scenario)
        each = _backbones(scenario, model, folder)
        options = {backbone: {"backbone": backbone, "parts": parts or ()} for backbone in each}
    elif parts is not None:
        raise UserError(
            f'model.name = "{model.name}": protocol.name = "{scenario.protocol.name}" exchanges parts of '
            'models; must be "decoupled"'
        )
    elif isinstance(model, Lora):
        options["common"]["base"] = model.load(dataset, folder)
        options["common"]["merged"] = scenario.protocol.method.merges_adapters
    elif isinstance(model, OwnModel):
        options["common"]["seed"] = scenario.run.seed
        if dataset.inputs is not None:
            options["common"]["inputs"] = dataset.inputs
    if not made:
        assert isinstance(model, FullyConnected)
        return [model.size(shape, dataset.outputs)] * len(each)
    kinds = {kind: model.architecture(shape, dataset.outputs, **given) for kind, given in options.items()}
    if model.start is not None:
        from sim.learning.models.start_file import set_start

        for architecture in kinds.values():
            set_start(architecture, folder.file("model.start", model.start))
    return [kinds[kind] for kind in each]


def _require_heterogeneous(scenario: Scenario) -> None:
    """Raise UserError unless the method and newcomers support models of different architectures."""
    newcomers, model = scenario.clients.newcomers, scenario.model
    differ, remedy, other = "[[model_group]] states several models", "remove the groups", "local"
    if not scenario.model_group:
        assert isinstance(model, Decoupled)
        differ, remedy, other = f"model.backbones = {list(model.backbones)}", "name one", "mapl"
    if not scenario.protocol.method.heterogeneous:
        what = "backbone" if not scenario.model_group else "model"
        raise UserError(
            f'{differ}: protocol.name = "{scenario.protocol.name}" mixes whole '
            f"models, so all clients need the same {what}; {remedy}, or use a method that never "
            f'mixes them, such as "{other}"'
        )
    if not isinstance(newcomers, FreshStart):
        raise UserError(
            f'clients.newcomers.kind = "{newcomers.kind}": copies whole models, but the models of clients '
            f'differ ({differ}); set it to "fresh", or {remedy.replace("name one", "name one backbone")}'
        )


def _backbones(scenario: Scenario, model: Decoupled, folder: DataFolder) -> list[str]:
    """Return the backbone of each client."""
    count = scenario.clients.count
    devices = scenario.devices.build(scenario.run.seed, folder, count)
    speeds = [devices.relative_speed(index) for index in range(count)] if model.assign == "by-speed" else []
    return client_backbones(model.assign, model.backbones, count, scenario.run.seed, speeds)
