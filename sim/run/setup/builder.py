"""Puts the parts of a simulation together."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, assert_never, cast

import torch

from protocols.framework import vectors
from protocols.framework.client import Client, form_of
from protocols.framework.compute import Compute
from protocols.framework.context import NO_LINKS, ClientContext, NewcomersStart, Noise
from protocols.framework.server import Server, ServerPlan
from protocols.membership.view import AnnouncedView
from sim.core.budget import BudgetedCompute
from sim.core.client_training import DeviceCompute
from sim.core.learning_settings import LearningSettings
from sim.core.lives import ClientLife, ServerLife
from sim.core.message_contents import has_non_finite
from sim.core.rules import RunRules
from sim.core.simulation import Simulation
from sim.files.data_folder import DataFolder
from sim.kernel.clock import VirtualLoop
from sim.kernel.random import key, stream
from sim.learning.architecture import Architecture
from sim.learning.engine import Engine, Vector
from sim.learning.engine.backends.precision import tensor_cores
from sim.learning.engine.memory import explained
from sim.learning.metrics import metrics_of
from sim.run.process import quiet_collector, spare, threads
from sim.run.setup.engine import (
    MakeWorkers,
    choose_device,
    decided,
    first_device,
    make_engine,
    require_precision,
    room_of,
    threads_here,
    with_engine,
)
from sim.run.setup.learning import load_learning
from sim.run.setup.plan import RunPlan, planned, users_faults
from sim.scenario.protocol_errors import made
from sim.scenario.scenario import Scenario
from sim.scenario.sections.change import changed_settings
from sim.scenario.sections.clients import FreshStart, MeanStart, PeerStart
from sim.world.churn.schedule import rejoins
from sim.world.devices.device import Device
from sim.world.membership.kinds import MembershipContext, ViewOf
from sim.world.network import SimulatedNetwork
from sim.world.network_model import NetworkModel


@dataclass(frozen=True)
class World:
    """The classes that a simulation is built of, where there are several."""

    simulation: type[Simulation] = Simulation
    loop: Callable[[int | None], VirtualLoop] = VirtualLoop
    """Makes the loop, with the key that ties are shuffled by."""
    network: Callable[[Any, int, NetworkModel], SimulatedNetwork] = SimulatedNetwork
    compute: type[DeviceCompute] = DeviceCompute
    workers: MakeWorkers = threads_here


SIMULATED = World()


@dataclass(frozen=True)
class PreparedRun:
    """A simulation at virtual time 0, and its scenario with the backend and the threads decided."""

    scenario: Scenario
    simulation: Simulation


def build(
    scenario: Scenario,
    data_dir: Path | None = None,
    device: str = "auto",
    *,
    download: bool = True,
    world: World = SIMULATED,
) -> Simulation:
    """The simulation of a scenario at virtual time 0. Raises UserError."""
    return prepare(scenario, data_dir, device, download=download, world=world).simulation


def prepare(
    scenario: Scenario,
    data_dir: Path | None = None,
    device: str = "auto",
    *,
    download: bool = True,
    world: World = SIMULATED,
) -> PreparedRun:
    """A run of a scenario at virtual time 0. Raises UserError."""
    with users_faults(scenario):
        folder, devices = DataFolder(data_dir, download), scenario.engine.devices
        on = choose_device(device) if devices is None else first_device(devices, device)
        builder = _Builder(scenario, folder, on, world)
        return PreparedRun(builder.scenario, builder.simulation())


def try_out(scenario: Scenario, folder: DataFolder) -> RunPlan:
    """Build everything without running it, on the CPU; the plan of it. UserError."""
    devices = scenario.engine.devices
    require_precision(scenario, choose_device("auto") if devices is None else first_device(devices, "auto"))
    # Nothing is computed: which device there is and how fast it is does not matter any more.
    way = "auto" if scenario.engine.way == "fastest" else scenario.engine.way
    settled = with_engine(scenario, way=way, precision="float32", threads=1, devices=None)
    with users_faults(settled):
        builder = _Builder(settled, folder, choose_device("cpu"), SIMULATED)
        simulation = builder.simulation()
    with closing(simulation):
        simulation.clients[0].fresh()
        for server in simulation.servers:
            server.fresh()
    return builder.plan


@contextmanager
def built(
    scenario: Scenario, data_dir: Path | None, device: str, world: World = SIMULATED
) -> Iterator[PreparedRun]:
    """A run at virtual time 0, in a process that is set up for it: see `sim.run.process`. UserError."""
    with (
        quiet_collector(),
        threads(scenario.engine.threads),
        tensor_cores(scenario.engine.precision),
    ):
        prepared = prepare(scenario, data_dir, device, world=world)
        with closing(prepared.simulation):
            spare()  # with the modules that building it has loaded
            yield prepared


def _key_of_ties(scenario: Scenario) -> int | None:
    """The key by which events of the same time are shuffled; None where they are not."""
    ties = scenario.run.shuffle_ties
    if ties is False:
        return None
    return key(scenario.run.seed, "ties") if ties is True else key(ties, "order of ties")


def newcomers_start(scenario: Scenario) -> NewcomersStart:
    """What newcomers start from."""
    match scenario.clients.newcomers:
        case FreshStart():
            return NewcomersStart()
        case PeerStart(patience=patience):
            return NewcomersStart(1, patience)
        case MeanStart(peers=peers, patience=patience):
            return NewcomersStart(peers, patience)


class _Builder:
    """Makes the parts of one simulation, in the order in which they need each other."""

    def __init__(self, scenario: Scenario, folder: DataFolder, device: torch.device, world: World) -> None:
        self.world = world
        self.seed = scenario.run.seed
        with explained("the data and the models at the start", device):
            self.plan = plan = planned(scenario, folder, room=room_of(device))
            self.learning = learning = load_learning(scenario, plan.learning, device)
            scenario = decided(scenario, learning)
            notices = tuple(dict.fromkeys([*scenario.notices, *plan.notices]))
            self.scenario = scenario = replace(scenario, notices=notices)
            self.engine = make_engine(scenario, learning, world.workers)
            self.initial = self._initial_parameters()
        self.trainable = {name: _trainable(self.engine, own) for name, own in learning.kinds.items()}
        self.names, servers = list(plan.learning.names), plan.learning.servers
        self.rejoins = rejoins(plan.churn.events)
        self.absent = dict.fromkeys([self.names[index] for index in plan.churn.absent])
        up = [name for name in self.names if name not in self.absent] + [server.name for server in servers]
        self.loop = world.loop(_key_of_ties(scenario))
        self.view_of = self._views(up)
        self.network = world.network(self.loop, self.seed, plan.network)
        if scenario.network.finite:
            self.network.refuses = has_non_finite
        self.network.expect([*self.names, *[server.name for server in servers]])

    def simulation(self) -> Simulation:
        """The finished simulation; if something is refused half-way, the loop is closed."""
        try:
            simulation = self.world.simulation(
                self._rules(), self.loop, self.network, self.engine, self.plan.churn.events
            )
            plan = self.plan
            simulation.networks, simulation.staying = plan.networks, plan.churn.staying
            simulation.clusters = plan.learning.clusters
            simulation.features = plan.learning.dataset.features
            simulation.churn.turned_away = plan.churn.turned_away
            shared, make = self._shared_context(simulation), self._maker_of_clients(simulation)
            simulation.clients += [
                self._client(shared, make, index, name) for index, name in enumerate(self.names)
            ]
            simulation.servers = [
                self._server(shared, simulation, number, server)
                for number, server in enumerate(plan.learning.servers)
            ]
            return simulation
        except BaseException:
            self.loop.close()
            raise

    def _maker_of_clients(self, simulation: Simulation) -> Callable[[ClientLife], Client]:
        """Makes the actors of clients, as the settings are by then."""
        method = self.scenario.protocol.method

        def make(life: ClientLife) -> Client:
            settings = simulation.settings
            return made(form_of(method, settings), life.name, life.context, life.compute, settings)

        return make

    def _rules(self) -> RunRules:
        scenario, objective = self.scenario, self.plan.learning.objective
        run, settings, task = scenario.run, scenario.protocol.settings, scenario.data.task
        rates = [(each.at, each.training.learning_rate) for each in scenario.change if each.training]
        return RunRules(
            settings=settings,
            evaluate_every=run.evaluate_every,
            task=task,
            metrics=[metric.name for metric in metrics_of(task, run.metrics or (), objective)],
            seed=run.seed,
            duration_s=run.duration,
            iterations=run.iterations,
            budget=run.budget,
            converged=run.converged,
            evaluate_share=run.evaluate_share,
            keep_messages=run.keep_messages,
            on_failure=scenario.supervision.on_failure,
            max_restarts=scenario.supervision.max_restarts,
            learning_rates=rates,
            later_settings=changed_settings(settings, scenario.change),
        )

    def _views(self, up: list[str]) -> ViewOf:
        """The function that makes each actor's view of the others."""
        if self.scenario.protocol.alone:  # nobody to learn of, nor to be told by a service
            return lambda name, neighbours: AnnouncedView(name, ())
        return self.scenario.network.membership.views(
            MembershipContext(self.loop, self.seed, up, tuple(self.absent))
        )

    def _initial_parameters(self) -> list[Vector]:
        """Each client's x_0: the same vector for all that have the same model, or each its own, or both."""
        kind = self.scenario.model.initialisation

        def draw(model: Architecture, *names: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(key(self.seed, "initial parameters", *names) >> 1)
            return model.initial(generator)

        def own_head(model: Architecture, index: int) -> torch.Tensor:
            start, backbone = draw(model, index), model.part("backbone")
            start[backbone] = common[model.key][backbone]
            return start

        models = [own.architecture for own in self.learning.settings]
        common = {name: draw(own.architecture) for name, own in self.learning.kinds.items()}
        match kind:
            case "shared":
                alike = {name: self.engine.vector(start) for name, start in common.items()}
                return [alike[model.key] for model in models]
            case "independent":
                return [self.engine.vector(draw(model, index)) for index, model in enumerate(models)]
            case "shared-backbone":
                return [self.engine.vector(own_head(model, index)) for index, model in enumerate(models)]
            case _:
                assert_never(kind)

    def _shared_context(self, simulation: Simulation) -> dict[str, Any]:
        """What the contexts of all clients and servers have in common: the same objects, not equal ones."""
        noises: dict[str, Noise] = {}
        seed, observer = self.seed, simulation.observer

        def noise(name: str) -> Noise:
            if name not in noises:
                noises[name] = Noise(stream(seed, "noise", name))
            return noises[name]

        return {
            "transport": self.network,
            "shared_seed": key(seed, "shared by all clients"),
            "observe": observer.observe,
            "newcomers": newcomers_start(self.scenario),
            "alone": self.scenario.protocol.alone,
            "noise": noise,
            "report": observer.report,
        }

    def _context(
        self, shared: dict[str, Any], name: str, number: int | None = None, compute: Compute | None = None
    ) -> ClientContext:
        """number: of a client; servers have the first one's model. compute: of a server that has some."""
        model = self.learning.settings[number or 0].architecture
        return ClientContext(
            membership=self.view_of(name, self.plan.neighbours[name]),
            rng=stream(self.seed, "actor", name),
            links=self.plan.links.get(name, NO_LINKS),
            trainable=self.trainable[model.key],
            compute=compute,
            model=model,
            number=number,
            **shared,
        )

    def _client(
        self, shared: dict[str, Any], make: Callable[[ClientLife], Client], index: int, name: str
    ) -> ClientLife:
        returns = self.rejoins.get(index, ())
        later, every_s = self.plan.churn.returns.get(index, ("fresh", 0.0))
        backups_s = [each.backup_every_s for each in returns if each.state == "stale"]
        backups_s += [every_s] if later == "stale" else []
        return ClientLife(
            name,
            self._context(shared, name, index),
            make,
            returns=tuple([(each.time_s, each.state) for each in returns]),
            later=later,
            compute=self._compute(index, name),
            index=index,
            bytes_sent=self.network.bytes_sent,
            up_at_start=self.plan.clients[index].up_at_start,
            backup_every_s=backups_s[0] if backups_s else None,
        )

    def _compute(self, index: int, name: str) -> DeviceCompute:
        settings, plan, network = self.learning.settings[index], self.plan.clients[index], self.network
        device = Device(self.loop, plan.slowness, up=plan.up_at_start)
        given = (self.engine, settings, index, device, plan.cost, self.initial[index])
        budget = self.scenario.run.budget
        if budget is None:
            return self.world.compute(*given)
        return BudgetedCompute(*given, budget=budget, bytes_sent=lambda: network.bytes_sent[name])

    def _server(
        self, shared: dict[str, Any], simulation: Simulation, number: int, plan: ServerPlan
    ) -> ServerLife:
        section, initial = self.scenario.server, self.initial[0]
        compute = None
        if section is not None and section.samples:
            owner, learning = len(self.names) + number, self.learning.settings[0]
            device = Device(self.loop)
            compute = self.world.compute(self.engine, learning, owner, device, section.cost_model(), initial)
        crashes = [] if section is None else section.crashes_of(number, len(self.plan.learning.servers))

        def make(life: ServerLife) -> Server:
            return made(plan.kind, life.name, life.context, simulation.settings, initial)

        returns = [(crash.back, crash.state) for crash in crashes if crash.back is not None]
        context = self._context(shared, plan.name, compute=compute)
        return ServerLife(plan.name, context, make, compute, returns, crashes=crashes)


def _trainable(engine: Engine, settings: LearningSettings) -> Callable[[vectors.Vector], vectors.Vector]:
    """Makes of a vector of this model one without what is not trained."""
    return lambda of: engine.trainable(cast(Vector, of), settings.architecture)
