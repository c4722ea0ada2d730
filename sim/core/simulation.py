"""Simulation of a run in virtual time: starts, crashes, departures and returns of clients and servers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from actors.message import Envelope
from actors.status import ActorStatus
from actors.supervisor import Supervisor
from protocols.framework.requirements import ProtocolSettings
from sim.core.evaluations_by_iteration import EvaluationsByIteration
from sim.core.hooks import Hook, Hooks
from sim.core.lives import A, ChurnCounts, ClientLife, Life, ServerLife, least_iterations
from sim.core.observer import Observer
from sim.core.process import run_finished
from sim.core.rules import RunRules
from sim.kernel.clock import VirtualLoop
from sim.learning.architecture import Architecture
from sim.learning.engine import Engine
from sim.results.trace import Trace
from sim.world.churn.schedule import ChurnEvent, State, schedule_callbacks
from sim.world.churn.server_crash import ServerCrash
from sim.world.network import SimulatedNetwork
from sim.world.network_model import NetworkModel

_CLIENT_BYTES = 20_000  # of the objects of one client, about


class Simulation:
    """All parts of a run, as `sim.core.assembly` assembles them.

    Call `run` once. `trace` records all events; `observer` measures models without affecting the run.
    """

    observed_by: ClassVar[type[Observer]] = Observer
    traced_by: ClassVar[type[Trace]] = Trace

    def __init__(
        self,
        rules: RunRules,
        loop: VirtualLoop,
        network: SimulatedNetwork,
        engine: Engine,
        events: Sequence[ChurnEvent],
    ) -> None:
        self.rules = rules
        self.loop = loop
        self.network = network
        self.engine = engine
        self.events = events
        self.clients: list[ClientLife] = []
        self.servers: list[ServerLife] = []
        self.networks: list[tuple[float, NetworkModel]] = []
        """Networks after each change, with the time of the change in seconds."""
        self.settings = rules.settings
        self.staying: frozenset[tuple[int, float]] = frozenset()
        """Pairs (client, time in seconds) of the `events` that are skipped."""
        self.clusters: tuple[int, ...] | None = None
        self.features = ""  # description of the samples, if the user provides the data
        self.trace = self.traced_by(keep_messages=rules.keep_messages)
        self.churn = ChurnCounts()
        self.count_up = 0
        """Number of clients that are up."""
        self.has_begun = False
        self.has_lasted = False  # reached its duration
        self.is_abandoned = False  # no code of the run may run again
        self.is_stopped = False
        """True if the run ends at its next pause."""
        self.hooks = Hooks()
        self.supervisor = Supervisor(
            network,
            on_failure=rules.on_failure,
            max_restarts=rules.max_restarts,
            log=lambda line: self._call_hooks("failed", line),
            observe=self._supervised,
        )
        self._by_name: dict[str, Life[Any]] = {}
        self._by_iteration = by_iteration = EvaluationsByIteration(
            rules, loop, self.clients, events, lambda: self.observer.evaluate()
        )
        reported = by_iteration.reported if by_iteration.may_be_due else None
        self.observer = self.observed_by(
            rules, loop, network, engine, self.supervisor, self.trace, reported, self._evaluated
        )
        network.listener = self.trace.message

    def add_hook(self, hook: Hook) -> None:
        """Add a hook; it is called after the hooks that were added before it."""
        self.hooks.add(hook)
        self.network.listener = self.hooks.listener(self.trace.message, self._call_hooks)

    # --- running --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end. Call `close` afterwards.

        Raises Deadlock, and any error that is raised outside actors.
        """
        if not self.has_begun:
            self.begin()
        self.advance()
        if self.has_lasted:
            self.hooks.call("ended", self)
        self.observer.evaluate(at_end=True)

    def begin(self) -> None:
        """Schedule the start of the clients and all later events."""
        self.has_begun = True
        self.hooks.call("started", self)
        self._by_name = {life.name: life for life in self.lives}
        self.observer.by_name = {client.name: client for client in self.clients}
        self.observer.servers = [server.name for server in self.servers]
        self.loop.call_soon(self._begin)
        self.observer.evaluate_every(self.loop.time())
        self.network.follow_schedules()
        for time_s, network in self.networks:
            self.loop.call_at_observer(time_s, self.network.change, network)
        for time_s, settings in self.rules.later_settings:
            self.loop.call_at_observer(time_s, self._change_settings, settings)
        for time_s, rate in self.rules.learning_rates:
            self.loop.call_at_observer(time_s, self._train_at, rate)

    def _call_hooks(self, name: str, *arguments: Any) -> None:
        """Call hooks from the task of a client; raise their errors in the loop, not in that task."""
        try:
            self.hooks.call(name, *arguments)
        except Exception as error:
            self.loop.call_soon(_raise, error)

    def _evaluated(self) -> None:
        self.hooks.call("evaluated", self)

    def _train_at(self, learning_rate: float) -> None:
        for life in self.lives:
            if life.compute is not None and not life.compute.settings.keeps_rate:
                life.compute.change_learning_rate(learning_rate)

    def _change_settings(self, settings: ProtocolSettings) -> None:
        self.settings = settings
        for life in self.lives:
            if life.actor is not None:
                life.actor.settings = life.own(settings)

    def advance(self) -> None:
        """Continue to the end, or until the loop is stopped."""
        loop = self.loop
        self._resume_loop()
        while loop.paused:
            ends = False
            while loop.paused:  # the pause may come within an instant, more than once
                ends = not loop.run_until(loop.time())
            if ends:
                return
            self.hooks.call("paused", self)
            if self.is_stopped:
                return
            self._resume_loop()

    def _resume_loop(self) -> None:
        duration_s = self.rules.duration_s
        if duration_s is None:
            self.loop.run_forever()
        else:
            self.has_lasted = self.loop.run_until(duration_s)

    def stop(self) -> None:
        """End the run at the end of the current instant."""
        self.is_stopped = True
        self.loop.pause()

    def close(self) -> None:
        """Stop recording, and end all actors and the loop."""
        self.network.listener = None
        if self.loop.is_closed():
            return
        run_finished(self.engine.bytes_held + self.engine.data.bytes_held + _CLIENT_BYTES * len(self.clients))
        if self.is_abandoned:
            self.loop.close()
            return
        self.loop.run_until_complete(self.supervisor.drain())
        self.loop.shutdown()
        self.hooks.call("closed", self)

    def _begin(self) -> None:
        for server in self.servers:
            self._start(server, server.fresh)
            server.membership.start(_actor(server).tell)
            for crash in server.crashes:
                name = f"{server.name} crashes at {crash.at!r}"
                self.loop.call_at_named(crash.at, name, self._crash_server, server, crash)
        for client in self.clients:
            if client.up_at_start:
                self._start(client, client.fresh, "start")
                client.membership.start(_actor(client).tell)
        for client in self.clients:
            if client.backup_every_s is not None:
                self._back_up_every(client.backup_every_s, client)
        schedule_callbacks(
            self.loop,
            self.events,
            {"join": self._join, "leave": self._leave, "crash": self._crash_client, "rejoin": self._rejoin},
            but=self.staying,
        )

    # --- sessions of clients and servers --------------------------------------------------------------------

    def _start(self, life: Life[A], make: Callable[[], A], event: str = "", detail: str = "") -> None:
        """Start an actor. If the rules allow restarts, a new actor replaces it after a failure."""

        def factory() -> A:
            nonlocal make
            actor, make = make(), life.new_actor
            life.replace_actor(actor)
            return actor

        self._set_up(life)
        if event:
            self.trace.lifecycle(self.loop.time(), life.name, event, detail)
        self.supervisor.start(factory)
        self._watch(life)

    def _watch(self, life: Life[A]) -> None:
        """Report a deadlock if a client's task never ends. A server's task may wait forever."""
        status = ActorStatus(_actor(life))
        if isinstance(life, ClientLife):
            assert status.main_task is not None
            self.loop.must_finish(status.main_task, status.whereabouts)

    def _come_back(self, life: Life[A], wanted: State) -> None:
        state, make = life.returning(wanted)
        self.churn.rejoined += isinstance(life, ClientLife)
        self._start(life, make, "rejoin", state)
        life.membership.join(_actor(life).tell)

    def _crash(self, life: Life[A]) -> None:
        if life.up:
            self.churn.crashed += isinstance(life, ClientLife)
            self._go_down(life, "crash")
        self.supervisor.kill(life.name)  # also cancels a pending restart after a failure
        self._gone(life)

    def _set_up(self, life: Life[A]) -> None:
        self.count_up += isinstance(life, ClientLife) and not life.up
        life.set_up()

    def _mark_down(self, life: Life[A]) -> None:
        self.count_up -= isinstance(life, ClientLife) and life.up
        life.up = False

    def _go_down(self, life: Life[A], event: str) -> None:
        self._mark_down(life)
        life.membership.crash()
        self.trace.lifecycle(self.loop.time(), life.name, event)

    def _gone(self, life: Life[A]) -> None:
        now = self.loop.time()
        life.set_down(now)
        if isinstance(life, ClientLife):  # checked after all events of this instant
            self.loop.call_at_observer(now, self._by_iteration.check)
            self.loop.call_at_observer(now, self._stop_without_clients)

    def _supervised(self, time_s: float, name: str, event: str) -> None:
        """Record events of the supervisor: the failure and the restart of an actor."""
        life = self._by_name[name]
        if event == "failed":
            self.churn.failed += isinstance(life, ClientLife)
            self._go_down(life, "failed")
            # The supervisor cancels the actor's tasks next. Until they end, the device must stay as it is.
            self.loop.call_soon(self._gone, life)
        elif event == "restarted":
            self.churn.restarted += isinstance(life, ClientLife)
            self._set_up(life)
            self.trace.lifecycle(time_s, name, "restarted")
            self._watch(life)
            life.membership.join(_actor(life).tell)

    def _crash_server(self, server: ServerLife, crash: ServerCrash) -> None:
        if crash.back is not None:
            self.loop.call_at(crash.back, self._come_back, server, crash.state)
        self._crash(server)

    def _crash_client(self, index: int, event: ChurnEvent) -> None:
        self._crash(self.clients[index])

    def _join(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        self.churn.joined += 1
        self._start(client, client.new_actor, "join")
        client.membership.join(_actor(client).tell)

    def _back_up_every(self, every_s: float, client: ClientLife, number: int = 1) -> None:
        """Save the model of a client at each multiple of `every_s`, while it is up."""

        def save() -> None:
            if client.up and client.actor is not None:
                client.backup = client.params
            self._back_up_every(every_s, client, number + 1)

        self.loop.call_at_observer(number * every_s, save)

    def _rejoin(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        if client.leaving is None:
            self._come_back(client, event.state)
        else:  # an unfinished departure is aborted
            self.supervisor.kill(client.name)
            client.leaving.add_done_callback(lambda _: self._come_back(client, event.state))

    def _leave(self, index: int, event: ChurnEvent) -> None:
        client = self.clients[index]
        if not client.up or client.actor is None:
            self.supervisor.kill(client.name)  # it failed before; cancel a pending restart
            return
        self.churn.left += 1
        self._mark_down(client)
        now = self.loop.time()
        self.trace.lifecycle(now, client.name, "leave")
        client.leaving = self.loop.create_task(self._leave_gracefully(client), name=f"{client.name} leaves")
        self.loop.call_at_observer(now, self._by_iteration.check)
        self.loop.call_at_observer(now, self._stop_without_clients)

    async def _leave_gracefully(self, client: ClientLife) -> None:
        await self.supervisor.stop(client.name)
        # Send the announcement after the actor has stopped: a later message of the actor would tell its
        # peers that the client is still up.
        client.membership.leave(lambda peer, message: self.network.send(Envelope(client.name, peer, message)))
        client.leaving = None
        self._gone(client)

    def _stop_without_clients(self) -> None:
        """End the run if no client runs or will join.

        Applies after the failure of the last client, and to runs that end after iterations of all clients.
        """
        if self.rules.duration_s is not None and not self.supervisor.failures:
            return
        if any(client.name in self.supervisor.running for client in self.clients):
            return
        now = self.loop.time()
        if not any(event.kind in ("join", "rejoin") for event in self.events if event.time_s > now):
            self.loop.stop()

    # --- results --------------------------------------------------------------------------------------------

    @property
    def lives(self) -> list[Life[Any]]:
        """All clients, followed by all servers."""
        return [*self.clients, *self.servers]

    @property
    def architectures(self) -> list[Architecture]:
        """Distinct architectures of the clients' models."""
        models = [client.compute.settings.architecture for client in self.clients]
        return list({model.key: model for model in models}.values())

    @property
    def clients_up(self) -> list[ClientLife]:
        """The clients that are up now."""
        return [client for client in self.clients if client.up]

    @property
    def least_iterations(self) -> int | None:
        """Least iterations of the clients that are up and still train; None without such clients."""
        return least_iterations(self.clients)

    def device_seconds(self) -> Mapping[str, float]:
        """Virtual seconds of all clients' devices, by state."""
        devices = [client.device for client in self.clients]
        return {
            "busy": sum(device.busy_s for device in devices),
            "waiting": sum(device.waiting_s for device in devices),
            "down": sum(device.down_s for device in devices),
        }

    def intervals(self) -> list[tuple[str, float, float, str]]:
        """Intervals of all devices, servers last: (actor, start, end, "busy" or "down"), in seconds."""
        return [
            (life.name, start, end, state)
            for life in self.lives
            if life.compute is not None
            for start, end, state in life.compute.device.intervals()
        ]


def _actor(life: Life[A]) -> A:
    """Actor that was just started."""
    assert life.actor is not None
    return life.actor


def _raise(error: Exception) -> None:
    raise error
