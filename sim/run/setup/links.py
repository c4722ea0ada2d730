"""Links between clients and servers."""

from collections.abc import Mapping, Sequence

from actors.settings.base import SettingError
from protocols.framework.context import Links
from protocols.framework.server import ServerPlan
from sim.errors import UserError
from sim.scenario.refusals import show
from sim.scenario.scenario import Scenario
from sim.world.membership.kinds import Bootstrap
from sim.world.topology.kinds import Numbers

Names = Mapping[str, tuple[str, ...]]


def links_among(
    scenario: Scenario, names: Sequence[str], servers: Sequence[ServerPlan]
) -> tuple[Names, Mapping[str, Links]]:
    """Return the linked peers of each client and server, by name, and the properties of these links.

    A client's only peer may be its server. Raises UserError for an impossible topology, and for keys that the
    method cannot use because it has servers, or has none.
    """
    _refuse_samples_with_servers(scenario, servers)
    _reject_server_keys(scenario, servers)
    if scenario.protocol.alone:
        return dict.fromkeys(names, ()), {}
    if servers:
        return _with_servers(servers, names), {}
    count, topology = len(names), scenario.clients.topology
    topology.require_possible(count)
    among = topology.adjacency(count, scenario.run.seed)
    receivers, senders = _peers_by_name(names, among.receivers), _peers_by_name(names, among.senders)
    if not among.directed and among.weights is None:
        return receivers, {}
    links = {}
    for index, name in enumerate(names):
        weights = None
        if among.weights is not None:
            weights = {names[peer]: weight for peer, weight in among.weights[index].items()}
        links[name] = Links(weights=weights)
        if among.directed:
            links[name] = Links(frozenset(receivers[name]), frozenset(senders[name]), weights)
    # Joins and departures are announced in both directions of a link; they take only a few bytes.
    both = {name: tuple(dict.fromkeys(receivers[name] + senders[name])) for name in names}
    return both, links


def _with_servers(plans: Sequence[ServerPlan], clients: Sequence[str]) -> Names:
    """Link each client with its servers, and each server with its clients and servers."""
    neighbours: dict[str, list[str]] = {name: [] for name in (*clients, *[plan.name for plan in plans])}
    for plan in plans:
        for other in (*plan.clients, *plan.servers):
            neighbours[plan.name].append(other)
            neighbours[other].append(plan.name)
    return {name: tuple(dict.fromkeys(others)) for name, others in neighbours.items()}


def _peers_by_name(names: Sequence[str], numbers: Numbers) -> Names:
    return {name: tuple([names[peer] for peer in peers]) for name, peers in zip(names, numbers, strict=True)}


def _refuse_samples_with_servers(scenario: Scenario, servers: Sequence[ServerPlan]) -> None:
    if servers and isinstance(scenario.network.membership, Bootstrap):
        raise UserError(
            'network.membership.kind = "bootstrap": gives clients other clients as peers, but with '
            f'protocol.name = "{scenario.protocol.name}" each client communicates only with its server; must '
            "be one of announce, all-knowing, swim"
        )


def _reject_server_keys(scenario: Scenario, servers: Sequence[ServerPlan]) -> None:
    """Raise UserError for keys about servers in a scenario without servers, unless clients run alone."""
    protocol = scenario.protocol
    about = [*scenario.network.about_servers()]
    if scenario.server is not None:
        about.append(SettingError("server", None, "must be removed"))
    unfit = next(iter(about), None)
    if unfit is not None and not (servers or protocol.alone):
        value = "" if unfit.value is None else f" = {show(unfit.value)}"
        raise UserError(
            f'{unfit.key}{value}: {unfit.problem}, because protocol.name = "{protocol.name}" has no servers'
        )
