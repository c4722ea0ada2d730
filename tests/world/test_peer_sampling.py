"""Cyclon: views stay random, connected and fresh."""

from collections import Counter
from statistics import mean, pstdev

import networkx as nx
import pytest

from protocols.membership.active import SampledView, SamplingSettings
from protocols.membership.cyclon import CyclonRequest
from protocols.membership.swim import SwimSettings
from protocols.membership.view import Goodbye
from sim.kernel.random import RandomStream
from sim.world.membership.bootstrap_service import BootstrapService
from tests.world.members import Members


def overlay(
    count: int, *, detection: bool = False, seed: int = 1, up: int | None = None, **settings: float
) -> Members:
    """`up`: so many of them, the first ones, are there when the bootstrap service begins."""
    names = [f"m{number:04}" for number in range(count)]
    service = BootstrapService(seed, names, names[:up])
    chosen = SamplingSettings(detection=SwimSettings() if detection else None, **settings)  # type: ignore[arg-type]

    def make(name: str, loop: object) -> SampledView:
        return SampledView(name, service, loop, lambda purpose: RandomStream(seed, purpose, name), chosen)  # type: ignore[arg-type]

    return Members(names, make)


def graph(members: Members) -> nx.DiGraph:
    """Who of those that are up has whom of them in its view."""
    found = nx.DiGraph()
    found.add_nodes_from(sorted(members.up))
    for name in sorted(members.up):
        found.add_edges_from((name, peer) for peer in members.members[name].peers if peer in members.up)
    return found


def survives(count: int, deviation: float) -> None:
    """In-degrees narrowly around the view's size, as published, and 30% of the clients crashing at once."""
    members = overlay(count)
    members.start()
    members.run(250.0)  # 50 shuffles of each
    before = graph(members)
    degrees = [degree for _, degree in before.in_degree()]
    assert mean(degrees) == pytest.approx(20, abs=0.5), "all views are full"
    # A random graph of this out-degree has in-degrees with a deviation of sqrt(20) = 4.5; the fewer they are,
    # the more entries of a shuffle are known already, and the nearer it comes to that.
    assert pstdev(degrees) < deviation
    assert min(degrees) >= 8
    draws = RandomStream(1, "victims")
    for name in sorted(members.up, key=lambda _: draws.uniform())[: 3 * count // 10]:
        members.crash(name)
    assert nx.is_weakly_connected(graph(members))
    members.run(500.0)
    after = graph(members)
    assert nx.is_strongly_connected(after)
    pointed_at = Counter(peer for name in members.up for peer in members.members[name].peers)
    assert not [name for name in pointed_at if name not in members.up], "the dead have left all views"
    assert mean(degree for _, degree in after.in_degree()) > 18


@pytest.mark.long
def test_the_overlay_survives_that_a_third_crashes() -> None:
    survives(300, 4.0)


@pytest.mark.slow
def test_a_large_overlay_survives_that_a_third_crashes() -> None:
    survives(1_000, 3.0)


def test_views_are_never_too_large_and_never_contain_oneself() -> None:
    members = overlay(40, view=6, shuffle=4)
    members.start()
    for second in range(1, 120):
        members.run(float(second))
        for name, member in members.members.items():
            assert len(member.peers) <= 6 and name not in member.peers
            assert member.peers == sorted(set(member.peers))


def test_views_keep_changing() -> None:
    members = overlay(100)
    members.start()
    members.run(100.0)
    before = {name: set(member.peers) for name, member in members.members.items()}
    members.run(400.0)
    kept = [len(before[name] & set(member.peers)) for name, member in members.members.items()]
    assert mean(kept) == pytest.approx(20 * 20 / 99, abs=1.0), "as many as two random views share"


def test_a_newcomer_is_soon_known_and_knows() -> None:
    members = overlay(100, up=99)
    late = "m0099"
    members.start(*[name for name in members.members if name != late])
    members.run(100.0)
    assert graph(members).has_node(late) is False
    members.join(late)
    members.run(160.0)
    assert len(members.members[late].peers) == 20
    assert graph(members).in_degree(late) >= 8


@pytest.mark.long
def test_the_dead_leave_views_sooner_with_swim() -> None:
    gone_s = {}
    for detection in (False, True):
        members = overlay(60, detection=detection, shuffle_every_s=20.0)
        members.start()
        members.run(400.0)
        members.crash("m0007")
        while members.who_knows("m0007", up=True):
            members.run(members.loop.time() + 1.0)
        gone_s[detection] = members.loop.time() - 400.0
    assert gone_s[True] < 40 < gone_s[False]


def test_who_left_and_comes_back_is_a_peer_again() -> None:
    members = overlay(30, detection=True)
    members.start()
    members.run(50.0)
    members.leave("m0003")
    members.run(80.0)
    assert members.who_knows("m0003", up=True) == []
    members.join("m0003")
    members.run(130.0)
    assert len(members.who_knows("m0003", up=True)) >= 8


def test_who_leaves_without_failure_detection_says_goodbye_to_its_view() -> None:
    members = overlay(60)
    members.start()
    members.run(50.0)
    told = members.members["m0003"].peers
    assert set(told) & set(members.who_knows("m0003", up=True))
    members.leave("m0003")
    members.run(50.02)
    assert members.network.counts.by_type["Goodbye"][0] == len(told) == 20
    members.run(60.0)
    assert not set(told) & set(members.who_knows("m0003", up=True)), "though others still pass its name on"


def test_a_newcomer_is_named_those_that_are_up_when_it_comes() -> None:
    members = overlay(6, up=3)
    members.start("m0000", "m0001", "m0002")
    members.join("m0003")
    members.run(10.0)
    for name in ("m0000", "m0001", "m0002"):
        members.crash(name)
    members.join("m0004")
    assert members.members["m0004"].peers == ["m0003"]
    members.run(10.5)
    assert "m0004" in members.members["m0003"].peers


def test_one_client_more_changes_nobodys_contacts_but_where_it_is_one() -> None:
    names = [f"m{number}" for number in range(101)]
    few, more = (BootstrapService(1, names[:count], names[:count]) for count in (100, 101))
    changed = 0
    for name in names[:100]:
        before, after = few.contacts(name, 3), more.contacts(name, 3)
        assert len(set(after)) == 3 and name not in after
        assert [contact for contact in after if contact != "m100"] == before[: 3 - ("m100" in after)]
        changed += before != after
    assert changed == pytest.approx(3, abs=5), "each has three of a hundred"
    named = Counter(contact for name in names for contact in more.contacts(name, 3))
    assert pstdev([named[name] for name in names]) == pytest.approx(3**0.5, rel=0.25), "as at random"


@pytest.mark.long
def test_the_names_of_the_dead_are_not_kept() -> None:
    members = overlay(200, banned_s=10.0)
    members.start()
    member = members.members["m0000"]
    for period in range(1, 60):
        members.run(5.0 * period)
        member.suspect(member.peers[0])
    assert 2 <= len(member._banned_until_s) <= 20  # type: ignore[attr-defined]


@pytest.mark.parametrize("sign", ["a shuffle", "a message"])
def test_a_return_after_the_ban_is_reported_once(sign: str) -> None:
    members = overlay(3, banned_s=10.0, shuffle_every_s=1000.0)
    member = members.members["m0000"]
    assert member.peers == ["m0001", "m0002"]
    member.start(lambda peer, message: None)
    member.on_message(Goodbye(), "m0001")
    members.run(10.5)
    member.suspect("m0002")
    members.happened.clear()
    if sign == "a shuffle":
        member.on_message(CyclonRequest((("m0001", 0),)), "m0001")
        assert member.peers == ["m0001"]
    for _ in range(2):
        member.received_from("m0001")
    assert members.happened == [(10.5, "m0000", "m0001", True)]


def test_a_shuffle_must_fit_into_a_view() -> None:
    with pytest.raises(ValueError, match="must be from 1 to view_size"):
        overlay(5, view=4, shuffle=5)
