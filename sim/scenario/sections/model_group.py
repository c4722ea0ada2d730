"""Clients whose model differs from `[model]`."""

from typing import Annotated

from sim.learning.models.kinds import Model
from sim.learning.models.own import OwnModel
from sim.plugins.point import PluginPoint
from sim.scenario.sections.selection import SelectedClients


class ModelGroup(SelectedClients):
    """Another model for some clients. Only methods that never mix models of different groups accept it.

    Select the clients by exactly one of `clients`, `share` and `cluster`. A client belongs to the last group
    that selects it; all other clients have the model of `[model]`, which is group 0.
    """

    model: Annotated[Model, PluginPoint(OwnModel)]
    """Model of the group, with the keys of `[model]`."""
