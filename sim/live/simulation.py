"""Part of a simulation that one process of a live run executes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from protocols.framework import vectors
from protocols.framework.compute import Reduction, Samples, TrainRequest
from sim.core.assembly import Classes
from sim.core.client_training import DeviceCompute
from sim.core.lives import ClientLife, group_by_architecture
from sim.core.observer import Observer
from sim.core.simulation import Simulation
from sim.live.loop import LiveLoop
from sim.live.network import LiveNetwork
from sim.live.reporting import StreamedTrace
from sim.results.trace import Trace
from sim.world.churn.schedule import ChurnEvent
from sim.world.distributions import Constant
from sim.world.network_model import ConnectionModel, NetworkModel

_NOTHING_ADDED = NetworkModel(ConnectionModel(Constant(value=0.0)))


class LaterObserver(Observer):
    """Observer that stores the models at evaluations, and measures them at the end of the run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept: list[Callable[[], None]] = []
        self.at_once = False
        """True to measure models immediately, in a process that may be killed before the end."""

    def _evaluate_models(
        self, now: float, up: Sequence[ClientLife], chosen: Container[int], *, again: bool = False
    ) -> None:
        for clients in group_by_architecture(up):
            stored = {client.name: self._shown([client]) for client in clients if client.index in chosen}

            def stored_models(
                of: Sequence[ClientLife], stored: Mapping[str, Any] = stored
            ) -> Sequence[Mapping[str, Any]] | None:
                found = [stored[client.name] for client in of]
                return None if None in found else [each[0] for each in found]

            params = [client.params for client in clients]
            self._kept.append(
                partial(self._evaluate_alike, now, clients, params, chosen, again, stored_models)
            )
        if self.at_once:
            self.measure_kept()

    def measure_kept(self) -> None:
        kept, self._kept = self._kept, []
        for measure in kept:
            measure()


class LiveSimulation(Simulation):
    """Simulation with some clients and servers in this process, and the others in other processes."""

    observed_by: ClassVar[type[Observer]] = LaterObserver
    traced_by: ClassVar[type[Trace]] = StreamedTrace
    loop: LiveLoop
    network: LiveNetwork
    observer: LaterObserver
    trace: StreamedTrace

    def keep_only(self, names: Container[str], began_s: float, *, ends_by_crash: bool) -> None:
        """Keep only these actors in this process. began_s: the start of this process, in seconds of the run.

        Events before that time do not happen in this process. ends_by_crash: a crash ends this process; a
        client that rejoins with state has its last stored model, because its other state was in the killed
        process.
        """
        if not began_s:
            self.network.expect_up([client.name for client in self.clients if client.up_at_start])
            self.network.expect_up([server.name for server in self.servers])
        for client in self.clients:
            if client.name not in names:
                client.up_at_start, client.backup_every_s = False, None
            elif began_s:
                client.up_at_start = False
        self.servers = [server for server in self.servers if server.name in names]
        own = [client.index for client in self.clients if client.name in names]
        self.events = _events_of(own, self.events, began_s)
        if ends_by_crash:
            self.events = [
                replace(event, state="fresh" if event.state == "fresh" else "stale")
                for event in self.events
                if event.kind != "crash"
            ]

    def rehearse(self, names: Container[str]) -> None:
        """Run one training step as a warm-up with each model of these clients, and discard its result."""
        engine = self.engine.unused()
        for clients in group_by_architecture([client for client in self.clients if client.name in names]):
            clients[0].compute.rehearse(engine)


class RawLiveSimulation(LiveSimulation):
    """Live simulation without simulated network properties."""

    def begin(self) -> None:
        self.networks = []
        super().begin()


def _events_of(clients: Sequence[int], events: Sequence[ChurnEvent], began_s: float) -> list[ChurnEvent]:
    """Return these clients' events from `began_s` on, and an arrival at `began_s` if they joined before."""
    found = []
    for client in clients:
        own = [replace(event, clients=(client,)) for event in events if client in event.clients]
        past = [event for event in own if event.time_s < began_s]
        if past and past[-1].kind in ("join", "rejoin"):
            found.append(replace(past[-1], time_s=began_s))
        found += [event for event in own if event.time_s >= began_s]
    return sorted(found, key=lambda event: event.time_s)


class RawCompute(DeviceCompute):
    """Computing in real time: each job is computed immediately, and the device is busy for that time."""

    _submits_early = False  # each job is computed alone, at its end

    async def _really(self, result: Any) -> Any:
        loop = self.device.loop
        assert isinstance(loop, LiveLoop)
        began_s = loop.elapsed_s
        for each in result.values() if isinstance(result, dict) else [result]:
            each.tensor()
        await self.device.run(loop.elapsed_s - began_s)
        return result

    def _take_time(self, samples: int, *, training: bool = True) -> Any:
        return self.device.run(0.0)

    async def train(self, request: TrainRequest) -> vectors.Vector:
        return await self._really(await super().train(request))

    async def gradient(
        self, at: vectors.Vector, on: Samples = "batch", weights: Any = None
    ) -> vectors.Vector:
        return await self._really(await super().gradient(at, on, weights))

    async def loss(
        self, of: vectors.Vector, on: Samples, reduction: Reduction = "mean", weights: Any = None
    ) -> vectors.Scalar | vectors.Vector:
        return await self._really(await super().loss(of, on, reduction, weights))

    async def class_features(self, of: vectors.Vector) -> dict[int, vectors.Vector]:
        return await self._really(await super().class_features(of))

    async def predict(self, of: vectors.Vector, inputs: Any) -> vectors.Vector:
        return await self._really(await super().predict(of, inputs))


def live_classes(elapsed: Callable[[], float], *, raw: bool) -> Classes:
    """Return the classes of a live run. elapsed: see `LiveLoop`. raw: computing takes its real time."""

    def loop(shuffle: int | None) -> LiveLoop:
        return LiveLoop(elapsed, raw=raw)

    def bare_network(loop: LiveLoop, seed: int, model: NetworkModel) -> LiveNetwork:
        return LiveNetwork(loop, seed, _NOTHING_ADDED)

    if raw:
        return Classes(simulation=RawLiveSimulation, loop=loop, network=bare_network, compute=RawCompute)
    return Classes(simulation=LiveSimulation, loop=loop, network=LiveNetwork)
