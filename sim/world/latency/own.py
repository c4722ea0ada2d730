"""Latency from a function of the user's own."""

from __future__ import annotations

from functools import partial
from itertools import permutations

from sim.kernel.random import GeneratorAt, RandomStream, pair_key
from sim.world.latency.nodes import LATENCY_MAX_S, LatencyByNode
from sim.world.participants import Participants
from sim.world.plugins import WorldPlugin, numbers_of


class OwnLatency(WorldPlugin, LatencyByNode):
    """A function of your own is asked for each message's latency, in seconds.

    It is given what it takes of `rng` (a numpy generator, another one for each message), `sender` and
    `receiver` (numbers of clients, names of servers), `time` (when the transfer ends, in seconds) and
    `clients` (how many there are).
    """

    provided = ("rng", "sender", "receiver", "time", "clients")

    def build(self, key: str, participants: Participants) -> OwnLatencies:
        """The latencies of all pairs. The function is tried for the first message of some. UserError."""
        made, names = OwnLatencies(self, participants), participants.names
        some = dict.fromkeys([*names[:2], *names[-1:]])
        for pair in permutations(some, 2):
            first = RandomStream(0)
            first.key = pair_key(participants.seed, "latency", *pair)
            self.same_again(partial(made.sample, pair, 0.0, first), partial(made.about, pair, 0.0))
        return made


class OwnLatencies:
    """The latencies of a function of the user's own, by sender and receiver."""

    jitter = 1.0  # as of others that take random numbers

    def __init__(self, section: OwnLatency, participants: Participants) -> None:
        self._section = section
        self._numbers = numbers_of(participants)
        self._clients = len(participants.clients)
        self._generator = GeneratorAt()

    def sample(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
        """The latency of a message of `pair` that departs at `time_s`, by the numbers at its place.

        UserError for a function that fails, or whose result is none.
        """
        about = partial(self.about, pair, time_s)
        value = self._section.asked(
            about,
            rng=self._generator.at(draws.key, draws.position),
            sender=self._numbers[pair[0]],
            receiver=self._numbers[pair[1]],
            time=time_s,
            clients=self._clients,
        )
        return self._section.number(value, 0.0, LATENCY_MAX_S, "seconds", about)

    def about(self, pair: tuple[str, str], time_s: float) -> str:
        """Which message a refusal is about."""
        sender, receiver = [self._numbers[name] for name in pair]
        return f"for sender = {sender!r}, receiver = {receiver!r}, time = {time_s:g}"
