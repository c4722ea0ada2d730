"""Models of the clients at a virtual time of an earlier run, as torch modules and files."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from protocols.framework.client import Client
from sim.core.lives import ClientLife, group_by_architecture
from sim.core.personalized_models import Ensemble, evaluated_models
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.kernel.clock import Deadlock
from sim.learning.architecture import Architecture
from sim.learning.engine import Vector
from sim.learning.evaluation import checksums_and_finite
from sim.learning.language.base import temporary_path_beside
from sim.learning.models.plain import plain_module, untied_state_dict
from sim.learning.models.transformer import Lora
from sim.results.store.output_dir import READS
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import CHECKSUM
from sim.run.collection import GarbageCollection
from sim.run.resume.resuming import ResumableRun
from sim.run.setup.builder import PreparedRun, building_process, with_engine
from sim.world.participants import client_number

_ONLY = "model"  # name of the model of a client that has one
_AT_ONCE = 256  # samples of a prediction


@dataclass(frozen=True)
class TrainedModel:
    """Model of a client at a virtual time.

    name: the model's name among those that `evaluated` returns; "model" if the method does not define it.
    scenario, seed, task: scenario, seed and task of the run. values: its parameters [P], in the
    architecture's order. base: the path of the base of adapters; empty for other models.
    """

    client: str
    name: str
    time_s: float
    scenario: str
    seed: int
    task: str
    architecture: Architecture
    values: Tensor
    base: str = ""

    def module(self) -> nn.Module:
        """Return the module, in evaluation mode."""
        return plain_module(self.architecture, self.values)

    def state(self) -> dict[str, Tensor]:
        """Return the `state_dict` of the module, as separate tensors."""
        return untied_state_dict(self.module())

    @torch.no_grad()
    def outputs(self, inputs: np.ndarray | Tensor) -> np.ndarray:
        """Return the outputs [N, ...] for inputs [N, ...]. Raises UserError for unsuitable inputs."""
        shape = self.architecture.input_shape
        try:
            x = torch.as_tensor(np.asarray(inputs))
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"inputs: must be an array of numbers, [samples, {_shape_text(shape)}]") from None
        if not x.dim() or tuple(x.shape[1:]) != shape:
            raise UserError(
                f"inputs have the shape [{_shape_text(x.shape)}]; must be [samples, {_shape_text(shape)}]"
            )
        if not len(x) or x.is_complex():
            raise UserError(f"inputs: must {'have at least one sample' if not len(x) else 'be real numbers'}")
        x = x.long() if self.task == "language" else x.float()
        return torch.cat([self.architecture.forward(self.values, part) for part in x.split(_AT_ONCE)]).numpy()

    def save(self, folder: Path) -> Path:
        """Write the model into a folder as a safetensors file, and return its path. Raises OSError."""
        from safetensors.torch import save

        path = folder / f"{self._file}.safetensors"
        content = save(self.state(), {"format": "pt", **self._notes})  # format: as other libraries mark files
        with temporary_path_beside(path) as whole:
            whole.write_bytes(content)
            os.replace(whole, path)
        return path

    def save_adapters(self, folder: Path) -> Path:
        """Write the adapters as files of peft into a new folder, and return its path. Raises OSError."""
        from sim.learning.language.peft import save_adapters

        path = folder / self._file
        save_adapters(self.module(), path, self.base, {"format": "pt", **self._notes})
        return path

    @property
    def _file(self) -> str:
        """Name of the file or folder, without the file extension."""
        who = self.client if self.name == _ONLY else f"{self.client}-{self.name}"
        return f"{who}-at-{f'{self.time_s:.6f}'.rstrip('0').rstrip('.')}"  # microseconds, as times are stated

    @property
    def _notes(self) -> dict[str, str]:
        """Metadata of the file."""
        return {
            "scenario": self.scenario,
            "seed": str(self.seed),
            "client": self.client,
            "time": repr(self.time_s).removesuffix(".0"),
            "model": self.name,
            "architecture": self.architecture.key,
        }


def trained_models(
    path: Path,
    chosen: Sequence[int | str] | None = None,
    time_s: float | None = None,
    *,
    name: str | None = None,
    adapters: bool = False,
    data_dir: Path | None = None,
    code: bool = True,
    method: type[Client] | None = None,
    anyway: bool = False,
    notice: Callable[[str], None] | None = None,
) -> Iterator[TrainedModel]:
    """Yield models of clients after all events at a virtual time, in the order of the clients.

    chosen: numbers or names of clients; None for all clients with a model at that time. time_s: None for the
    end of the run. name: name of a model, by default the first one that the method's `evaluated` returns.
    adapters: require models that consist of adapters.

    The run is replayed to its last checkpoint at or before the time, and computed from there. Checksums of
    the run's evaluations confirm the computed models. Raises UserError for a run that cannot be continued,
    for a client without a model, and, unless `anyway` is set, for models that differ from the run's.
    """
    earlier = ResumableRun.find(path, math.inf if time_s is None else time_s)
    time_s = _time_of(earlier, path, time_s)
    scenario = with_engine(replace(earlier, fork_s=None).scenario(code=code, method=method), devices=None)
    if adapters and not isinstance(scenario.model, Lora):
        problem = f'model.name = "{scenario.model.name}" has no adapters; use --format safetensors'
        raise UserError(f"{path}: --format peft: {problem}")
    if adapters and scenario.protocol.method.merges_adapters:
        problem = f'protocol.name = "{scenario.protocol.name}" changes the weights of the base'
        instead = "peft reads only adapters; use --format safetensors"
        raise UserError(f"{path}: --format peft: {problem}, but {instead}")
    device = earlier.provenance.machine.device.partition(":")[0]  # the first of several is enough
    device = device if device != "cuda" or torch.cuda.is_available() else "cpu"
    with building_process(scenario, data_dir, device) as run, tempfile.TemporaryDirectory() as folder:
        torch.set_num_threads(run.threads)
        lives = _chosen_clients(run.simulation, chosen)
        if notice is not None and earlier.time_s < time_s:
            notice(f"no checkpoint at {time_s:g} s: computing the run again from {earlier.time_s:g} s")
        try:
            _compute(run, earlier, time_s, Path(folder))
            _require_same_models(run, earlier, time_s, anyway)
            yield from _models(run, lives, name, all_of_them=chosen is None)
        finally:
            run.simulation.engine.read_log.close()


def _time_of(earlier: ResumableRun, path: Path, time_s: float | None) -> float:
    """Return the time of the models. Raises UserError for a time after the end of the run."""
    directory = RunDirectory.found(earlier.path)
    if not directory.is_whole:
        if time_s is None:
            raise UserError(
                f'{path}: the run has not ended; pass the time of the models, such as --at "20 s"'
            )
        return time_s
    end_s = float(directory.summary()["virtual_seconds"])
    if time_s is not None and time_s > end_s:
        raise UserError(f"{path}: the run ended at {end_s:g} s, before the requested time, {time_s:g} s")
    return end_s if time_s is None else time_s


def _chosen_clients(simulation: Simulation, chosen: Sequence[int | str] | None) -> list[ClientLife]:
    """Return clients by number or name, without duplicates; all for None. Raises UserError."""
    clients = simulation.clients
    if chosen is None:
        return list(clients)
    names = [client.name for client in clients]
    return [clients[number] for number in dict.fromkeys(client_number(each, names) for each in chosen)]


def _compute(run: PreparedRun, earlier: ResumableRun, time_s: float, folder: Path) -> None:
    """Run up to a time: a replay to the checkpoint, and computation after that."""
    simulation = run.simulation
    simulation.trace.keep_messages = False  # only checksums are needed
    simulation.add_hook(GarbageCollection())
    if earlier.checkpoint is None:
        simulation.begin()
    else:
        replace(earlier, fork_s=None).replay(run, folder / READS, exactly=False)
    loop = simulation.loop
    try:
        while not loop.run_until(time_s) and loop.paused:
            pass
    except Deadlock:  # ended the run, too
        pass
    if loop.time() < time_s:
        raise UserError(
            f"{earlier.path}: the run ends at {loop.time():g} s, before the requested time, {time_s:g} s"
        )


def _require_same_models(run: PreparedRun, earlier: ResumableRun, time_s: float, anyway: bool) -> None:
    """Raise UserError if models at the last evaluation up to a time differ from the run's."""
    if anyway:
        return
    changed = replace(earlier, fork_s=None).differences(run)
    directory = RunDirectory.found(earlier.path)
    is_same = _has_same_checksums(run.simulation, directory, time_s) if directory.is_whole else not changed
    if not is_same:
        reason = "; ".join(changed) or "this machine computes other numbers"
        raise UserError(
            f"{earlier.path}: the models that were computed again differ from those of the run ({reason}); "
            "pass --anyway to use them"
        )


def _has_same_checksums(simulation: Simulation, directory: RunDirectory, time_s: float) -> bool:
    """Return True if the models at the last evaluation up to a time have the checksums of the run."""
    is_one = (pl.col("event") == CHECKSUM) & (pl.col("time") <= time_s)
    of_run = directory.scan("events").filter(is_one).filter(pl.col("time") == pl.col("time").max()).collect()
    if of_run.is_empty():
        return True
    evaluated_s = of_run["time"][0]
    if evaluated_s == time_s:
        found = _checksums(simulation)
    else:
        rows = pl.DataFrame(pl.from_arrow(simulation.trace.to_table())).filter(is_one)
        found = dict(rows.filter(pl.col("time") == evaluated_s).select("actor", "detail").rows())
    return all(found.get(actor) == detail for actor, detail in of_run.select("actor", "detail").rows())


def _checksums(simulation: Simulation) -> dict[str, str]:
    """Return the checksum of each client's model, as the trace states it."""
    found: dict[str, str] = {}
    for clients in group_by_architecture([each for each in simulation.clients if each.actor is not None]):
        rows = simulation.engine.held([client.params for client in clients])
        for client, value in zip(clients, checksums_and_finite(rows)["checksums"].tolist(), strict=True):
            found[client.name] = f"{value % 2**64:016x}"
    return found


def _models(
    run: PreparedRun, lives: Sequence[ClientLife], name: str | None, *, all_of_them: bool
) -> Iterator[TrainedModel]:
    """Yield the models of clients; for all clients, only of those that have one."""
    simulation, scenario = run.simulation, run.scenario
    for life in lives:
        if life.actor is None:
            if all_of_them:
                continue
            raise UserError(f"{life.name} is not up at {simulation.loop.time():g} s, so it has no model")
        found, vector = _named_model(simulation, life, name)
        yield TrainedModel(
            life.name,
            found,
            simulation.loop.time(),
            scenario.name,
            scenario.run.seed,
            scenario.data.task,
            life.compute.settings.architecture,
            simulation.engine.rows([vector])[0].detach().cpu().clone(),
            str(scenario.model.base) if isinstance(scenario.model, Lora) else "",
        )


def _named_model(simulation: Simulation, life: ClientLife, name: str | None) -> tuple[str, Vector]:
    """Return the name and the vector of a client's model, by default the first. Raises UserError."""
    predicts = simulation.observer.measure.name != "distance"
    shown = evaluated_models([life], simulation.supervisor, predict=predicts)
    models: Mapping[str, Ensemble] = {_ONLY: ((1.0, life.params),)} if shown is None else shown[0]
    separate = _split_ensembles(models)
    first = next(iter(models))
    if name is None and first not in separate:
        raise UserError(
            f"{life.name} predicts with an average of {len(models[first])} models; choose one with --model: "
            f"{', '.join(separate)}"
        )
    found = first if name is None else name
    if found not in separate:
        raise UserError(f"--model {found}: {life.name} has no such model; it has {', '.join(separate)}")
    return found, separate[found]


def _split_ensembles(models: Mapping[str, Ensemble]) -> dict[str, Vector]:
    """Return single models by name: the models of the ensemble "mixed" are mixed.0, mixed.1 and so on."""
    separate: dict[str, Vector] = {}
    for name, ensemble in models.items():
        numbered = len(ensemble) > 1
        separate |= {
            f"{name}.{number}" if numbered else name: vector for number, (_, vector) in enumerate(ensemble)
        }
    return separate


def _shape_text(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
