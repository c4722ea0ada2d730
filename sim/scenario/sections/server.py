"""Servers: their data, devices and crashes."""

from __future__ import annotations

from itertools import pairwise

from pydantic import model_validator

from actors.settings.base import SettingError, Settings, at_most_one
from actors.settings.quantities import Compute, CountOrZero, PositiveDuration
from sim.errors import UserError
from sim.scenario.sections.energy import DevicePower, EnergyOfBytes, PowerUsageEffectiveness, Region
from sim.world.churn.server_crash import ServerCrash
from sim.world.devices.device import CostModel


class ServerSection(Settings):
    """Servers, for protocols with servers: their data, devices and crashes.

    With `samples`, and `step_time` or `speed`, a server can train and evaluate on its data.
    """

    samples: CountOrZero = 0
    """Training samples of each server: drawn at random from the samples that no client owns and, if these are
    too few, from the samples of the clients, which lose them. No sample has two owners."""
    step_time: PositiveDuration | None = None
    """Time of one training step on a server's device."""
    speed: Compute | None = None
    """Speed of a server's device, instead of `step_time`; a job then takes its floating-point operations
    divided by the speed."""
    power: DevicePower | None = None
    """Electric power of each server while it is up; busy means that its device computes. Without this key,
    the energy of servers is unknown."""
    energy_per_byte: EnergyOfBytes | None = None
    """Energy for each byte that a server sends or receives; by default `network.energy_per_byte`."""
    pue: PowerUsageEffectiveness | None = None
    """Power usage effectiveness of the servers' data center: all its energy divided by the energy of its
    computers. This factor multiplies the cost and the CO2 of servers, which are unknown without this key."""
    region: Region | None = None
    """Region of the servers in the files of `[energy]`."""
    crash: tuple[ServerCrash, ...] = ()
    """Crashes of servers."""

    @model_validator(mode="after")
    def _whole(self) -> ServerSection:
        at_most_one(self, "step_time", "speed")
        has_device = self.step_time is not None or self.speed is not None
        if self.samples and not has_device:
            problem = "training on them takes time: also set 'step_time' or 'speed' of the servers"
            raise SettingError("samples", self.samples, problem)
        if has_device and not self.samples:
            problem = "a server's device needs data: also set 'samples'"
            raise SettingError("speed" if self.step_time is None else "step_time", None, problem)
        return self

    def cost_model(self) -> CostModel:
        """Return the cost of a server's computing. Call it only for servers with a device."""
        return CostModel(step_time_s=self.step_time, flops_per_s=self.speed)

    def crashes_of(self, server: int, servers: int) -> list[ServerCrash]:
        """Return the crashes of one of `servers` servers, in order.

        Raises:
            UserError: two crashes overlap, or a server is unknown.
        """
        found = []
        for number, crash in enumerate(self.crash):
            unknown = [each for each in crash.servers or () if each >= servers]
            if unknown:
                allowed = f"numbers from 0 to {servers - 1}" if servers > 1 else "[0], the only server"
                raise UserError(
                    f"server.crash.{number}.servers = {list(crash.servers or ())}: there is no server "
                    f"{unknown[0]}; must be {allowed}"
                )
            if crash.servers is None or server in crash.servers:
                found.append((crash.at, number, crash))
        found.sort(key=lambda each: each[:2])
        for (_, _, before), (_, number, after) in pairwise(found):
            if before.back is None or before.back >= after.at:
                raise UserError(
                    f"server.crash.{number}.at: server {server} is already down at {after.at:g} s"
                )
        return [crash for _, _, crash in found]
