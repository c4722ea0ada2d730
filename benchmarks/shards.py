"""Upper bound of the gain of shards of clients, one process each, from measurements of one process."""

import gc
import multiprocessing
import pickle
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import eigsh

from benchmarks.many_clients import SCENARIO
from benchmarks.measuring import Effort, Say, table
from benchmarks.whole_run import Stopwatch
from sim.core.lives import ClientLife
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario

CLIENTS, PERIODS, SHARDS = 2_000, 4, (2, 4, 8, 16)
WINDOW_S = 0.01  # minimum latency of the scenario: messages of a window arrive after it
MODEL = np.zeros(650, np.float32)  # the logistic regression of digits
_WINDOWS, _MESSAGES = 2_000, 50  # of the measurement of a window's end, and messages in each

TEXT = f"""\
Asynchronous gossip as in the section on many clients, with {CLIENTS:,} clients, in one process. *Events* is
the share of the CPU time outside the engine's flushes. Shards of clients would run independently for a
window of {WINDOW_S * 1000:g} ms, the minimum latency, and then exchange the messages between shards.
*Cross, at random* is the share of messages between shards if clients are dealt to them at random. *A cut*
is the share of links between two halves of the clients, split by the second eigenvector of the graph. *End
of a window* and *a message across* are the CPU times of each of two processes that pass pickled models of
650 parameters through a pipe; they exclude the time in which one waits for the other. *Gain* is an upper
bound: the CPU time in one process over the time of shards with one core each, all equally busy. Either one
engine computes for all shards, or each shard has its own."""


def measure(effort: Effort, say: Say) -> str:
    """Return the section on shards, in Markdown."""
    clients = min(CLIENTS, 10 * effort.size_max)
    total_s, flush_s, messages, halves = _in_one_process(clients)
    end_s, across_s = _at_the_end_of_a_window()
    windows, events_s = PERIODS / WINDOW_S, total_s - flush_s
    facts = [
        ["CPU time in one process", f"{total_s:.2f} s"],
        ["events", f"{events_s / total_s:.0%}"],
        ["messages in a window", f"{messages / windows:.0f}"],
        ["a cut", f"{halves:.0%}"],
        ["end of a window", f"{end_s * 1e6:.0f} us"],
        ["a message across", f"{across_s * 1e6:.0f} us"],
    ]
    rows = []
    for shards in SHARDS:
        cross = 1 - 1 / shards
        passing_s = windows * end_s + messages / shards * cross * 2 * across_s
        common = total_s / (flush_s + events_s / shards + passing_s)
        own = total_s / (total_s / shards + passing_s)
        rows.append([str(shards), f"{cross:.0%}", f"{common:.1f}x", f"{own:.1f}x"])
    say(f"shards, {clients:,} clients: events are {events_s / total_s:.0%}")
    head = ["shards", "cross, at random", "gain, one engine", "gain, one engine per shard"]
    return "\n\n".join(["## Shards", TEXT, table(["quantity", "measured"], facts), table(head, rows)])


def _in_one_process(clients: int) -> tuple[float, float, int, float]:
    """Return CPU seconds of a run and of its flushes, its messages, and the share that crosses a cut."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "many.toml")
        text = SCENARIO.format(clients=clients, periods=PERIODS, bandwidth="10 Mbit/s")
        path.write_text(text, encoding="utf-8")
        simulation = build(load_scenario(path), device="cpu")
    flushing, running = Stopwatch(simulation.engine._run), Stopwatch(simulation.run)
    with closing(simulation), patch.object(simulation.engine, "_run", flushing):
        cut = _cut(simulation.clients)
        gc.collect()
        gc.disable()  # as `coterie run` does
        running()
        gc.enable()
        return running.cpu_s, flushing.cpu_s, simulation.network.counts.sent, cut


def _cut(clients: Sequence[ClientLife]) -> float:
    """Return the share of links between two halves of the clients, split by the second eigenvector."""
    numbers = {client.name: client.index for client in clients}
    ends = np.array([(client.index, numbers[peer]) for client in clients for peer in client.membership.peers])
    links = csr_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (len(clients), len(clients)))
    _, vectors = eigsh(links, k=2, which="LA", v0=np.linspace(-1, 1, len(clients)), tol=1e-4)
    half = vectors[:, 0] > np.median(vectors[:, 0])  # ascending: the largest, which is constant, is the last
    return float(np.mean(half[ends[:, 0]] != half[ends[:, 1]]))


def _at_the_end_of_a_window() -> tuple[float, float]:
    """Return the CPU seconds of one side for an empty window's end, and for each message sent or received."""
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=_answer, args=(there,))
    other.start()
    empty_s, full_s = _exchanges_s(here, 0), _exchanges_s(here, _MESSAGES)
    here.send_bytes(b"")
    other.join()
    return empty_s, (full_s - empty_s) / (2 * _MESSAGES)


def _exchanges_s(pipe: Connection, count: int) -> float:
    """Return the CPU seconds of a window's end at which each side sends and receives `count` messages."""
    messages = [("client-1", "client-2", 1.5, MODEL + number) for number in range(count)]
    started = time.process_time()
    for _ in range(_WINDOWS):
        pipe.send_bytes(pickle.dumps(messages, protocol=5))
        pickle.loads(pipe.recv_bytes())
    return (time.process_time() - started) / _WINDOWS


def _answer(pipe: Connection) -> None:
    """Run the other side: receive messages, and send as many."""
    while sent := pipe.recv_bytes():
        pipe.send_bytes(pickle.dumps(pickle.loads(sent), protocol=5))
