"""Training of each client: `[training]` with the overrides that select the client."""

from dataclasses import dataclass, field, fields
from typing import Any

from actors.settings.base import SettingError
from protocols.framework.requirements import ProtocolSettings
from sim.errors import UserError
from sim.learning.engine.optimizers import Optimizer
from sim.scenario.refusals import error_line
from sim.scenario.scenario import Scenario
from sim.scenario.sections.training import Training, overridden_settings
from sim.world.participants import Participants


@dataclass(frozen=True)
class ClientTraining:
    """Training of a client; clients with the same overrides share an object.

    overrides: numbers of the entries of `training.override` that select the client. settings: the protocol's
    settings with the client's overrides. own: the settings of the protocol that the overrides replace.
    precision: the client's precision; "" for the precision of the engine. keeps_rate: True if a change of the
    learning rate does not affect the client.
    """

    training: Training
    settings: ProtocolSettings
    overrides: tuple[int, ...] = ()
    own: dict[str, Any] = field(default_factory=dict)
    precision: str = ""
    keeps_rate: bool = False

    @property
    def optimizer(self) -> Optimizer:
        """Optimizer with its settings."""
        keys = [each.name for each in fields(Optimizer) if each.init and each.name != "kind"]
        return Optimizer(self.training.optimizer, **{name: getattr(self.training, name) for name in keys})


def training_of_each(scenario: Scenario, participants: Participants) -> tuple[ClientTraining, ...]:
    """Return the training of each client. Raises UserError."""
    of_client: dict[int, list[int]] = {}
    for number, entry in enumerate(scenario.training.override):
        for client in entry.selected("training.override", number, participants):
            of_client.setdefault(client, []).append(number)
    combinations = {tuple(numbers) for numbers in of_client.values()} | {()}
    made = {numbers: _with_overrides(scenario, numbers) for numbers in sorted(combinations)}
    return tuple([made[tuple(of_client.get(client, ()))] for client in range(len(participants.clients))])


def _with_overrides(scenario: Scenario, numbers: tuple[int, ...]) -> ClientTraining:
    entries = {number: scenario.training.override[number] for number in numbers}
    settings = scenario.protocol.settings
    own = overridden_settings(settings, entries)
    try:
        training = scenario.training.with_overrides(entries)
    except SettingError as error:  # entries that fit alone, but not together
        raise UserError(
            error_line(SettingError(f"training.{error.key}", error.value, error.problem))
        ) from None
    precisions = [entry.precision for entry in entries.values() if entry.precision is not None]
    keeps_rate = any(entry.learning_rate is not None for entry in entries.values())
    mine = settings.model_copy(update=own) if own else settings
    return ClientTraining(training, mine, numbers, own, precisions[-1] if precisions else "", keeps_rate)
