"""What `coterie check` says of a scenario: how many clients, how much data, which models, how long."""

import math
import operator
from collections import Counter
from collections.abc import Iterable

from protocols.shared.server_rounds import RoundSettings
from sim.cli.console import between
from sim.learning.engine.graph.samples import Subset
from sim.results import text
from sim.run.live.lives import ClientLife
from sim.run.live.simulation import Simulation
from sim.run.setup.memory import NUMBER_BYTES, models_bytes, own_bytes
from sim.scenario.scenario import Scenario
from sim.scenario.sections.run import ClientBudget

_MESSAGE_BYTES = 30  # of the trace: of times that are all different; others take fewer


def outline(scenario: Scenario, simulation: Simulation) -> list[tuple[str, str]]:
    """Rows of a name and a text; `simulation` was built from the scenario, and not run."""
    rounds = _rounds(scenario, simulation)
    return [
        ("protocol", scenario.protocol.label + (", alone" if scenario.protocol.alone else "")),
        ("clients", _clients(simulation)),
        ("data", _data(scenario, simulation)),
        *([("features", simulation.features)] if simulation.features else []),
        ("model", _models(scenario, simulation)),
        ("time", _time(scenario)),
        ("training", _training(scenario, simulation)),
        *([("rounds", rounds)] if rounds else []),
        ("memory", _memory(scenario, simulation)),
        ("trace", _trace(scenario, simulation)),
        ("threads", str(scenario.engine.threads)),
    ]


def _clients(simulation: Simulation) -> str:
    total, at_first = len(simulation.clients), sum(client.up_at_start for client in simulation.clients)
    moves = Counter(event.kind for event in simulation.events for _ in event.clients)
    parts = [f"{total:,}" if at_first == total else f"{total:,}, {at_first:,} of them from the start"]
    names = {"join": "joins", "leave": "leaves", "crash": "crashes", "rejoin": "rejoins"}
    parts += [f"{count:,} {names[kind] if count > 1 else kind}" for kind, count in moves.items()]
    if simulation.servers:
        parts.append(f"{len(simulation.servers):,} {'servers' if len(simulation.servers) > 1 else 'server'}")
    return ", ".join(parts)


def _data(scenario: Scenario, simulation: Simulation) -> str:
    data = simulation.engine.data
    parts = [_samples(data.train, "training"), _samples(data.validation, "validation")]
    parts.append(_samples(data.test, "test"))
    return f"{scenario.data.name}; samples per client: {', '.join(filter(None, parts))}"


def _samples(subset: Subset, purpose: str) -> str:
    counts = subset.counts
    return f"{between(f'{counts.min():,}', f'{counts.max():,}')} {purpose}" if counts.max() else ""


def _models(scenario: Scenario, simulation: Simulation) -> str:
    numbers: dict[str, tuple[int, int]] = {}  # of parameters and of clients, by the kind of model
    for client in simulation.clients:
        model = client.compute.settings.architecture
        numbers[model.key] = (model.numel, numbers.get(model.key, (0, 0))[1] + 1)
    sizes = [
        f"{numel:,} parameters ({text.size(numel * NUMBER_BYTES)})"
        + (f" at {count:,} clients" if len(numbers) > 1 else "")
        for numel, count in numbers.values()
    ]
    kinds = simulation.architectures
    constants = sum(kind.constant_bytes for kind in kinds)
    sizes += [f"{text.size(constants)} that nothing trains, once for all clients"] if constants else []
    uncounted = sorted({name for kind in kinds for name in kind.uncounted})
    sizes += [f"operations without a formula are estimated: {', '.join(uncounted)}"] if uncounted else []
    return f"{scenario.model.name}; {', '.join(sizes)}"


def _time(scenario: Scenario) -> str:
    run = scenario.run
    ends = [f"{text.duration(run.duration)} virtual"] if run.duration is not None else []
    ends += [f"{run.iterations:,} iterations"] if run.iterations is not None else []
    ends += [f"{_budget(run.budget)} of each client"] if run.budget is not None else []
    ends += [f"{rounds:,} rounds"] if (rounds := _last_round(scenario)) is not None else []
    some = f", {text.share(run.evaluate_share)} of the clients" if run.evaluate_share < 1 else ""
    return f"{' or '.join(ends)}, evaluated every {run.evaluate_every} ({_evaluated(scenario)}{some})"


def _last_round(scenario: Scenario) -> int | None:
    """After how many rounds of the server it ends; None if by no number of them."""
    method = scenario.protocol.settings
    return None if scenario.protocol.alone or not isinstance(method, RoundSettings) else method.rounds


def _evaluated(scenario: Scenario) -> str:
    """How often: at time 0, then regularly, and at the end."""
    run, every = scenario.run, scenario.run.evaluate_every
    if run.duration is not None and every.seconds is not None:
        ends_sooner = (run.iterations, run.budget, _last_round(scenario)) != (None, None, None)
        at_most = "at most " if ends_sooner else ""
        before_the_end = math.ceil(run.duration / every.seconds - 1e-9) - 1
        return f"{at_most}{2 + before_the_end:,} times"
    if run.iterations is not None and every.count is not None:
        return f"at most {1 + -(-run.iterations // every.count):,} times"
    return "unknown how often"


def _budget(budget: ClientBudget) -> str:
    if budget.time is not None:
        return text.duration(budget.time)
    return text.size(budget.bytes) if budget.bytes is not None else f"{budget.limit:,} {budget.kind}"


def _training(scenario: Scenario, simulation: Simulation) -> str:
    steps_s = _steps_s(simulation)
    step = f"{between(text.duration(min(steps_s)), text.duration(max(steps_s)))} each"
    most, by_time = _steps_most(scenario, simulation)
    if most == math.inf:
        return f"unknown how many steps, {step}: what an iteration does is up to the protocol"
    trained = ", if every device trained all the time" if by_time else ""
    return f"at most {most:,} steps, {step}{trained}"


def _steps_s(simulation: Simulation) -> list[float]:
    return [client.compute.step_s * client.device.slowdown for client in simulation.clients]


def _steps_most(scenario: Scenario, simulation: Simulation) -> tuple[float, bool]:
    """How many training steps all clients can do, and whether it is the duration that ends them."""
    clients, duration_s, by_time = simulation.clients, scenario.run.duration, False
    most = [client.compute.steps_left for client in clients]  # of a budget of steps or samples
    if duration_s is not None:
        spans = zip(_up_s(clients, simulation, duration_s), _steps_s(simulation), strict=True)
        in_time = [math.floor(up_s / step_s + 1e-9) for up_s, step_s in spans]
        by_time = any(map(operator.lt, in_time, most))
        most = [*map(min, in_time, most)]
    return sum(most), by_time


def _rounds(scenario: Scenario, simulation: Simulation) -> str:
    """Who cannot answer a server within its patience, however fast the network is; "" if everybody can."""
    settings = scenario.protocol.settings
    if not isinstance(settings, RoundSettings) or scenario.protocol.alone:
        return ""
    epochs = [client.compute.steps_per_epoch for client in simulation.clients]
    steps = [settings.local_steps or settings.local_epochs * each for each in epochs]
    train_s = [count * step_s for count, step_s in zip(steps, _steps_s(simulation), strict=True)]
    late = [seconds for seconds in train_s if seconds > settings.patience]
    if not late:
        return ""
    return (
        f"too long for {len(late):,} of {len(train_s):,} clients: they train for {text.duration(min(late))} "
        f"or more in each, and the server waits for {text.duration(settings.patience)} (protocol.patience)"
    )


def _up_s(clients: Iterable[ClientLife], simulation: Simulation, duration_s: float) -> list[float]:
    """Seconds for which each client is to be up, failures apart."""
    is_up = [client.up_at_start for client in clients]
    total = [0.0] * len(is_up)
    for event in sorted(simulation.events, key=lambda event: event.time_s):
        comes = event.kind in ("join", "rejoin")
        for index in event.clients:
            if comes != is_up[index]:
                is_up[index] = comes
                total[index] += -event.time_s if comes else event.time_s
    return [up_s + duration_s * still for up_s, still in zip(total, is_up, strict=True)]


def _memory(scenario: Scenario, simulation: Simulation) -> str:
    data = simulation.engine.data
    samples = sum(part.x.nbytes + part.y.nbytes for part in (data.train, data.test))
    settings = [client.compute.settings for client in simulation.clients]
    models = models_bytes(settings) + own_bytes(scenario, settings)
    models += sum(architecture.constant_bytes for architecture in simulation.architectures)
    pending = f"up to {text.size(scenario.engine.pending_limit)} of results not computed yet"
    parts = [f"{text.size(models)} of models and optimizers", f"{text.size(samples)} of samples"]
    return (
        ", ".join([*parts, *([pending] if scenario.engine.deferred else [])])
        + "; torch and each call come on top"
    )


def _trace(scenario: Scenario, simulation: Simulation) -> str:
    """How many messages there will be nobody knows before: that is up to the protocol."""
    if not scenario.run.keep_messages:
        return "without messages (run.keep_messages)"
    most, _ = _steps_most(scenario, simulation)
    told = f", so {text.size(_MESSAGE_BYTES * most)} if each such step sends one" if most < math.inf else ""
    return f"up to about {text.size(_MESSAGE_BYTES)} of events.parquet for each message{told}"
