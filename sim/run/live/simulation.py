"""A run in virtual time: the clients' lives, from the first that starts to the last that is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from actors.actor import Actor
from actors.message import Envelope
from actors.supervisor import Supervisor
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.server import Server
from sim.kernel.clock import VirtualLoop
from sim.learning.engine import Engine
from sim.results.trace import Trace
from sim.run.live.clients import ChurnCounts, ClientLife
from sim.run.live.milestones import Milestones
from sim.run.live.servers import ServerLife
from sim.run.measure.observer import Observer
from sim.scenario.scenario import Scenario
from sim.scenario.sections.server import ServerCrash
from sim.world.churn.schedule import ChurnEvent, State, rejoins, schedule
from sim.world.network import SimulatedNetwork
from sim.world.network_model import NetworkModel


class Simulation:
    """Everything that a run consists of; `sim.run.setup.builder` makes it.

    `run` may be called once. Everything that happens lands in `trace`; `observer` measures it from outside.
    """

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        network: SimulatedNetwork,
        engine: Engine,
        events: Sequence[ChurnEvent],
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.network = network
        self.engine = engine
        self.events = events
        self._rejoins = rejoins(events)
        self.clients: list[ClientLife] = []
        self.servers: list[ServerLife] = []
        self.networks: list[tuple[float, NetworkModel]] = []
        """What the network becomes, and when (seconds)."""
        self.settings = scenario.protocol.settings
        self.all_settings: list[tuple[float, ProtocolSettings]] = []
        """What these become, and when (seconds)."""
        self.returns: Mapping[int, tuple[State, float]] = {}
        """With what clients would come back later than `events` say, and seconds between their backups."""
        self.staying: frozenset[tuple[int, float]] = frozenset()
        """ClientLife and time (seconds) of those `events` that do not happen."""
        self.clusters: tuple[int, ...] | None = None
        self.trace = Trace(keep_messages=scenario.run.keep_messages)
        self.churn = ChurnCounts()
        self.has_begun = False
        self.has_lasted = False  # for its whole duration
        self.on_pause: Callable[[], bool] = lambda: False
        """Called when a run has paused, at the end of an instant: whether it is to go on."""
        self.on_end: Callable[[], object] = lambda: None
        """Called when a run has lasted for its whole duration, before its last evaluation."""
        self.on_log: Callable[[str], None] | None = None
        self.supervisor = Supervisor(
            network,
            on_failure=scenario.supervision.on_failure,
            max_restarts=scenario.supervision.max_restarts,
            log=self._log,
            observe=self._supervised,
        )
        self._by_name: dict[str, ClientLife] = {}
        self._milestones = milestones = Milestones(self)
        reported = milestones.reported if milestones.may_be_due else None
        self.observer = Observer(
            scenario, loop, engine, network.counts, self.supervisor, self.trace, reported
        )
        network.listener = self.trace.message

    # --- running --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end. Raises Deadlock, or what an error outside any actor raised; `close` afterwards."""
        if not self.has_begun:
            self.begin()
        self.advance()
        if self.has_lasted:
            self.on_end()
        self.observer.evaluate()

    def begin(self) -> None:
        """Have the clients start as soon as time passes."""
        self.has_begun = True
        self._by_name = {client.name: client for client in self.clients}
        self.observer.by_name = self._by_name
        self.loop.call_soon(self._begin)
        self.observer.evaluate_every(0.0)
        for time_s, network in self.networks:
            self.loop.call_at_observer(time_s, self.network.change, network)
        for time_s, settings in self.all_settings:
            self.loop.call_at_observer(time_s, self._go_on_with, settings)
        for change in self.scenario.change:
            if change.training is not None:
                self.loop.call_at_observer(change.at, self._train_at, change.training.learning_rate)

    def _train_at(self, learning_rate: float) -> None:
        computes = [client.compute for client in self.clients]
        for compute in [*computes, *[each.compute for each in self.servers if each.compute is not None]]:
            compute.change_learning_rate(learning_rate)

    def _go_on_with(self, settings: ProtocolSettings) -> None:
        self.settings = settings
        for actor in [*[client.learner for client in self.clients], *[each.actor for each in self.servers]]:
            if actor is not None:
                actor.settings = settings

    def advance(self) -> None:
        """Go on to the end, or until something stops the loop."""
        loop = self.loop
        self._go_on()
        while loop.paused:
            ends = False
            while loop.paused:  # perhaps in the middle of an instant, and again before it is over
                ends = not loop.run_until(loop.time())
            if ends or not self.on_pause():
                return
            self._go_on()

    def _go_on(self) -> None:
        duration_s = self.scenario.run.duration
        if duration_s is None:
            self.loop.run_forever()
        else:
            self.has_lasted = self.loop.run_until(duration_s)

    def close(self) -> None:
        """End all actors and the loop; nothing is recorded any more."""
        self.network.listener = None
        if self.loop.is_closed():
            return
        self.loop.run_until_complete(self.supervisor.drain())
        self.loop.shutdown()

    def _begin(self) -> None:
        for server in self.servers:
            server.membership.start(self._start_server(server).tell)
            for crash in server.crashes:
                self.loop.call_at(crash.at, self._crash_server, server, crash)
        for client in self.clients:
            if client.up_at_start:
                self._start(client, client.fresh, "start")
                assert client.learner is not None
                client.membership.start(client.learner.tell)
        backups_s = {i: every_s for i, (state, every_s) in self.returns.items() if state == "stale"}
        for index, returns in self._rejoins.items():  # the same for all of them
            for event in returns:
                if event.state == "stale":
                    backups_s[index] = event.backup_every_s
        for index, every_s in backups_s.items():
            self._back_up_every(every_s, self.clients[index])
        schedule(
            self.loop,
            self.events,
            {"join": self._join, "leave": self._leave, "crash": self._crash, "rejoin": self._rejoin},
            but=self.staying,
        )

    # --- the servers' lives ---------------------------------------------------------------------------------

    def _start_server(self, server: ServerLife) -> Server:
        """Start its actor: the one that it was, or a new one."""
        makers = [server.fresh, server.make]  # the last one once, then always the first

        def factory() -> Server:
            server.actor = (makers.pop() if len(makers) > 1 else makers[0])()
            return server.actor

        server.up = True
        server.set_device(up=True)
        self.supervisor.start(factory)
        assert server.actor is not None
        return server.actor

    def _crash_server(self, server: ServerLife, crash: ServerCrash) -> None:
        if crash.back is not None:
            self.loop.call_at(crash.back, self._server_returns, server, crash.state)
        if server.up:
            self._server_goes_down(server, "crash")
        self.supervisor.kill(server.name)  # also one that had failed and was about to be restarted
        server.set_device(up=False)
        if crash.back is None or crash.state == "fresh":
            server.actor = server.membership.on_change = None

    def _server_goes_down(self, server: ServerLife, event: str) -> None:
        server.up = False
        server.membership.crash()
        self.trace.lifecycle(self.loop.time(), server.name, event)

    def _server_returns(self, server: ServerLife, state: str) -> None:
        self.trace.lifecycle(self.loop.time(), server.name, "rejoin", state)
        server.membership.join(self._start_server(server).tell)

    def _server_supervised(self, server: ServerLife, event: str) -> None:
        if event == "failed":
            self._server_goes_down(server, "failed")
            self.loop.call_soon(server.set_device, False)
        elif event == "restarted":
            assert server.actor is not None
            server.up = True
            server.set_device(up=True)
            self.trace.lifecycle(self.loop.time(), server.name, "restarted")
            server.membership.join(server.actor.tell)

    # --- the clients' lives ---------------------------------------------------------------------------------

    def _start(self, client: ClientLife, make: Callable[[], Client], event: str, detail: str = "") -> None:
        """Bring a client up, and have a failed one replaced by a new one if the scenario says so."""
        makers = [client.newcomer, make]  # the last one once, then always the first

        def factory() -> Client:
            client.learner = (makers.pop() if len(makers) > 1 else makers[0])()
            return client.learner

        client.device.set_up()
        client.up = True
        self.trace.lifecycle(self.loop.time(), client.name, event, detail)
        self._supervise(self.supervisor.start(factory))

    def _supervise(self, actor: Actor) -> None:
        assert actor.status.main_task is not None
        self.loop.must_finish(actor.status.main_task, lambda: actor.status.whereabouts)

    def _join(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        self.churn.joined += 1
        self._start(client, client.newcomer, "join")
        self._announce(client)

    def _back_up_every(self, every_s: float, client: ClientLife, number: int = 1) -> None:
        """Save the model of a client at all multiples of `every_s`, while it is up."""

        def save() -> None:
            if client.up and client.learner is not None:
                client.backup = client.params
            self._back_up_every(every_s, client, number + 1)

        self.loop.call_at_observer(number * every_s, save)

    def _rejoin(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        if client.leaving is None:
            self._come_back(client, event)
        else:  # what it still had to do before leaving is cut short
            self.supervisor.kill(client.name)
            client.leaving.add_done_callback(lambda _: self._come_back(client, event))

    def _come_back(self, client: ClientLife, event: ChurnEvent) -> None:
        state, make = client.returning(event.state)
        self.churn.rejoined += 1
        self._start(client, make, "rejoin", state)
        self._announce(client)

    def _announce(self, client: ClientLife) -> None:
        assert client.learner is not None
        client.membership.join(client.learner.tell)

    def _leave(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        if not client.up or client.learner is None:
            self.supervisor.kill(client.name)  # it had failed; if it was about to be restarted, it is no more
            return
        self.churn.left += 1
        client.up = False
        self.trace.lifecycle(self.loop.time(), client.name, "leave")
        client.leaving = self.loop.create_task(self._leave_gracefully(client), name=f"{client.name} leaves")
        self._departed()

    async def _leave_gracefully(self, client: ClientLife) -> None:
        await self.supervisor.stop(client.name)
        # Its last word, on its behalf: anything that it sent afterwards, even in this instant, would tell its
        # peers that it is there after all.
        client.membership.leave(lambda peer, message: self.network.send(Envelope(client.name, peer, message)))
        client.leaving = None
        self._gone(client)

    def _crash(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        if client.up:
            self.churn.crashed += 1
            self._go_down(client, "crash")
        self.supervisor.kill(client.name)  # also one that had failed and was about to be restarted
        self._gone(client)

    def _go_down(self, client: ClientLife, event: str) -> None:
        client.up = False
        client.membership.crash()
        self.trace.lifecycle(self.loop.time(), client.name, event)

    def _gone(self, client: ClientLife) -> None:
        """A client is down: its device stops, and unless it returns with what it had, nothing of it stays."""
        client.device.set_down()
        now = self.loop.time()
        returns = self._rejoins.get(client.index, [])
        later, _ = self.returns.get(client.index, ("fresh", math.inf))
        if next((event.state for event in returns if event.time_s >= now), later) != "keep":
            client.learner = client.membership.on_change = None
            client.compute.forget()
        self._departed()

    def _departed(self) -> None:
        """When all that happens now has happened, see what is left."""
        now = self.loop.time()
        self.loop.call_at_observer(now, self._milestones.check)
        self.loop.call_at_observer(now, self._stop_if_nobody_is_left)

    def _supervised(self, time_s: float, name: str, event: str) -> None:
        """The supervisor's notes; only an actor's own failure, and its restart, are news."""
        client = self._by_name.get(name)
        if client is None:
            for server in self.servers:
                if server.name == name:
                    self._server_supervised(server, event)
            return
        if event == "failed":
            self.churn.failed += 1
            self._go_down(client, "failed")
            # The supervisor cancels the actor's tasks next; until then nothing of it may touch the device.
            self.loop.call_soon(self._gone, client)
        elif event == "restarted":
            self.churn.restarted += 1
            client.up = True
            client.device.set_up()
            self.trace.lifecycle(time_s, name, "restarted")
            self._supervise(self.supervisor.running[name])
            self._announce(client)

    def _stop_if_nobody_is_left(self) -> None:
        """End a run in which nothing that follows could mean anything.

        That is one whose last client has failed, or one that would end by iterations that nobody will do.
        """
        if self.scenario.run.duration is not None and not self.supervisor.failures:
            return
        if any(client.name in self.supervisor.running for client in self.clients):
            return
        now = self.loop.time()
        if not any(event.kind in ("join", "rejoin") for event in self.events if event.time_s > now):
            self.loop.stop()

    def _log(self, line: str) -> None:
        if self.on_log is not None:
            self.on_log(line)

    # --- results --------------------------------------------------------------------------------------------

    @property
    def clients_up(self) -> list[ClientLife]:
        """The clients that are up now."""
        return [client for client in self.clients if client.up]

    @property
    def least_iterations(self) -> int | None:
        """Iterations that all have done who are up and still train; None if nobody does."""
        # A client whose protocol could not be made has none.
        begun = [client for client in self.clients_up if client.learner is not None]
        return min([client.iterations for client in begun if not client.finished], default=None)

    def device_seconds(self) -> Mapping[str, float]:
        """Virtual seconds of all clients' devices, by what they did."""
        devices = [client.device for client in self.clients]
        return {
            "busy": sum(device.busy_s for device in devices),
            "waiting": sum(device.waiting_s for device in devices),
            "down": sum(device.down_s for device in devices),
        }

    def intervals(self) -> list[tuple[str, float, float, str]]:
        """What each device did, those of servers last: (actor, start, end, "busy" or "down"), in seconds."""
        devices = [(client.name, client.device) for client in self.clients]
        devices += [(each.name, each.compute.device) for each in self.servers if each.compute is not None]
        return [
            (name, start, end, state) for name, device in devices for start, end, state in device.intervals()
        ]
