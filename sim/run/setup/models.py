"""Models of the clients."""

from typing import Any

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import Dataset
from sim.learning.models.backbones import client_backbones
from sim.learning.models.decoupled import Decoupled
from sim.learning.models.mlp import FullyConnected
from sim.learning.models.own import OwnModel
from sim.learning.models.size import Sized
from sim.learning.models.transformer import Lora
from sim.scenario.scenario import Scenario
from sim.scenario.sections.clients import FreshStart


def models_of_clients(
    scenario: Scenario, dataset: Dataset, folder: DataFolder, *, made: bool
) -> tuple[Sized, ...]:
    """Return the model of each client; clients with the same model share one object. Raises UserError.

    made: create each `Architecture`; otherwise only return the sizes of fully connected models.
    """
    model, shape = scenario.model, dataset.input_shape
    parts = scenario.protocol.method.parts
    each, options = ["common"] * scenario.clients.count, {"common": dict[str, Any]()}
    if isinstance(model, Decoupled):
        each = _backbones(scenario, model, folder)
        options = {backbone: {"backbone": backbone, "parts": parts or ()} for backbone in each}
        if len(options) > 1:
            _require_heterogeneous(scenario, model)
    elif parts is not None:
        raise UserError(
            f'model.name = "{model.name}": protocol.name = "{scenario.protocol.name}" exchanges parts of '
            'models, which needs the model "decoupled"'
        )
    elif isinstance(model, Lora):
        options["common"]["base"] = model.load(dataset, folder)
    elif isinstance(model, OwnModel):
        options["common"]["seed"] = scenario.run.seed
        if dataset.inputs is not None:
            options["common"]["inputs"] = dataset.inputs
    if not made:
        assert isinstance(model, FullyConnected)
        return (model.size(shape, dataset.outputs),) * len(each)
    kinds = {kind: model.architecture(shape, dataset.outputs, **given) for kind, given in options.items()}
    if model.start is not None:
        from sim.learning.models.start_file import set_start

        for architecture in kinds.values():
            set_start(architecture, folder.file("model.start", model.start))
    return tuple([kinds[kind] for kind in each])


def _require_heterogeneous(scenario: Scenario, model: Decoupled) -> None:
    """Raise UserError unless the method and newcomers support models of different architectures."""
    backbones, newcomers = list(model.backbones), scenario.clients.newcomers
    if not scenario.protocol.method.heterogeneous:
        raise UserError(
            f'model.backbones = {backbones}: protocol.name = "{scenario.protocol.name}" mixes whole '
            "models, so all clients need the same backbone; name one"
        )
    if not isinstance(newcomers, FreshStart):
        raise UserError(
            f'clients.newcomers.kind = "{newcomers.kind}": copies whole models, but with model.backbones = '
            f'{backbones} they differ; must be "fresh", or name one backbone'
        )


def _backbones(scenario: Scenario, model: Decoupled, folder: DataFolder) -> list[str]:
    """Return the backbone of each client."""
    count = scenario.clients.count
    devices = scenario.devices.build(scenario.run.seed, folder, count)
    speeds = [devices.relative_speed(index) for index in range(count)] if model.assign == "by-speed" else []
    return client_backbones(model.assign, model.backbones, count, scenario.run.seed, speeds)
