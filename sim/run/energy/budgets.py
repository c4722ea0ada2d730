"""Budgets of energy: the time at which each client exhausts its budget, and the end of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sim.core.assembly import Classes
from sim.core.budget import BudgetedCompute
from sim.core.hooks import MessageEvent
from sim.core.lives import ClientLife
from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.kernel.clock import VirtualLoop
from sim.run.energy.constants import EnergyConstants
from sim.run.energy.meter import EnergyMeter
from sim.world.devices.device import BUSY, DOWN, Device, Job
from sim.world.timeline import State

_ARRIVALS = ("join", "rejoin")
_ROUNDING = 1e-12


class MeteredDevice(Device):
    """Device that reports each change of its state."""

    __slots__ = ("changed",)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.changed: Callable[[], None] | None = None

    def _start(self, job: Job) -> None:
        super()._start(job)
        self._report()

    def _enter(self, state: State) -> None:
        super()._enter(state)
        self._report()

    def _report(self) -> None:
        if self.changed is not None:
            self.changed()


def with_meters(classes: Classes, constants: EnergyConstants | None) -> Classes:
    """Return the classes of a simulation, with the device that a budget of energy needs."""
    is_limited = constants is not None and constants.budget_j is not None
    return replace(classes, device=MeteredDevice) if is_limited else classes


def add_energy_meter(simulation: Simulation, constants: EnergyConstants | None) -> EnergyMeter | None:
    """Return a meter for a simulation; None without constants.

    Except in live runs, add it as a hook, and limit the clients to their budget of energy, if they have one.
    """
    if constants is None:
        return None
    meter = EnergyMeter(constants)
    if isinstance(simulation.loop, VirtualLoop):  # live runs have no hooks
        simulation.add_hook(meter)
        if constants.budget_j is not None:
            simulation.add_hook(EnergyBudgets(meter, constants.budget_j))
    return meter


class EnergyBudgets(RunHook):
    """Hook that exhausts each client's budget at the exact time, and ends the run at the last one.

    The power of a client is constant until its device changes its state or a message is sent or received.
    At each of these events, the hook computes the time at which the client will exhaust its budget.
    """

    ends_run = True

    def __init__(self, meter: EnergyMeter, limit_j: float) -> None:
        self._meter = meter
        self._limit_j = limit_j
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._spent: set[str] = set()
        self._clients: dict[str, ClientLife] = {}
        self._last_arrivals_s: dict[int, float] = {}

    def started(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._clients = {client.name: client for client in simulation.clients}
        for event in simulation.events:
            if event.kind in _ARRIVALS:
                self._last_arrivals_s |= dict.fromkeys(event.clients, event.time_s)
        for client in simulation.clients:
            assert isinstance(client.compute, BudgetedCompute) and isinstance(client.device, MeteredDevice)
            client.compute.energy_share = partial(self._share, client)
            client.device.changed = partial(self._look_ahead, client)
            self._look_ahead(client)

    def message(self, event: MessageEvent) -> None:
        if event.kind in ("sent", "delivered"):
            envelope = event.envelope
            client = self._clients.get(envelope.sender if event.kind == "sent" else envelope.receiver)
            if client is not None:
                self._look_ahead(client)

    def _share(self, client: ClientLife) -> float:
        share = self._meter.joules_of(client, self._simulation) / self._limit_j
        # The timer comes after the other events of its moment, at which rounding may miss the limit.
        return 1.0 if client.name in self._spent or share > 1 - _ROUNDING else share

    def _look_ahead(self, client: ClientLife) -> None:
        """Set the time at which a client will exhaust its budget if nothing changes before."""
        if (timer := self._timers.pop(client.name, None)) is not None:
            timer.cancel()
        if client.name in self._spent:
            return
        loop, own = self._simulation.loop, self._meter.constants.actors[client.name]
        state = client.device.state
        watts = 0.0 if state == DOWN else own.busy_w if state == BUSY else own.idle_w
        left_j = self._limit_j - self._meter.joules_of(client, self._simulation)
        if left_j > 0 and not watts:
            return
        left_s = max(0.0, left_j) / (watts or 1.0)
        self._timers[client.name] = loop.call_at_observer(loop.time() + left_s, self._exhaust, client)

    def _exhaust(self, client: ClientLife) -> None:
        del self._timers[client.name]
        self._spent.add(client.name)
        client.compute.spent_s = now_s = self._simulation.loop.time()
        if not any(self._may_train(each, now_s) for each in self._simulation.clients):
            self._simulation.loop.stop()

    def _may_train(self, client: ClientLife, now_s: float) -> bool:
        """Return True if a client has not exhausted its budget, and is up or will be."""
        if client.name in self._spent:
            return False
        return client.up or self._last_arrivals_s.get(client.index, -1.0) > now_s
