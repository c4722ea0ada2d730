"""Latency from a user-defined function."""

from __future__ import annotations

from functools import partial
from itertools import permutations

from sim.kernel.random import PositionableGenerator, RandomStream, pair_key
from sim.world.latency.nodes import LATENCY_MAX_S, LatencyByNode
from sim.world.participants import Participants
from sim.world.plugins import WorldPlugin, actor_ids


class OwnLatency(WorldPlugin, LatencyByNode):
    """Your own function returns the latency of each message, in seconds.

    It may have any of these parameters: `rng` (a numpy generator, a separate one for each message), `sender`
    and `receiver` (numbers of clients, names of servers), `time` (the end of the transfer, in seconds) and
    `clients` (the number of clients).
    """

    provided = ("rng", "sender", "receiver", "time", "clients")

    def build(self, key: str, participants: Participants) -> OwnLatencies:
        """Return the latencies of all pairs, after a test on a few pairs. Raises UserError."""
        made, names = OwnLatencies(self, participants), participants.names
        some = dict.fromkeys([*names[:2], *names[-1:]])
        for pair in permutations(some, 2):
            first = RandomStream(0)
            first.key = pair_key(participants.seed, "latency", *pair)
            self.same_again(partial(made.sample, pair, 0.0, first), partial(made.about, pair, 0.0))
        return made


class OwnLatencies:
    """Latencies of a user-defined function, by sender and receiver."""

    has_randomness = True  # the function may use `rng`

    def __init__(self, section: OwnLatency, participants: Participants) -> None:
        self._section = section
        self._numbers = actor_ids(participants)
        self._clients = len(participants.clients)
        self._generator = PositionableGenerator()

    def sample(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
        """Return the latency in seconds of a message of `pair` that departs at `time_s`, drawn from `draws`.

        Raises UserError if the function fails, or its result is not a latency.
        """
        about = partial(self.about, pair, time_s)
        value = self._section.call_checked(
            about,
            rng=self._generator.at(draws.key, draws.position),
            sender=self._numbers[pair[0]],
            receiver=self._numbers[pair[1]],
            time=time_s,
            clients=self._clients,
        )
        return self._section.number(value, 0.0, LATENCY_MAX_S, "seconds", about)

    def about(self, pair: tuple[str, str], time_s: float) -> str:
        """Describe the message, for an error."""
        sender, receiver = [self._numbers[name] for name in pair]
        return f"for sender = {sender!r}, receiver = {receiver!r}, time = {time_s:g}"
