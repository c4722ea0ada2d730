"""SWIM: how fast it finds the dead, and how it spares the living."""

import math
from statistics import mean

import numpy as np
import pytest

from protocols.membership.active import SwimView
from protocols.membership.swim import (
    ALIVE,
    SUSPECT,
    FailureDetector,
    SwimAck,
    SwimNews,
    SwimPing,
    SwimSettings,
)
from sim.kernel.clock import VirtualLoop
from sim.kernel.random import RandomStream
from sim.world.network_model import ConnectionModel, NetworkModel
from sim.world.partitions import ScheduledPartition
from tests.world.members import Members
from tests.world.quantities import constant, independent
from tests.world.swim_reference import Reference

NAMES = [f"m{number:02}" for number in range(30)]


def group(
    names: list[str] = NAMES,
    *,
    absent: tuple[str, ...] = (),
    model: NetworkModel | None = None,
    seed: int = 1,
    **settings: float,
) -> Members:
    def make(name: str, loop: object) -> SwimView:
        others = [other for other in names if other != name]
        return SwimView(
            name, others, absent, loop, RandomStream(seed, "swim", name), SwimSettings(**settings)
        )  # type: ignore[arg-type]

    return Members(names, make, model, seed)


def suspicions(members: Members, peer: str | None = None) -> list[float]:
    """Filled with the times at which anybody comes to suspect `peer`, or anyone, by its own ping."""
    times: list[float] = []
    for member in members.members.values():
        detector = member._detector  # type: ignore[attr-defined]
        original = detector.suspect

        def suspect(name: str, original: object = original, detector: object = detector) -> None:
            watched = detector._members[name]  # type: ignore[attr-defined]
            if peer in (None, name) and watched.status == ALIVE:
                times.append(members.loop.time())
            original(name)  # type: ignore[operator]

        detector.suspect = suspect
    return times


def test_nobody_is_declared_dead_who_is_not() -> None:
    members = group()
    members.start()
    members.run(120.0)
    assert members.happened == []


@pytest.mark.long
def test_the_first_suspicion_comes_when_the_paper_expects_it() -> None:
    """Section 3.1: a member is pinged in a period with probability p = 1 - (1 - 1/m)^m, by m = n - 1 others.

    So the first period in which somebody pings the dead one is, on average, the 1/p-th: e / (e - 1) periods
    for large n. That counts periods that all begin together, and members picked at random. Here each member's
    periods begin at a time of its own, and it pings all others in turn: t periods after the crash each of the
    others has pinged the dead one with probability t / m, nobody has with probability (1 - t / m)^m, and the
    first ping comes after the integral of that, m / (m + 1) periods (or was on its way at the crash). One
    period later, when its own is over, the pinger suspects.
    """
    n, waits_s, offsets = len(NAMES), [], RandomStream(1, "crashes")
    for trial in range(300):
        members = group(seed=trial)
        members.start()
        crash_s = 3.0 + offsets.uniform()
        members.run(crash_s)
        victim = NAMES[trial % n]
        times = suspicions(members, victim)
        members.crash(victim)
        while not times:
            members.run(members.loop.time() + 0.1)
        waits_s.append(times[0] - crash_s)
    latency_s, m = 0.01, n - 1
    assert mean(waits_s) == pytest.approx(m / (m + 1) + 1.0 - latency_s, rel=0.06)
    assert max(waits_s) < 2 * m + 1, "section 4.3: the worst case of pinging in turn"


def test_a_crash_is_known_to_all_in_logarithmic_time() -> None:
    members = group(suspicion_periods=3.0)
    members.start()
    members.run(20.0)
    members.crash("m05")
    members.run(60.0)
    told_s = [time_s for time_s, _, peer, up in members.happened if peer == "m05" and not up]
    assert len(told_s) == len(NAMES) - 1
    assert {peer for _, _, peer, _ in members.happened} == {"m05"}
    assert max(told_s) - min(told_s) <= 2 * math.log2(len(NAMES))


def test_who_leaves_is_known_at_once_and_who_comes_back_too() -> None:
    members = group()
    members.start()
    members.run(10.0)
    members.leave("m03")
    members.run(20.0)
    assert members.who_knows("m03", up=True) == []
    members.join("m03")
    members.run(32.0)
    assert members.who_knows("m03", up=False) == []


def test_who_joins_late_is_watched_like_all_others() -> None:
    members = group(absent=("m07",))
    members.start(*[name for name in NAMES if name != "m07"])
    members.run(10.0)
    assert len(members.who_knows("m07", up=True)) == 0
    members.join("m07")
    members.run(25.0)
    assert members.who_knows("m07", up=False) == []
    members.crash("m07")
    members.run(60.0)
    assert members.who_knows("m07", up=True) == []


def test_losses_kill_nobody() -> None:
    members = group(
        model=NetworkModel(ConnectionModel(constant(0.01), reliable=False, loss=independent(0.1)))
    )
    members.start()
    members.run(120.0)
    assert members.network.counts.lost > 500
    assert members.happened == [], "some are suspected, but all refute it"


@pytest.mark.slow  # a second for each run
def test_losses_kill_as_few_as_in_an_independent_simulation() -> None:
    """60 members, a tenth of the datagrams lost, 40 s: suspicions, refutations and false deaths in a run."""
    names, runs, loss, latency_s, until_s = [f"m{number:02}" for number in range(60)], 40, 0.1, 0.01, 40.0
    lossy = NetworkModel(ConnectionModel(constant(latency_s), reliable=False, loss=independent(loss)))

    def ours(seed: int) -> tuple[int, int, int]:
        members = group(names, model=lossy, seed=seed)
        times = suspicions(members)
        members.start()
        members.run(until_s)
        detectors = [member._detector for member in members.members.values()]  # type: ignore[attr-defined]
        deaths = [peer for _, _, peer, up in members.happened if not up]
        return len(times), sum(detector.incarnation for detector in detectors), len(deaths)

    def theirs(seed: int) -> tuple[int, int, int]:
        reference = Reference(len(names), loss, latency_s, seed)
        reference.run(until_s)
        return reference.suspicions, sum(node.incarnation for node in reference.nodes), reference.deaths

    found, expected = (np.array([run(seed) for seed in range(runs)]) for run in (ours, theirs))
    error = np.sqrt((found.var(axis=0, ddof=1) + expected.var(axis=0, ddof=1)) / runs)
    assert (abs(found.mean(axis=0) - expected.mean(axis=0)) < 3 * error).all()
    assert found.mean(axis=0)[2] < 1.2, "a suspect that is not told so dies 4 times in a run, on average"


def test_a_peer_that_a_protocol_suspects_refutes_it() -> None:
    members = group()
    members.start()
    members.run(10.0)
    members.members["m00"].suspect("m01")
    assert members.members["m00"]._detector._members["m01"].timer is not None  # type: ignore[attr-defined]
    members.run(30.0)
    assert members.happened == []


def detector_with_post(name: str, *others: str) -> tuple[FailureDetector, list[tuple[str, object]]]:
    """A detector that has started and watches `others`, and what it sends: (receiver, message)."""
    detector = FailureDetector(
        name, VirtualLoop(), RandomStream(1, name), SwimSettings(), lambda *change: None
    )
    detector.watch_only(others)
    sent: list[tuple[str, object]] = []
    detector.start(lambda receiver, message: sent.append((receiver, message)))
    return detector, sent


def test_a_suspect_that_pings_learns_it_from_the_ack_and_refutes_at_once() -> None:
    accuser, sent = detector_with_post("a", "b", "c")
    suspect, answers = detector_with_post("b", "a", "c")

    def ask_and_answer(number: int) -> SwimAck:
        """The suspect pings the accuser, which hears from it before it answers, and takes in the ack."""
        ping = SwimPing(number, suspect._take_news("a"))
        accuser.received_from("b")
        assert accuser.receive(ping, "b")
        receiver, ack = sent.pop()
        assert receiver == "b" and isinstance(ack, SwimAck) and ack.number == number
        suspect.received_from("a")
        assert suspect.receive(ack, "a")
        return ack

    assert ask_and_answer(1).news == ()
    accuser.suspect("b")
    assert ("b", SUSPECT, 0) in ask_and_answer(2).news
    assert suspect.incarnation == 1
    suspect.receive(SwimPing(1, ()), "c")  # the refutation is on the next message to anybody
    receiver, ack = answers.pop()
    assert receiver == "c" and isinstance(ack, SwimAck) and ("b", ALIVE, 1) in ack.news
    assert all(name != "b" for name, _, _ in ask_and_answer(3).news), "told no more: it has refuted"


def test_a_suspect_is_told_until_its_refutation_arrives() -> None:
    accuser, sent = detector_with_post("a", "b", "c")
    accuser.suspect("b")
    for number in (1, 2):  # the first ack is lost, or the refutation is
        accuser.received_from("b")
        accuser.receive(SwimPing(number, ()), "b")
        assert ("b", SUSPECT, 0) in sent.pop()[1].news  # type: ignore[attr-defined]
    accuser.receive(SwimNews((), wants_answer=True), "b")
    assert ("b", SUSPECT, 0) in sent.pop()[1].news  # type: ignore[attr-defined]
    accuser.receive(SwimPing(3, (("b", ALIVE, 1),)), "b")
    assert all(name != "b" for name, _, _ in sent.pop()[1].news)  # type: ignore[attr-defined]


def test_two_sides_of_a_cut_network_find_each_other_again() -> None:
    cut = ScheduledPartition(10.0, 40.0, groups=(tuple(NAMES[:15]), tuple(NAMES[15:])))
    members = group(model=NetworkModel(ConnectionModel(constant(0.01)), partitions=(cut,)), reconnect_s=5.0)
    members.start()
    members.run(40.0)
    assert all(len(member.peers) == 14 for member in members.members.values())
    members.run(70.0)
    assert all(len(member.peers) == 29 for member in members.members.values())


@pytest.mark.parametrize("how", ["leave", "crash"])
def test_who_comes_back_unheard_is_found_by_its_pings(how: str) -> None:
    others = tuple(name for name in NAMES if name != "m03")
    cut = ScheduledPartition(19.0, 22.0, groups=(("m03",), others))  # its hellos are lost
    members = group(model=NetworkModel(ConnectionModel(constant(0.01)), partitions=(cut,)))
    members.start()
    members.run(10.0)
    getattr(members, how)("m03")
    members.run(20.0)
    members.join("m03")
    members.run(40.0)
    assert members.who_knows("m03", up=False) == []


def test_who_comes_back_newer_than_others_know_is_believed_without_a_storm() -> None:
    members = group(NAMES[:6])
    members.start()
    members.run(5.0)
    for _ in range(3):
        members.crash("m02")
        members.run(members.loop.time() + 40.0)
        assert members.who_knows("m02", up=True) == []
        members.join("m02")
        before = members.network.counts.sent
        members.run(members.loop.time() + 20.0)
        assert members.who_knows("m02", up=False) == []
        assert members.network.counts.sent - before < 20 * 6 * 4, (
            "two messages per member and second, and some"
        )


def test_a_member_answers_for_another_that_the_pinger_cannot_reach() -> None:
    one_way = ScheduledPartition(0.0, 1e6, sources=("m00",), targets=("m01",))
    members = group(NAMES[:5], model=NetworkModel(ConnectionModel(constant(0.01)), partitions=(one_way,)))
    members.start()
    members.run(100.0)
    assert members.network.counts.by_type["SwimPingRequest"][0] > 30
    assert members.happened == []


def test_the_silent_keep_nothing_running() -> None:
    members = group(NAMES[:3])
    members.start()
    members.run(5.3)
    for name in NAMES[:3]:
        members.crash(name)
    sent = members.network.counts.sent
    members.run(100.0)
    assert members.network.counts.sent == sent
    members.members["m00"].on_message(SwimPing(1, ()), "m01")  # late, for one that is down
    assert members.network.counts.sent == sent


def test_a_suspect_that_is_watched_no_longer_and_then_again_is_still_one() -> None:
    loop, happened = VirtualLoop(), []
    detector = FailureDetector(
        "a", loop, RandomStream(1), SwimSettings(), lambda *change: happened.append((loop.time(), *change))
    )
    detector.watch_only(["b", "c"])
    detector.start(lambda peer, message: None)
    detector.suspect("b")
    detector.watch_only(["c"])
    loop.run_until(0.5)
    detector.watch_only(["b", "c"])
    loop.run_until(5.5)
    assert happened == [(5.0, "b", False)]


def test_a_period_must_have_room_for_the_timeout() -> None:
    with pytest.raises(ValueError, match="timeout"):
        SwimSettings(period_s=0.2, timeout_s=0.2)
