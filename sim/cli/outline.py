"""Output of `coterie check`: clients, data, models, duration and memory of a scenario."""

import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from actors.settings.units import ENERGY
from protocols.shared.server_rounds import RoundSettings
from sim.cli.console import range_text
from sim.core.rules import ClientBudget
from sim.learning.data.dataset import names_in_one_line
from sim.results import text
from sim.run.local_work import IterationWork, short_run_warning
from sim.run.setup.memory import NUMBER_BYTES, method_bytes, models_bytes
from sim.run.setup.plan import RunPlan
from sim.scenario.scenario import Scenario

_MESSAGE_BYTES = 30  # per message in the trace, if all times differ; otherwise fewer


def outline(scenario: Scenario, plan: RunPlan) -> list[tuple[str, str]]:
    """Return the (label, text) rows that `check` prints for a scenario with this plan."""
    rounds, features = _slow_clients_text(scenario, plan), plan.learning.dataset.features
    return [
        ("protocol", scenario.protocol.label + (", alone" if scenario.protocol.alone else "")),
        ("clients", _clients(plan)),
        ("data", _data(scenario, plan)),
        *([("features", features)] if features else []),
        ("model", _models(scenario, plan)),
        ("time", _run_end_text(scenario)),
        ("training", _training(scenario, plan)),
        *_overrides(scenario, plan),
        *([("rounds", rounds)] if rounds else []),
        ("memory", _memory(scenario, plan)),
        ("trace", _trace(scenario, plan)),
        ("threads", str(scenario.engine.threads)),
    ]


def setting_notices(scenario: Scenario, plan: RunPlan) -> list[str]:
    """Return a line for each setting with less effect than its value suggests, or an unintended effect."""
    lines = short_run_warning(_iteration_work_of_clients(plan), scenario.run.duration)
    if not scenario.plugins:
        return [*plan.notices, *lines]
    from sim.run.code_warnings import users_files
    from sim.run.wall_clock import clock_call_warnings

    return [*plan.notices, *lines, *clock_call_warnings(users_files(scenario))]


def _iteration_work_of_clients(plan: RunPlan) -> list[IterationWork]:
    return [
        IterationWork(client.settings, client.steps_per_epoch, client.step_s, client.steps)
        for client in plan.clients
    ]


def _clients(plan: RunPlan) -> str:
    total, at_first = len(plan.clients), sum(client.up_at_start for client in plan.clients)
    moves = Counter(event.kind for event in plan.churn.events for _ in event.clients)
    parts = [f"{total:,}" if at_first == total else f"{total:,}, {at_first:,} of them up at the start"]
    names = {"join": "joins", "leave": "leaves", "crash": "crashes", "rejoin": "rejoins"}
    parts += [f"{count:,} {names[kind] if count > 1 else kind}" for kind, count in moves.items()]
    if servers := len(plan.learning.servers):
        parts.append(f"{servers:,} {'servers' if servers > 1 else 'server'}")
    return ", ".join(parts)


def _data(scenario: Scenario, plan: RunPlan) -> str:
    own = plan.learning.own
    parts = [_samples(own.train, "training"), _samples(own.validation, "validation")]
    parts.append(_samples(own.test, "test"))
    return f"{scenario.data.name}; samples per client: {', '.join(filter(None, parts))}"


def _samples(rows: Sequence[np.ndarray], purpose: str) -> str:
    counts = [len(owned) for owned in rows]
    return f"{range_text(f'{min(counts):,}', f'{max(counts):,}')} {purpose}" if max(counts) else ""


def _models(scenario: Scenario, plan: RunPlan) -> str:
    numbers: dict[str, tuple[int, int]] = {}  # of parameters and of clients, by the kind of model
    for client in plan.clients:
        model = client.work.model
        numbers[model.key] = (model.numel, numbers.get(model.key, (0, 0))[1] + 1)
    sizes = [
        f"{numel:,} parameters ({text.size(numel * NUMBER_BYTES)})"
        + (f" at {count:,} clients" if len(numbers) > 1 else "")
        for numel, count in numbers.values()
    ]
    kinds = plan.learning.models
    constants = sum(kind.constant_bytes for kind in kinds)
    sizes += [f"{text.size(constants)} of constants, shared by all clients"] if constants else []
    uncounted = sorted({name for kind in kinds for name in kind.uncounted})
    sizes += [f"operations without a formula are estimated: {', '.join(uncounted)}"] if uncounted else []
    names = dict.fromkeys(model.name for model in scenario.models)
    return f"{' and '.join(names)}; {', '.join(sizes)}"


def _run_end_text(scenario: Scenario) -> str:
    run = scenario.run
    ends = [f"{text.duration(run.duration)} virtual"] if run.duration is not None else []
    ends += [f"{run.iterations:,} iterations"] if run.iterations is not None else []
    ends += [f"{_budget(run.budget)} of each client"] if run.budget is not None else []
    ends += [f"{rounds:,} rounds"] if (rounds := _last_round(scenario)) is not None else []
    some = f", {text.share(run.evaluate_share)} of the clients" if run.evaluate_share < 1 else ""
    return f"{' or '.join(ends)}, evaluated every {run.evaluate_every} ({_evaluations_text(scenario)}{some})"


def _last_round(scenario: Scenario) -> int | None:
    """Return the number of the server's rounds after which the run ends, or None."""
    method = scenario.protocol.settings
    return None if scenario.protocol.alone or not isinstance(method, RoundSettings) else method.rounds


def _evaluations_text(scenario: Scenario) -> str:
    """Describe the number of evaluations: one at time 0, regular ones, and one at the end."""
    run, every = scenario.run, scenario.run.evaluate_every
    if run.duration is not None and every.seconds is not None:
        ends_sooner = (run.iterations, run.budget, _last_round(scenario)) != (None, None, None)
        at_most = "at most " if ends_sooner else ""
        before_the_end = math.ceil(run.duration / every.seconds - 1e-9) - 1
        return f"{at_most}{2 + before_the_end:,} times"
    if run.iterations is not None and every.count is not None:
        return f"at most {1 + -(-run.iterations // every.count):,} times"
    return "an unknown number of times"


def _budget(budget: ClientBudget) -> str:
    if budget.time is not None:
        return text.duration(budget.time)
    if budget.energy is not None:
        return ENERGY.format(budget.energy)
    return text.size(budget.bytes) if budget.bytes is not None else f"{budget.limit:,} {budget.kind}"


def _training(scenario: Scenario, plan: RunPlan) -> str:
    steps_s = [client.step_s for client in plan.clients]
    step = f"{range_text(text.duration(min(steps_s)), text.duration(max(steps_s)))} each"
    most, by_time = _most_training_steps(scenario, plan)
    if most == math.inf:
        return f"an unknown number of steps, {step}: the protocol decides the steps of an iteration"
    trained = ", if every device trains all the time" if by_time else ""
    return f"at most {most:,} steps, {step}{trained}"


def _overrides(scenario: Scenario, plan: RunPlan) -> Iterator[tuple[str, str]]:
    """Return a row with the clients of each entry of `training.override`."""
    learning = plan.learning
    for number in range(len(scenario.training.override)):
        pairs = zip(learning.names, learning.trainings, strict=True)
        chosen = [name for name, own in pairs if number in own.overrides]
        yield (
            "override",
            f"{number}: {len(chosen):,} of {len(learning.names):,} clients: {names_in_one_line(chosen)}",
        )


def _most_training_steps(scenario: Scenario, plan: RunPlan) -> tuple[float, bool]:
    """Return the maximum training steps of all clients, and True if the duration limits them."""
    duration_s, by_time = scenario.run.duration, False
    most = [client.steps for client in plan.clients]
    if duration_s is not None:
        spans = zip(_up_s(plan, duration_s), plan.clients, strict=True)
        in_time = [math.floor(up_s / client.step_s + 1e-9) for up_s, client in spans]
        by_time = any(map(operator.lt, in_time, most))
        most = [*map(min, in_time, most)]
    return sum(most), by_time


def _slow_clients_text(scenario: Scenario, plan: RunPlan) -> str:
    """Describe the clients that train longer than the server's patience; "" if there are none."""
    settings = scenario.protocol.settings
    if not isinstance(settings, RoundSettings) or scenario.protocol.alone:
        return ""
    train_s = [each.seconds for each in _iteration_work_of_clients(plan)]
    late = [took_s for took_s in train_s if took_s > settings.patience]
    if not late:
        return ""
    return (
        f"too short for {len(late):,} of {len(train_s):,} clients: they train for {text.duration(min(late))} "
        f"or more per round, but the server waits for {text.duration(settings.patience)} (protocol.patience)"
    )


def _up_s(plan: RunPlan, duration_s: float) -> list[float]:
    """Return the seconds for which each client is planned to be up, not counting failures."""
    is_up = [client.up_at_start for client in plan.clients]
    total = [0.0] * len(is_up)
    for event in sorted(plan.churn.events, key=lambda event: event.time_s):
        starts = event.kind in ("join", "rejoin")
        for index in event.clients:
            if starts != is_up[index]:
                is_up[index] = starts
                total[index] += -event.time_s if starts else event.time_s
    return [up_s + duration_s * still for up_s, still in zip(total, is_up, strict=True)]


def _memory(scenario: Scenario, plan: RunPlan) -> str:
    data, work = plan.learning.dataset, plan.learning.work
    samples = sum(part.nbytes for part in (data.train_x, data.train_y, data.test_x, data.test_y))
    models = models_bytes(work) + method_bytes(scenario, work)
    models += sum(model.constant_bytes for model in plan.learning.models)
    pending = f"up to {text.size(scenario.engine.pending_limit)} of pending results"
    parts = [f"{text.size(models)} of models and optimizers", f"{text.size(samples)} of samples"]
    return (
        ", ".join([*parts, *([pending] if scenario.engine.deferred else [])])
        + "; torch and each call need additional memory"
    )


def _trace(scenario: Scenario, plan: RunPlan) -> str:
    """Describe the size of the trace per message. The number of messages depends on the protocol."""
    if not scenario.run.keep_messages:
        return "messages are not kept (run.keep_messages)"
    most, _ = _most_training_steps(scenario, plan)
    total = f", so {text.size(_MESSAGE_BYTES * most)} if each step sends one" if most < math.inf else ""
    return f"up to about {text.size(_MESSAGE_BYTES)} of events.parquet for each message{total}"
