"""The network of a scenario."""

import math
from collections.abc import Sequence
from pathlib import Path

from sim.build.actors import Actors
from sim.build.bandwidth import bandwidths
from sim.build.latency import latency
from sim.errors import UserError
from sim.kernel.random import Draws
from sim.scenario.checks import about_servers
from sim.scenario.refusals import show
from sim.scenario.scenario import Scenario
from sim.settings.network import BurstyLoss, IndependentLoss, Network, NetworkClass, NetworkPartition
from sim.world import loss
from sim.world.links import LinkClass, LinkModel, NetworkModel
from sim.world.partitions import Partition


def network_model(scenario: Scenario, actors: Actors, data_dir: Path | None) -> NetworkModel:
    """The network of a scenario, its clients and servers by name. UserError."""
    settings = scenario.network
    silent = scenario.protocol.alone  # what the file says of its method's servers may stay
    if not (actors.servers or silent) and (unfit := next(about_servers(settings), None)) is not None:
        raise UserError(
            f"{unfit.key} = {show(unfit.value)}: {unfit.problem}, as "
            f'protocol.name = "{scenario.protocol.name}" has no servers'
        )
    cuts = [_partition(number, cut, actors) for number, cut in enumerate(settings.partition)]
    return NetworkModel(
        _link(settings, None, actors, data_dir),
        classes=tuple(
            [
                _class(settings, number, differs, actors, data_dir)
                for number, differs in enumerate(settings.classes)
            ]
        ),
        bandwidths=bandwidths(settings, actors, data_dir),
        partitions=tuple([cut for cut in cuts if cut is not None]),
        backlog=settings.queue_limit,
        uplink_queue_bytes=settings.uplink_queue,
    )


def _class(
    settings: Network, number: int, differs: NetworkClass, actors: Actors, data_dir: Path | None
) -> LinkClass:
    link, key = _link(settings, number, actors, data_dir), f"network.class.{number}"
    if differs.servers:
        return LinkClass(link, dict.fromkeys(actors.servers, 0), "touching")
    if differs.inside is not None:
        return LinkClass(link, _group_of(actors.groups(differs.inside, f"{key}.inside")), "inside")
    assert differs.across is not None  # one of the three is stated
    return LinkClass(link, _group_of(actors.groups(differs.across, f"{key}.across")), "across")


def _group_of(groups: Sequence[Sequence[str]]) -> dict[str, int]:
    return {name: number for number, group in enumerate(groups) for name in group}


def _link(settings: Network, number: int | None, actors: Actors, data_dir: Path | None) -> LinkModel:
    """What the connections of class `number` are like; None: those of no class."""
    reliable = settings.of_class(number, "link") == "reliable"
    key = "network.latency" if number is None else f"network.class.{number}.latency"
    return LinkModel(
        latency(settings.of_class(number, "latency"), key, actors, data_dir),
        reliable=reliable,
        loss=_loss(settings.of_class(number, "loss")),
        rto_s=settings.of_class(number, "retransmission_delay"),
        # A reliable class in a network of datagrams has none of these.
        duplicate=0.0 if reliable else settings.of_class(number, "duplicate"),
        reorder=0.0 if reliable else settings.of_class(number, "reorder"),
        reorder_s=settings.of_class(number, "reorder_delay") or 0.0,
        bandwidth_bps=None if number is None else settings.classes[number].bandwidth,
    )


def _loss(settings: IndependentLoss | BurstyLoss) -> loss.LossModel:
    if isinstance(settings, IndependentLoss):
        return loss.IndependentLoss(settings.probability)
    return loss.GilbertElliott(settings.good, settings.bad, settings.loss_good, settings.loss_bad)


def _partition(number: int, cut: NetworkPartition, actors: Actors) -> Partition | None:
    """A cut; None if its coins leave nobody on one side, or the data have one cluster only."""
    key = f"network.partition.{number}"
    groups: tuple[tuple[str, ...], ...] = ()
    if cut.groups is not None:
        groups = actors.groups(cut.groups, f"{key}.groups")
    elif cut.share is not None:
        # A coin for each, not a draw among all: a further client must change nobody's side.
        coins = {name: Draws(actors.seed, "partition", number, name).uniform() for name in actors.clients}
        away = tuple([name for name, coin in coins.items() if coin < cut.share])
        groups = (away, tuple([name for name in actors.names if coins.get(name, 1.0) >= cut.share]))
    groups = tuple([group for group in groups if group])
    sources, targets = actors.members(cut.sources or ()), actors.members(cut.to or ())
    if len(groups) < 2 and not (sources and targets):
        return None
    flapping = cut.flapping
    return Partition(
        cut.start,
        cut.end,
        groups=groups,
        sources=sources,
        targets=targets,
        period_s=math.inf if flapping is None else flapping.period,
        cut_share=1.0 if flapping is None else flapping.share,
    )
