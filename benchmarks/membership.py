"""Cost of membership alone: clients that only maintain their views, by SWIM and Cyclon."""

import gc
import multiprocessing
import time
from typing import NamedTuple

from actors.supervisor import Supervisor
from benchmarks.measuring import Effort, Say, peak_memory_bytes, table
from protocols.framework.context import ClientContext
from protocols.framework.node import Node
from protocols.membership.active import SampledView, SamplingSettings
from protocols.membership.swim import SwimSettings
from sim.kernel.clock import VirtualLoop
from sim.kernel.random import RandomStream, stream
from sim.world.membership.bootstrap_service import BootstrapService
from sim.world.network import SimulatedNetwork
from sim.world.network_model import ConnectionModel, NetworkModel
from tests.world.quantities import lognormal

SECONDS = 60.0  # of virtual time
CONTACTS = 3
CRASHED_SHARE = 0.1

TEXT = """\
N actors without any training run for {seconds:g} virtual seconds. Each has a view of 20 other actors,
exchanges it by Cyclon every 5 s, and pings one of them per second by SWIM; halfway through,
{share:.0%} of the actors crash. Latency is lognormal (median 50 ms). Each size has one run in its own
process. The table gives
the peak memory of this process; the time includes creating the actors."""


class Cost(NamedTuple):
    """Wall-clock seconds, messages, peak memory of the process, and dead entries of views at the end."""

    seconds: float
    messages: int
    peak_bytes: int
    dead_peers: int


def run(count: int) -> Cost:
    """Run `count` clients once, in this process."""
    gc.disable()
    started = time.perf_counter()
    loop = VirtualLoop()
    network = SimulatedNetwork(loop, 1, NetworkModel(ConnectionModel(lognormal(0.05, 0.5))))
    supervisor = Supervisor(network)
    names = [f"client-{number}" for number in range(count)]
    settings = SamplingSettings(CONTACTS, detection=SwimSettings())
    service = BootstrapService(1, names, names)

    def begin(name: str) -> Node:
        rng = stream(1, "actor", name)
        membership = SampledView(
            name, service, loop, lambda purpose: RandomStream(1, purpose, name), settings
        )
        context = ClientContext(network, membership, rng, 1, lambda who, name, value: None)
        member = Node(name, context, None, None)  # type: ignore[arg-type]
        supervisor.start(member)
        membership.start(member.tell)
        return member

    members: list[Node] = []
    loop.call_soon(lambda: members.extend(begin(name) for name in names))
    loop.run_until(SECONDS / 2)
    crashed = set(names[:: round(1 / CRASHED_SHARE)])
    for member in members:
        if member.name in crashed:
            member.context.membership.crash()  # type: ignore[attr-defined]
            supervisor.kill(member.name)
    loop.run_until(SECONDS)
    alive = [member for member in members if member.name not in crashed]
    dead = sum(peer in crashed for member in alive for peer in member.peers)
    seconds = time.perf_counter() - started
    return Cost(seconds, network.counts.sent, peak_memory_bytes(), dead)


def measure(effort: Effort, say: Say) -> str:
    """Return the section on membership, in Markdown."""
    rows = []
    for count in effort.sizes(100, 1_000, 10_000):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cost = pool.apply(run, (count,))
        rate = cost.messages / cost.seconds
        rows.append(
            [
                f"{count:,}",
                f"{cost.seconds:.1f}",
                f"{cost.messages:,}",
                f"{rate:,.0f}",
                f"{cost.peak_bytes / 2**20:,.0f}",
                f"{cost.dead_peers:,}",
            ]
        )
        say(f"membership, {count:,} clients: {cost.seconds:.1f} s, {cost.messages:,} messages")
    head = ["clients", "wall time, s", "messages", "messages/s", "peak memory, MiB", "dead peers in views"]
    text = TEXT.format(seconds=SECONDS, share=CRASHED_SHARE)
    return "\n\n".join(["## Membership: SWIM and Cyclon", text, table(head, rows)])
