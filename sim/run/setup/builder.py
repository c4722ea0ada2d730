"""Assembly of a simulation from its parts."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from actors.source_location import location_text, traceback_frames
from protocols.framework.context import NO_LINKS, NewcomersStart
from protocols.framework.server import ServerPlan
from sim.core.assembly import Classes, ClientParts, ServerParts, SimulationParts, assemble
from sim.core.message_contents import has_non_finite
from sim.core.process import exclude_from_collection, simulating
from sim.core.rules import RunRules
from sim.core.simulation import Simulation
from sim.errors import FAILURES, UserError
from sim.files.data_folder import DataFolder
from sim.kernel.random import key
from sim.learning.architecture import Architecture
from sim.learning.engine import Engine, Vector
from sim.learning.engine.backends.precision import allowing_tf32
from sim.learning.engine.memory import explaining_out_of_memory
from sim.learning.metrics import selected_metrics
from sim.plugins.section import first_error_line
from sim.results.measures import add_measure
from sim.run.energy.budgets import add_energy_meter, with_meters
from sim.run.energy.meter import EnergyMeter
from sim.run.save.provenance import conditions_of_run
from sim.run.setup.engine import (
    MakeWorkers,
    choose_device,
    decide_engine_settings,
    device_memory,
    first_device,
    local_workers,
    require_precision,
)
from sim.run.setup.learning import Learning, load_learning
from sim.run.setup.plan import RunPlan, plan_run
from sim.scenario.protocol_errors import create_actor
from sim.scenario.scenario import Scenario
from sim.scenario.sections.change import changed_settings
from sim.scenario.sections.clients import FreshStart, MeanStart, PeerStart

SIMULATED = Classes()


@dataclass(frozen=True)
class PreparedRun:
    """A simulation at virtual time 0, and its scenario with the backend and the threads decided."""

    scenario: Scenario
    simulation: Simulation
    meter: EnergyMeter | None = None
    """Meter of the energy, if the scenario states constants for it."""
    notices: tuple[str, ...] = ()
    """Further lines for the user, in addition to those from reading the scenario."""

    @property
    def threads(self) -> int:
        """Number of threads of torch."""
        threads = self.scenario.engine.threads
        assert threads != "fastest", "already measured"
        return threads

    @cached_property
    def made_by(self) -> dict[str, str]:
        """Code, data, device and libraries that affect the run's values, in addition to the scenario."""
        engine = self.simulation.engine
        return conditions_of_run(self.scenario, engine.device, engine.data)


def build(
    scenario: Scenario,
    data_dir: Path | None = None,
    device: str = "auto",
    *,
    download: bool = True,
    classes: Classes = SIMULATED,
    workers: MakeWorkers = local_workers,
) -> Simulation:
    """Return the simulation of a scenario at virtual time 0. Raises UserError."""
    return prepare(scenario, data_dir, device, download=download, classes=classes, workers=workers).simulation


def prepare(
    scenario: Scenario,
    data_dir: Path | None = None,
    device: str = "auto",
    *,
    download: bool = True,
    classes: Classes = SIMULATED,
    workers: MakeWorkers = local_workers,
) -> PreparedRun:
    """Return a run of a scenario at virtual time 0. Raises UserError."""
    with _raising_user_errors(scenario):
        folder, devices = DataFolder(data_dir, download), scenario.engine.devices
        on = choose_device(device) if devices is None else first_device(devices, device)
        builder = _Builder(scenario, folder, on, classes, workers)
        new = tuple([line for line in builder.scenario.notices if line not in scenario.notices])
        simulation = builder.simulation()
        return PreparedRun(
            builder.scenario, simulation, add_energy_meter(simulation, builder.plan.energy), new
        )


def plan_by_building(scenario: Scenario, folder: DataFolder) -> RunPlan:
    """Build a simulation on the CPU without running it, and return its plan. Raises UserError."""
    devices = scenario.engine.devices
    require_precision(scenario, choose_device("auto") if devices is None else first_device(devices, "auto"))
    # Nothing is computed, so the device and its speed do not matter.
    way = "auto" if scenario.engine.way == "fastest" else scenario.engine.way
    on_cpu = with_engine(scenario, way=way, precision="float32", threads=1, devices=None)
    with _raising_user_errors(on_cpu):
        builder = _Builder(on_cpu, folder, choose_device("cpu"))
        simulation = builder.simulation()
    with closing(simulation):
        simulation.clients[0].fresh()
        for server in simulation.servers:
            server.fresh()
    return builder.plan


@contextmanager
def building_process(
    scenario: Scenario,
    data_dir: Path | None,
    device: str,
    classes: Classes = SIMULATED,
    workers: MakeWorkers = local_workers,
) -> Iterator[PreparedRun]:
    """Return a run at virtual time 0, and set up the process: see `sim.core.process`. Raises UserError."""
    with (
        simulating(scenario.engine.threads),
        allowing_tf32(scenario.engine.precision),
    ):
        prepared = prepare(scenario, data_dir, device, classes=classes, workers=workers)
        with closing(prepared.simulation):
            exclude_from_collection()  # including the modules that were loaded meanwhile
            yield prepared


@contextmanager
def _raising_user_errors(scenario: Scenario) -> Iterator[None]:
    """Raise errors of the user's code before the first step as a UserError that names the line."""
    try:
        yield
    except UserError:
        raise
    except FAILURES as error:
        plugins = [(each, each.sources) for each in scenario.plugins]
        files = {str(own.root / name): each for each, own in plugins if own is not None for name in own.files}
        frames = [frame for frame in traceback_frames(error) if frame[0] in files]
        if not frames:  # an error of coterie
            raise
        about = files[frames[-1][0]].key_and_value
        raise UserError(f"{about}: {location_text(*frames[-1])}: {first_error_line(error)}") from error


def _key_of_ties(scenario: Scenario) -> int | None:
    """Return the key by which events of the same time are shuffled, or None."""
    ties = scenario.run.shuffle_ties
    if ties is False:
        return None
    return key(scenario.run.seed, "ties") if ties is True else key(ties, "order of ties")


def newcomers_start(scenario: Scenario) -> NewcomersStart:
    """Return the source of the model with which a newcomer starts."""
    match scenario.clients.newcomers:
        case FreshStart():
            return NewcomersStart()
        case PeerStart(patience=patience):
            return NewcomersStart(1, patience)
        case MeanStart(peers=peers, patience=patience):
            return NewcomersStart(peers, patience)


def with_engine(scenario: Scenario, **settings: str | int | None) -> Scenario:
    """Return the scenario with other, valid settings of its engine."""
    return replace(scenario, engine=scenario.engine.model_copy(update=settings))


def _engine_of(
    scenario: Scenario,
    learning: Learning,
    workers: MakeWorkers,
    engine: Callable[..., Engine],
) -> Engine:
    """Return the engine of a scenario with chosen backend and threads. Raises UserError without workers."""
    return engine(
        learning.data,
        seed=scenario.run.seed,
        device=learning.device,
        backend=scenario.engine.way,
        precision=scenario.engine.precision,
        micro_batch=scenario.engine.micro_batch,
        deferred=scenario.engine.deferred,
        pending_limit_bytes=scenario.engine.pending_limit,
        workers=workers(scenario, learning.data),
    )


class _Builder:
    """Builder of the parts of a simulation, in the order of their dependencies."""

    def __init__(
        self,
        scenario: Scenario,
        folder: DataFolder,
        device: torch.device,
        classes: Classes = SIMULATED,
        workers: MakeWorkers = local_workers,
    ) -> None:
        with explaining_out_of_memory("the data and the models at the start", device):
            self.plan = plan = plan_run(scenario, folder, room=device_memory(device))
            self.learning = learning = load_learning(scenario, plan.learning, device)
            chosen = decide_engine_settings(scenario, learning)
            scenario = with_engine(scenario, **chosen)
            notices = tuple(dict.fromkeys([*scenario.notices, *plan.notices]))
            self.scenario = scenario = replace(scenario, notices=notices)
            self.engine = _engine_of(scenario, learning, workers, classes.engine)
            self.initial = self._initial_parameters()
        self.classes = classes

    def simulation(self) -> Simulation:
        return assemble(self._parts())

    def _parts(self) -> SimulationParts:
        scenario, plan = self.scenario, self.plan
        return SimulationParts(
            rules=_rules(scenario, plan),
            method=scenario.protocol.method,
            engine=self.engine,
            clients=[self._client(index, name) for index, name in enumerate(plan.learning.names)],
            network=plan.network,
            servers=[self._server(number, server) for number, server in enumerate(plan.learning.servers)],
            networks=plan.networks,
            churn=plan.churn.events,
            staying=plan.churn.staying,
            membership=scenario.network.membership,
            newcomers=newcomers_start(scenario),
            alone=scenario.protocol.alone,
            tie_key=_key_of_ties(scenario),
            refuses=has_non_finite if scenario.network.finite else None,
            make=create_actor,
            classes=with_meters(self.classes, plan.energy),
            clusters=plan.learning.clusters,
            turned_away=plan.churn.turned_away,
            features=plan.learning.dataset.features,
        )

    def _client(self, index: int, name: str) -> ClientParts:
        plan, client = self.plan, self.plan.clients[index]
        later, backup_every_s = plan.churn.returns.get(index, ("fresh", 0.0))
        return ClientParts(
            name=name,
            training=self.learning.settings[index],
            cost=client.cost,
            start=self.initial[index],
            neighbours=plan.neighbours[name],
            slowness=client.slowness,
            links=plan.links.get(name, NO_LINKS),
            up_at_start=client.up_at_start,
            model_group=plan.learning.groups[index],
            later=later,
            backup_every_s=backup_every_s,
            own_settings=plan.learning.trainings[index].own,
        )

    def _server(self, number: int, server: ServerPlan) -> ServerParts:
        section, plan = self.scenario.server, self.plan
        return ServerParts(
            name=server.name,
            kind=server.kind,
            start=self.initial[0],
            neighbours=plan.neighbours[server.name],
            cost=section.cost_model() if section is not None and section.samples else None,
            training=self.learning.of_servers,
            crashes=() if section is None else section.crashes_of(number, len(plan.learning.servers)),
        )

    def _initial_parameters(self) -> list[Vector]:
        """Return each client's x_0: shared by clients with the same model, independent, or partly shared."""
        sections, models = self.scenario.models, [own.architecture for own in self.learning.settings]

        def drawn(model: Architecture, *client: int) -> torch.Tensor:
            return model.starting_parameters(self.scenario.run.seed, *client)

        common = {key: drawn(own.architecture) for key, own in self.learning.kinds.items()}

        def separate(index: int, model: Architecture, kind: str) -> torch.Tensor:
            start = drawn(model, index)
            if kind == "shared-backbone":
                backbone = model.part("backbone")
                start[backbone] = common[model.key][backbone]
            return start

        shared = dict[str, Vector]()
        found = []
        for index, (model, group) in enumerate(zip(models, self.plan.learning.groups, strict=True)):
            kind = sections[group].initialisation
            if kind != "shared":
                found.append(self.engine.vector(separate(index, model, kind)))
                continue
            if model.key not in shared:
                shared[model.key] = self.engine.vector(common[model.key])
            found.append(shared[model.key])
        return found


def _rules(scenario: Scenario, plan: RunPlan) -> RunRules:
    run, settings, task = scenario.run, scenario.protocol.settings, scenario.data.task
    metrics = selected_metrics(task, run.metrics or (), plan.learning.objective)
    own = [each.metric for each in run.measures or ()]
    for each in run.measures or ():
        add_measure(each.measure)
    rates = [(each.at, each.training.learning_rate) for each in scenario.change if each.training]
    return RunRules(
        settings=settings,
        evaluate_every_s=run.evaluate_every.seconds,
        evaluate_every_iterations=run.evaluate_every.count,
        task=task,
        metrics=[metric.name for metric in (*own, *metrics)],
        own_metrics=own,
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
