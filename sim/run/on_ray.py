"""A Ray cluster (https://docs.ray.io), and workers of a run's engine on its nodes."""

import json
import logging
import os
import signal
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any
from weakref import WeakKeyDictionary

import torch

from sim.errors import UserError, one_line, require_packages
from sim.learning.engine import ClientData, Engine
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.nodes import Slot
from sim.learning.engine.parcels import Parcel, ParcelPickler, ParcelUnpickler, compute_parcel
from sim.learning.engine.workers import Workers
from sim.plugins.source_files import INSTALLED
from sim.run.foreign_draws import generator_states
from sim.run.process import cores, without_current_folder
from sim.run.save.provenance import conditions_of_process
from sim.run.setup.engine import MakeWorkers
from sim.scenario.scenario import Scenario

TRIES = 2
"""Number of attempts if a node or process dies."""
_LOOK_EVERY_S = 5.0  # interval of checks that there are still nodes for the computation
_CONNECT_S = 10.0
_LARGE_BYTES = 100_000  # size from which vectors go to the object store of the cluster
_READ_ONLY = "The given NumPy array is not writable"  # arrays that Ray shares between processes; only read


@contextmanager
def cluster(
    address: str | None, cores: int | None, folder: Path | None = None, excluded: Sequence[str] = ()
) -> Iterator[Any]:
    """Return the module `ray`, connected to a cluster; without an address to a local one with `cores` cores.

    folder: the folder from which nodes import, by default an empty one. excluded: patterns of files in it
    that are not sent, as in .gitignore. Raises UserError without Ray, or without the cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    require_packages("ray", "--on ray", "ray")
    import ray

    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        settings |= {"num_cpus": cores, "include_dashboard": False}
    else:
        _require_listening(address)
    # Nodes import from their working folder, which by default is the current folder of this process.
    with tempfile.TemporaryDirectory(prefix="coterie-") as empty, without_current_folder():
        settings["runtime_env"] = {"working_dir": str(folder or empty), "excludes": list(excluded)}
        answer = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address or "local", **settings)
        except Exception as error:  # Ray raises any kind
            raise UserError(f"no Ray cluster{f' at {address}' if address else ''}: {error}") from error
        finally:
            if current_thread() is main_thread():  # Ray replaces the handler there
                signal.signal(signal.SIGTERM, answer)
        try:
            yield ray
        finally:
            ray.shutdown()


def _require_listening(address: str) -> None:
    """Raise UserError if no server listens at an address; Ray would retry for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in host:  # "auto", or another kind of address
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError, ValueError) as error:
        raise UserError(one_line(f"no Ray cluster at {address}: {error}")) from error


@contextmanager
def workers_on_ray(address: str | None = None) -> Iterator[MakeWorkers]:
    """Return a factory of workers on the nodes of a cluster, or on this machine's cores without an address.

    Results depend only on the sent data: if a node dies, its part is computed again on another node or
    locally. The nodes need the same versions of coterie and libraries, but not the data or the user's code.
    The factory raises UserError without the cluster, and for a run on GPUs.
    """
    with ExitStack() as opened:

        def make(scenario: Scenario, data: ClientData) -> Workers:
            if scenario.engine.devices is not None:
                stated = f"engine.devices = {json.dumps(scenario.engine.devices)}"
                raise UserError(f"{stated} cannot be combined with --on ray, which uses CPUs; remove one")
            if data.train.x.device.type != "cpu":
                raise UserError("--on ray computes on CPUs, but this run is on a GPU; use --device cpu")
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="coterie-")))
            _write_code(scenario, folder)
            ray = opened.enter_context(cluster(address, cores(), folder))
            return RayWorkers(ray, scenario, data)

        yield make


def _write_code(scenario: Scenario, folder: Path) -> None:
    """Write the user's code to a folder, from which nodes import it under the same names."""
    for plugin in scenario.plugins:
        sources = plugin.sources
        if sources is None or sources.root.name in INSTALLED:  # must be installed on the nodes
            continue
        for name, content in sources.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


class RayWorkers(Workers):
    """Processes on the nodes of a cluster. A local thread for each sends it one part of a batch at a time.

    All vectors are also held locally. A large vector that is an input of such parts goes once to the object
    store of the cluster, stays there while it is held, and goes from there once to each node that needs it.
    """

    def __init__(self, ray: Any, scenario: Scenario, data: ClientData) -> None:
        self._ray, self._data = ray, data
        self._threads_each = threads = int(scenario.engine.threads)
        slots = sum(int(node) // threads for node in self._cores_of_nodes())
        if not slots:
            raise UserError(f"engine.threads = {threads}: no node of the Ray cluster has this many cores")
        stated = scenario.engine.workers
        super().__init__(slots if stated == "auto" else stated)
        warnings.filterwarnings("ignore", _READ_ONLY)
        self._part = ray.remote(_compute_parcel).options(num_cpus=threads, max_retries=TRIES - 1)
        self._setup = ray.put((_result_conditions(), threads, ParcelPickler().pack(data)))
        self._kernels: dict[ModelKernel, Any] = {}
        self._slots: WeakKeyDictionary[Slot, Any] = WeakKeyDictionary()
        self._lock = Lock()
        try:
            self.call(int)  # try one process
        except UserError:
            raise
        except Exception as error:  # from a node that cannot load the function
            reason = one_line([line for line in str(error).splitlines() if line.strip()][-1])
            raise UserError(f"--on ray: coterie does not work on the cluster's nodes: {reason}") from error

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        packer = ParcelPickler(self._data, [])
        parcel = packer.pack((function, arguments))
        reply = self._reply(self._sent(packer, parcel))
        if reply is None:
            return function(*arguments)
        return ParcelUnpickler(reply, rows=packer.rows).load()

    def _sent(self, packer: ParcelPickler, parcel: Parcel) -> Any:
        """Send a parcel, and return the reference of its reply."""
        assert packer.kernels is not None
        arrays: list[Any] = list(parcel.arrays)
        with self._lock:
            kernels = [self._kernel(kernel) for kernel in packer.kernels]
            for index, slot in packer.slots.items():
                if arrays[index].nbytes >= _LARGE_BYTES:
                    if slot not in self._slots:
                        self._slots[slot] = self._ray.put(arrays[index])
                    arrays[index] = self._slots[slot]
        large = [each for each in arrays if isinstance(each, self._ray.ObjectRef)]
        small = [None if isinstance(each, self._ray.ObjectRef) else each for each in arrays]
        return self._part.remote([self._setup, *kernels], parcel.pickled, small, *large)

    def _kernel(self, kernel: ModelKernel) -> Any:
        """Return the reference of a kernel, which is sent once."""
        if kernel not in self._kernels:
            try:
                self._kernels[kernel] = self._ray.put(ParcelPickler().pack(kernel))
            except Exception as error:  # pickle raises any kind
                key = kernel.architecture.key
                raise UserError(f"--on ray: {key} cannot be sent to other processes: {error}") from error
        return self._kernels[kernel]

    def _reply(self, sent: Any) -> Parcel | None:
        """Return the reply, or raise the error of the node; None if no node has computed it."""
        ray = self._ray
        try:
            while not ray.wait([sent], timeout=_LOOK_EVERY_S)[0]:
                if all(node < self._threads_each for node in self._cores_of_nodes()):
                    ray.cancel(sent)
                    return None
            reply: Parcel = ray.get(sent)
            return reply
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError:  # its node or process has died repeatedly
            return None

    def _cores_of_nodes(self) -> list[float]:
        return [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]


# --- on a node ----------------------------------------------------------------------------------------------


def _compute_parcel(known: list[Any], pickled: bytes, small: list[Any], *large: Any) -> Parcel:
    """Compute the part in a parcel; return the reply. known: references of the setup and of its kernels."""
    setup, *kernels = known
    engine, others = _engine(setup), iter(large)
    arrays = [next(others) if each is None else each for each in small]
    loaded, before = [_loaded(each) for each in kernels], generator_states()
    reply = compute_parcel(Parcel(pickled, arrays), engine, loaded)
    for name, state in generator_states().items():
        if state != before[name]:
            drawn = f"random numbers were drawn from the generator of {name} that all code shares"
            raise UserError(f"--on ray: {drawn}; these numbers differ on each node, so run without --on ray")
    return reply


@cache
def _engine(setup: Any) -> Engine:
    """Return the engine of this process. Raises UserError if its results would differ."""
    import ray

    conditions, threads, data = ray.get(setup)
    for name, found in _result_conditions().items():
        if found != conditions[name]:
            values = f"{found} on a node of the cluster, {conditions[name]} on the run's machine"
            raise UserError(f"--on ray: {name} differs: {values}; use nodes with the same software and CPU")
    torch.set_num_threads(threads)
    warnings.filterwarnings("ignore", _READ_ONLY)
    return Engine(ParcelUnpickler(data).load(), seed=0)


@cache
def _loaded(kernel: Any) -> ModelKernel:
    import ray

    try:
        loaded: ModelKernel = ParcelUnpickler(ray.get(kernel)).load()
    except Exception as error:  # the user's code raises any kind
        reason = one_line(f"{type(error).__name__}: {error}")
        raise UserError(f"--on ray: a node of the cluster cannot load the model: {reason}") from error
    return loaded


def _result_conditions() -> dict[str, str]:
    """Return the conditions on which the last bits of results depend."""
    return conditions_of_process() | {
        "the instruction set of the CPU": torch.backends.cpu.get_cpu_capability()
    }
