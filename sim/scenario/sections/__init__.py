"""Sections of a scenario file, one module each: keys, checks, and the parts of the simulated world.

Every section is frozen and rejects unknown keys. After validation, quantities are plain numbers in SI units.
"""

from typing import Annotated, ClassVar

from actors.settings.base import Settings
from sim.learning.data.kinds import Data
from sim.learning.data.own import OwnData
from sim.learning.models.kinds import Model
from sim.learning.models.own import OwnModel
from sim.plugins.point import PluginPoint
from sim.scenario.sections.change import Change
from sim.scenario.sections.churn import Churn
from sim.scenario.sections.clients import Clients
from sim.scenario.sections.devices import Devices
from sim.scenario.sections.energy import EnergySection
from sim.scenario.sections.engine import EngineSection
from sim.scenario.sections.model_group import ModelGroup
from sim.scenario.sections.network import Network
from sim.scenario.sections.protocol import ProtocolChoice
from sim.scenario.sections.run import Run
from sim.scenario.sections.server import ServerSection
from sim.scenario.sections.supervision import Supervision
from sim.scenario.sections.training import Training
from sim.scenario.sections.tuned import Tuned
from sim.world.churn.processes import ChurnProcess


class Sections(Settings):
    """A scenario file of coterie."""

    beside: ClassVar[tuple[str, ...]] = ("sweep",)  # allowed in a file, but not part of a single run

    run: Run
    clients: Clients
    data: Annotated[Data, PluginPoint(OwnData)]
    model: Annotated[Model, PluginPoint(OwnModel)]
    model_group: tuple[ModelGroup, ...] = ()
    training: Training
    protocol: ProtocolChoice
    network: Network
    devices: Devices
    churn: tuple[Churn, ...] = ()
    churn_process: tuple[ChurnProcess, ...] = ()
    change: tuple[Change, ...] = ()
    engine: EngineSection = EngineSection()
    supervision: Supervision = Supervision()
    server: ServerSection | None = None
    energy: EnergySection | None = None
    tuned: Tuned | None = None
