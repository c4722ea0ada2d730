"""What each client's computing costs, when its device is slow, and whether the model fits it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import median

from sim.build.distributions import distribution
from sim.build.traces import phone_scores, slow_times
from sim.errors import UserError
from sim.kernel.random import Draws
from sim.run.compute import LearningSettings
from sim.scenario.scenario import Scenario
from sim.settings.devices import DeviceClass, Devices, MeasuredSpeed, MeasuredTime
from sim.world.devices import CostModel
from sim.world.slowness import MeasuredSlowdown, PeriodicSlowdown, Slowdown, Slowness, TransientSlowdown

_NUMBER_BYTES = 4  # of a float32


class DeviceMaker:
    """Describes the device of each client, from the client's own random numbers only."""

    def __init__(self, scenario: Scenario, data_dir: Path | None) -> None:
        self._settings: Devices = scenario.devices
        self._seed = scenario.run.seed
        self._data_dir = data_dir

    def slowness(self, client: int) -> Slowness:
        """How slow a client's device is over time."""
        settings, seed = self._settings, self._seed
        kind = self._class(client)
        factor = kind.slowdown if kind is not None else 1.0
        for override in settings.override:
            if client in override.clients and override.slowdown is not None:
                factor *= override.slowdown
        known: list[Slowdown | PeriodicSlowdown | MeasuredSlowdown] = []
        for number, slow in enumerate(settings.slowdown):
            if self._concerns(client, slow.clients, slow.share, "slowdown", number):
                known.append(Slowdown(slow.start, slow.end, slow.factor))
        periodic, measured, spells = settings.periodic, settings.measured, settings.transient
        if periodic is not None and self._concerns(
            client, periodic.clients, periodic.share_of_clients, "who has periodic slow times"
        ):
            known.append(self._periodic(client))
        if measured is not None and self._concerns(
            client, measured.clients, measured.share, "who has measured slow times"
        ):
            known.append(self._measured(client))
        transient = None
        if spells is not None and self._concerns(
            client, spells.clients, spells.share, "who has transient slowdowns"
        ):
            transient = TransientSlowdown(spells.every, spells.length, spells.factor)
        return Slowness(factor, known, transient, Draws(seed, "transient slowdown", client))

    def cost_model(self, client: int) -> CostModel:
        """What a client's computing costs: stated for it, or drawn as for its class or for all."""
        settings, kind = self._settings, self._class(client)
        stated = [override for override in settings.override if client in override.clients]
        if settings.step_time is not None:
            times = [override.step_time for override in stated if override.step_time is not None]
            of_class = kind.step_time if kind is not None else None
            drawn = self._draw(of_class or settings.step_time, client)
            return _cost(client, step_time_s=times[-1] if times else drawn)
        speeds = [override.speed for override in stated if override.speed is not None]
        of_class_speed = kind.speed if kind is not None else None
        drawn = self._draw(of_class_speed or settings.speed, client)
        return _cost(client, flops_per_s=speeds[-1] if speeds else drawn)

    def relative_speed(self, client: int) -> float:
        """How fast a client's device is beside others, in no particular unit; lasting slowdowns count."""
        cost = self.cost_model(client)
        speed = 1.0 / cost.step_time_s if cost.step_time_s is not None else cost.flops_per_s
        assert speed is not None  # one of the two is set
        return speed / self.slowness(client).factor

    def require_memory(self, client: int, learning: LearningSettings) -> None:
        """UserError if training the model needs more memory than the client's device has."""
        kind = self._class(client)
        limit = kind.memory if kind is not None and kind.memory is not None else self._settings.memory
        if limit is None:
            return
        model = learning.architecture
        vectors = 2 + learning.optimizer.slots  # parameters, gradient, optimizer state
        numbers = vectors * model.numel + learning.views * learning.batch_size * math.prod(model.input_shape)
        if numbers * _NUMBER_BYTES > limit:
            of_kind = f' (class "{kind.name}")' if kind is not None else ""
            raise UserError(
                f"devices.memory: the device of client {client}{of_kind} has {limit:,.0f} bytes, but "
                f"to train the model takes {numbers * _NUMBER_BYTES:,} at least: {vectors} times "
                f"{model.numel:,} numbers (parameters, gradient, optimizer state) and a batch of inputs, "
                "activations not counted; use a smaller model or more memory"
            )

    def _concerns(
        self, client: int, clients: Sequence[int] | None, share: float | None, *purpose: str | int
    ) -> bool:
        """Whether a client has slow times that are stated for a list, for a share, or for all (neither)."""
        if clients is not None:
            return client in clients
        # A coin of the client's own, not a draw among all: adding a client must not change who is slow.
        return share is None or Draws(self._seed, *purpose, client).uniform() < share

    def _class(self, client: int) -> DeviceClass | None:
        for kind in self._settings.classes:
            if kind.clients is not None and client in kind.clients:
                return kind
        place = Draws(self._seed, "device class", client).uniform()
        for kind in self._settings.classes:
            place -= kind.share or 0.0
            if place < 0:
                return kind
        return None

    def _draw(self, settings: object, client: int) -> float:
        draws = Draws(self._seed, "device", client)
        if isinstance(settings, MeasuredTime | MeasuredSpeed):
            scores = self._phone_scores
            relative = scores[int(draws.uniform() * len(scores))] / median(scores)
            faster = isinstance(settings, MeasuredSpeed)
            return settings.median * relative if faster else settings.median / relative
        return distribution(settings).sample(draws)

    def _periodic(self, client: int) -> PeriodicSlowdown:
        settings = self._settings.periodic
        assert settings is not None
        phase_s = settings.phase
        if phase_s == "random":
            phase_s = settings.period * Draws(self._seed, "phase of slow times", client).uniform()
        return PeriodicSlowdown(settings.period, settings.share, settings.factor, phase_s)

    def _measured(self, client: int) -> MeasuredSlowdown:
        settings = self._settings.measured
        assert settings is not None
        times_s, factors = self._slow_times
        offset_s = settings.offset
        if offset_s == "random":
            offset_s = times_s[-1] * Draws(self._seed, "offset of slow times", client).uniform()
        return MeasuredSlowdown(times_s, factors, offset_s % times_s[-1])

    @cached_property
    def _phone_scores(self) -> list[float]:
        return phone_scores(
            "devices.step_time" if self._settings.speed is None else "devices.speed", self._data_dir
        )

    @cached_property
    def _slow_times(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        assert self._settings.measured is not None
        return slow_times(self._settings.measured.file)


def _cost(client: int, **speed: float) -> CostModel:
    try:
        return CostModel(**speed)
    except ValueError as error:
        raise UserError(f"devices: client {client}: {error}") from None
