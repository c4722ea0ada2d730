"""Servers: what they own, and when they crash."""

from __future__ import annotations

from itertools import pairwise

from pydantic import model_validator

from actors.settings.base import SettingError, Settings, at_most_one
from actors.settings.quantities import Compute, CountOrZero, PositiveDuration
from sim.errors import UserError
from sim.world.churn.server_crash import ServerCrash
from sim.world.devices.device import CostModel


class ServerSection(Settings):
    """Servers, for protocols that have some: their data, their devices, their crashes.

    With `samples`, and `step_time` or `speed`, a server can train and measure on data of its own.
    """

    samples: CountOrZero = 0
    """Training samples of each server: drawn at random among those that no client owns and, where these are
    too few, among the clients', who lose them. No sample has two owners."""
    step_time: PositiveDuration | None = None
    """Time of one training step on a server's device."""
    speed: Compute | None = None
    """Speed of a server's device, instead; a job then costs its floating-point operations divided by it."""
    crash: tuple[ServerCrash, ...] = ()
    """When servers crash."""

    @model_validator(mode="after")
    def _whole(self) -> ServerSection:
        at_most_one(self, "step_time", "speed")
        has_device = self.step_time is not None or self.speed is not None
        if self.samples and not has_device:
            problem = "training on them takes time: state 'step_time' or 'speed' of the servers, too"
            raise SettingError("samples", self.samples, problem)
        if has_device and not self.samples:
            problem = "a device is for data of its own: state 'samples', too"
            raise SettingError("speed" if self.step_time is None else "step_time", None, problem)
        return self

    def cost_model(self) -> CostModel:
        """What a server's computing costs, where it has a device."""
        return CostModel(step_time_s=self.step_time, flops_per_s=self.speed)

    def crashes_of(self, server: int, servers: int) -> list[ServerCrash]:
        """The crashes of one of so many servers, in order. UserError for two at once, and unknown servers."""
        own = []
        for number, crash in enumerate(self.crash):
            unknown = [each for each in crash.servers or () if each >= servers]
            if unknown:
                raise UserError(
                    f"server.crash.{number}.servers = {list(crash.servers or ())}: there is no server "
                    f"{unknown[0]}; must be numbers from 0 to {servers - 1}"
                )
            if crash.servers is None or server in crash.servers:
                own.append((crash.at, number, crash))
        own.sort(key=lambda each: each[:2])
        for (_, _, before), (_, number, after) in pairwise(own):
            if before.back is None or before.back >= after.at:
                raise UserError(
                    f"server.crash.{number}.at: server {server} is down at {after.at:g} s already"
                )
        return [crash for _, _, crash in own]
