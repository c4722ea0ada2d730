"""Settings that change during a run."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import WithJsonSchema, model_validator

from actors.settings.base import SettingError, Settings, at_least_one
from actors.settings.quantities import ClientList, Duration, PositiveDuration, PositiveWeight
from protocols.framework.requirements import ProtocolSettings
from sim.scenario.sections.network import Network
from sim.world.bandwidths import ClientBandwidth
from sim.world.latency.kinds import Latency
from sim.world.loss.kinds import Loss
from sim.world.network_model import NetworkModel
from sim.world.participants import Participants


class ChangedNetwork(Settings):
    """New values of network keys. Omitted keys, and values set by classes, do not change."""

    latency: Latency | None = None
    """Propagation time of messages that end their transfer after the change."""
    loss: Loss | None = None
    """Share of lost transmissions of messages that end their transfer after the change."""
    uplink: ClientBandwidth | None = None
    """Bandwidth from each client into the network. It also applies to messages in transfer."""
    downlink: ClientBandwidth | None = None
    """Bandwidth from the network to each client. It also applies to messages in transfer."""

    @model_validator(mode="after")
    def _something(self) -> "ChangedNetwork":
        at_least_one(self, "latency", "loss", "uplink", "downlink")
        return self


class ChangedTraining(Settings):
    """New values of training keys."""

    learning_rate: PositiveWeight
    """Step size of trainings that end after the change."""


class ChangedChurn(Settings):
    """Departures and crashes that the change cancels. To add later events, use entries of `[[churn]]`."""

    stay: PositiveDuration
    """Time after the change in which no client leaves or crashes. Returns from these departures are also
    canceled."""
    clients: ClientList | None = None
    """Clients to which this applies; by default all."""


_SETTINGS = WithJsonSchema({"type": "object", "x-allowed": "a table of settings of the protocol"})


class Change(Settings):
    """Settings that change at a virtual time, after all other events of that time."""

    at: Duration
    """Virtual time of the change."""
    network: ChangedNetwork | None = None
    """New values of network keys."""
    training: ChangedTraining | None = None
    """New values of training keys."""
    churn: ChangedChurn | None = None
    """Departures and crashes that do not happen."""
    protocol: Annotated[dict[str, Any], _SETTINGS] | None = None
    """New settings of the protocol, for all clients and servers. The protocol defines the changeable ones."""

    @model_validator(mode="after")
    def _something(self) -> "Change":
        at_least_one(self, "network", "training", "churn", "protocol")
        if self.protocol == {}:
            raise SettingError(
                "protocol", None, "is empty and changes nothing; add a setting, or remove the key"
            )
        return self


def changed_networks(
    network: Network, changes: Iterable[Change], participants: Participants
) -> list[tuple[float, NetworkModel]]:
    """Return (seconds, new network) of each change of the network. Raises UserError."""
    models = []
    for change in sorted(changes, key=lambda change: change.at):
        if change.network is not None:
            stated = {key: value for key, value in change.network if value is not None}
            network = network.model_copy(update=stated)
            models.append((change.at, network.build(participants)))
    return models


def changed_settings(
    settings: ProtocolSettings, changes: Iterable[Change]
) -> list[tuple[float, ProtocolSettings]]:
    """Return (seconds, new settings) of each change of the protocol. Raises SettingError, ValidationError."""
    found = []
    for number, change in sorted(enumerate(changes), key=lambda item: item[1].at):
        for key, value in (change.protocol or {}).items():
            if key not in settings.changing:
                can = ", ".join(settings.changing) or "none"
                problem = f"cannot change during a run; settings of this protocol that can: {can}"
                raise SettingError(f"change.{number}.protocol.{key}", value, problem)
        if change.protocol:
            stated = settings.model_dump(mode="json", by_alias=True) | change.protocol
            settings = type(settings).model_validate(stated)
            found.append((change.at, settings))
    return found
