"""What each client's computing costs, and when its device is slow."""

from pathlib import Path

from sim.build.distributions import distribution
from sim.errors import UserError
from sim.scenario import Scenario
from sim.world.devices import CostModel, Slowdown, Slowness, TransientSlowdown
from sim.world.random import Draws


def slowness(scenario: Scenario, client: int, data_dir: Path | None) -> Slowness:
    """How slow a client's device is over time."""
    settings, seed = scenario.devices, scenario.run.seed
    factor = 1.0
    for override in settings.override:
        if client in override.clients and override.slowdown is not None:
            factor *= override.slowdown
    scheduled = []
    for number, slow in enumerate(settings.slowdown):
        # A coin of the client's own, not a draw among all: adding a client must not change who is slow.
        chosen = (
            client in slow.clients
            if slow.clients is not None
            else Draws(seed, "slowdown", number, client).uniform() < (slow.share or 0.0)
        )
        if chosen:
            scheduled.append(Slowdown(slow.start, slow.end, slow.factor))
    spells = settings.transient
    transient = None if spells is None else TransientSlowdown(spells.every, spells.length, spells.factor)
    return Slowness(factor, scheduled, transient, Draws(seed, "transient slowdown", client))


def cost_model(scenario: Scenario, client: int, data_dir: Path | None) -> CostModel:
    """What a client's computing costs: drawn for each client, unless it is stated for this one."""
    settings, seed = scenario.devices, scenario.run.seed
    stated = [override for override in settings.override if client in override.clients]
    if settings.step_time is not None:
        times = [override.step_time for override in stated if override.step_time is not None]
        drawn = distribution(settings.step_time).sample(Draws(seed, "device", client))
        return _cost(client, step_time_s=times[-1] if times else drawn)
    speeds = [override.speed for override in stated if override.speed is not None]
    drawn = distribution(settings.speed).sample(Draws(seed, "device", client))
    return _cost(client, flops_per_s=speeds[-1] if speeds else drawn)


def _cost(client: int, **speed: float) -> CostModel:
    try:
        return CostModel(**speed)
    except ValueError as error:
        raise UserError(f"devices: client {client}: {error}") from None
