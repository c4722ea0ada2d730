"""Settings that become others while a run goes on."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import WithJsonSchema, model_validator

from actors.settings.base import SettingError, Settings, at_least_one
from actors.settings.quantities import ClientList, Duration, PositiveDuration, PositiveWeight
from protocols.framework.requirements import ProtocolSettings
from sim.scenario.sections.network import Network
from sim.world.bandwidths import ClientBandwidth
from sim.world.latency.kinds import Latency
from sim.world.loss import Loss
from sim.world.network_model import NetworkModel
from sim.world.participants import Participants


class ChangedNetwork(Settings):
    """What the network is like from then on; what is not stated stays, and so is what classes state."""

    latency: Latency | None = None
    """Propagation time of messages whose transfer ends later."""
    loss: Loss | None = None
    """Share of the transmissions that are lost."""
    uplink: ClientBandwidth | None = None
    """Bandwidth from each client into the network, also for what is in transfer."""
    downlink: ClientBandwidth | None = None
    """Bandwidth from the network to each client, also for what is in transfer."""

    @model_validator(mode="after")
    def _something(self) -> "ChangedNetwork":
        at_least_one(self, "latency", "loss", "uplink", "downlink")
        return self


class ChangedTraining(Settings):
    """How clients train from then on."""

    learning_rate: PositiveWeight
    """Step size of trainings that end later."""


class ChangedChurn(Settings):
    """Departures that do not happen. Who comes or goes later beside these is said by entries of `churn`."""

    stay: PositiveDuration
    """Whoever would leave or crash within so much after it stays, also when it would have come back."""
    clients: ClientList | None = None
    """Only these clients; by default all."""


_SETTINGS = WithJsonSchema({"type": "object", "x-allowed": "a table of settings of the protocol"})


class Change(Settings):
    """Settings that become others when everything that happens at a time has happened."""

    at: Duration
    """Virtual time of the change."""
    network: ChangedNetwork | None = None
    """What the network is like from then on."""
    training: ChangedTraining | None = None
    """How clients train from then on."""
    churn: ChangedChurn | None = None
    """Clients that stay although they would leave or crash."""
    protocol: Annotated[dict[str, Any], _SETTINGS] | None = None
    """Settings of the protocol, those that it allows to change: how all clients go on, and its servers."""

    @model_validator(mode="after")
    def _something(self) -> "Change":
        at_least_one(self, "network", "training", "churn", "protocol")
        if self.protocol == {}:
            raise SettingError(
                "protocol", None, "is empty, and changes nothing; state a setting, or leave it out"
            )
        return self


def changed_networks(
    network: Network, changes: Iterable[Change], participants: Participants
) -> list[tuple[float, NetworkModel]]:
    """(seconds, network from then on) of each change of the network. UserError."""
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
    """(seconds, settings from then on) of each change of the protocol. SettingError, ValidationError."""
    found = []
    for number, change in sorted(enumerate(changes), key=lambda item: item[1].at):
        for key, value in (change.protocol or {}).items():
            if key not in settings.changing:
                can = ", ".join(settings.changing) or "nothing"
                problem = f"cannot become another one while a run goes on; what can of this protocol is {can}"
                raise SettingError(f"change.{number}.protocol.{key}", value, problem)
        if change.protocol:
            stated = settings.model_dump(mode="json", by_alias=True) | change.protocol
            settings = type(settings).model_validate(stated)
            found.append((change.at, settings))
    return found
