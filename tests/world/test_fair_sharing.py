"""Fair sharing: the pure algorithm, and the exact times at which transfers end."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.clock import VirtualLoop
from sim.world.fair_sharing import Link, SharedLinks, Transfer, max_min_rates
from tests.draws import examples


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


class Log:
    """Transfers between named ends, started at given times; collects (name, time of the end)."""

    def __init__(self, loop: VirtualLoop, **capacities_bps: float) -> None:
        self.loop = loop
        self.shared = SharedLinks(loop)
        self.links = {name: Link(name, bps) for name, bps in capacities_bps.items()}
        self.transfers: dict[str, Transfer] = {}
        self.ends: list[tuple[str, float]] = []

    def start(self, at_s: float, name: str, bits: float, *links: str) -> None:
        self.loop.call_at(at_s, self._start, name, bits, links)

    def _start(self, name: str, bits: float, links: tuple[str, ...]) -> None:
        self.transfers[name] = self.shared.start(
            bits,
            tuple(self.links[link] for link in links),
            lambda _: self.ends.append((name, self.loop.time())),
        )

    def cancel(self, at_s: float, name: str) -> None:
        self.loop.call_at(at_s, lambda: self.shared.cancel(self.transfers[name]))

    def capacity(self, at_s: float, link: str, bps: float) -> None:
        self.loop.call_at(at_s, lambda: self.shared.set_capacity(self.links[link], bps))

    def run(self) -> list[tuple[str, float]]:
        self.loop.run_until(1e6)
        assert not any(link.transfers for link in self.links.values())
        return self.ends


# -- max_min_rates


def test_a_long_flow_leaves_to_the_others_what_its_tightest_link_denies_it() -> None:
    flows = ["a", "ab", "b", "b", "bc", "c"]
    assert max_min_rates(flows, {"a": 12.0, "b": 7.5, "c": 3.0}) == [10.0, 2.0, 2.0, 2.0, 1.5, 1.5]


def test_levels_are_filled_from_the_lowest() -> None:
    flows = [("a",), ("a", "b"), ("b", "c"), ("c",)]
    assert max_min_rates(flows, {"a": 1.0, "b": 4.0, "c": 16.0}) == [0.5, 0.5, 3.5, 12.5]


def test_without_a_finite_link_there_is_no_limit() -> None:
    flows = [("a", "b"), ("b",), ()]
    assert max_min_rates(flows, {"a": 5.0, "b": math.inf}) == [5.0, math.inf, math.inf]
    assert max_min_rates([], {}) == []


capacities = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=6)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], dict[int, float]]:
    caps = dict(enumerate(draw(capacities)))
    flow = st.lists(st.sampled_from(list(caps)), min_size=1, max_size=3, unique=True)
    return draw(st.lists(flow, max_size=12)), caps


def assert_max_min_fair(flows: list[list[int]], caps: dict[int, float], rates: list[float]) -> None:
    """No link carries too much, and every flow has a saturated link on which no other flow is faster."""
    tolerance = 1e-9
    used = {
        link: sum(rate for links, rate in zip(flows, rates, strict=True) if link in links) for link in caps
    }
    for link, load in used.items():
        assert load <= caps[link] * (1 + tolerance)
    for links, rate in zip(flows, rates, strict=True):
        assert any(
            used[link] >= caps[link] * (1 - tolerance)
            and all(
                rate >= r * (1 - tolerance) for other, r in zip(flows, rates, strict=True) if link in other
            )
            for link in links
        )


@given(networks())
def test_rates_are_max_min_fair(network: tuple[list[list[int]], dict[int, float]]) -> None:
    flows, caps = network
    assert_max_min_fair(flows, caps, max_min_rates(flows, caps))


# -- SharedLinks: times worked out by hand


def test_one_transfer_takes_its_bits_over_the_slowest_link(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, down=4.0)
    log.start(1.0, "x", 16.0, "up", "down")
    assert log.run() == [("x", 5.0)]


def test_two_transfers_share_and_the_second_speeds_up_at_the_end_of_the_first(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, d1=100.0, d2=100.0)
    log.start(0.0, "long", 32.0, "up", "d1")  # 8 bits alone, 16 shared, then the last 8 alone
    log.start(1.0, "short", 16.0, "up", "d2")
    assert log.run() == [("short", 5.0), ("long", 6.0)]


def test_a_broadcast_shares_the_uplink_equally_and_ends_together(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, d0=100.0, d1=100.0, d2=100.0, d3=100.0)
    for i in range(4):
        log.start(0.0, f"x{i}", 8.0, "up", f"d{i}")
    assert log.run() == [(f"x{i}", 4.0) for i in range(4)]


def test_an_end_reaches_transfers_two_links_away(loop: VirtualLoop) -> None:
    # a -> x and b -> x share x's downlink; b -> y has what b's uplink leaves.
    log = Log(loop, a=10.0, b=6.0, x=4.0, y=100.0)
    log.start(0.0, "ax", 4.0, "a", "x")  # 2 bit/s until 2.0
    log.start(0.0, "bx", 9.0, "b", "x")  # 2 until 2.0 (5 left), 3 until 2.0 + 4 / 3, ...
    log.start(0.0, "by", 11.0, "b", "y")  # 4 until 2.0 (3 left), 3 until 3.0
    ends = log.run()
    assert ends == [("ax", 2.0), ("by", 3.0), ("bx", 3.5)]  # ... 3 until 3.0 (2 left), then 4


def test_a_third_transfer_comes_to_an_uplink_of_which_one_receiver_takes_little(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, slow=2.0, d1=100.0, d2=100.0)
    log.start(0.0, "p", 8.0, "up", "slow")  # 2 bit/s throughout
    log.start(0.0, "q", 12.0, "up", "d1")  # 6 until 1.0 (6 left), then 3 until 3.0
    log.start(1.0, "r", 15.0, "up", "d2")  # 3 until 3.0 (9 left), 6 until 4.0 (3 left), then 8
    assert log.run() == [("q", 3.0), ("p", 4.0), ("r", 4.375)]


def test_a_cancelled_transfer_leaves_its_share(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, d1=100.0, d2=100.0)
    log.start(0.0, "x", 16.0, "up", "d1")
    log.start(0.0, "y", 16.0, "up", "d2")
    log.cancel(1.0, "x")
    assert log.run() == [("y", 2.5)]


def test_start_and_cancel_within_one_instant(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, down=8.0)
    log.start(0.0, "x", 16.0, "up", "down")
    log.cancel(0.0, "x")
    log.start(0.0, "y", 16.0, "up", "down")
    assert log.run() == [("y", 2.0)]


def test_a_capacity_may_change_under_way(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, down=100.0)
    log.start(0.0, "x", 40.0, "up", "down")
    log.capacity(1.0, "up", 4.0)  # 32 bits left
    log.capacity(3.0, "down", 2.0)  # 24 left
    log.capacity(4.0, "down", 100.0)  # 22 left
    log.capacity(5.0, "up", math.inf)  # 18 left, at 100 bit/s
    assert log.run() == [("x", 5.18)]


def test_an_unlimited_link_ends_a_transfer_at_once(loop: VirtualLoop) -> None:
    log = Log(loop, up=8.0, down=math.inf)
    log.start(0.0, "x", 80.0, "up", "down")
    log.start(0.0, "y", 80.0, "up", "down")
    log.capacity(1.0, "up", math.inf)
    assert log.run() == [("x", 1.0), ("y", 1.0)]


def test_transfers_that_share_no_tight_link_are_left_alone(loop: VirtualLoop) -> None:
    """Five uplinks of 10 fit into one downlink of 50, so what starts and ends touches its own timer only."""
    log = Log(loop, down=50.0, **{f"up{i}": 10.0 for i in range(5)}, other=10.0)
    for i in range(5):
        log.start(0.0, f"x{i}", 100.0, f"up{i}", "down")
    log.start(0.0, "y", 30.0, "other")
    timers = {}
    loop.call_at(1.0, lambda: timers.update({name: transfer.due for name, transfer in log.transfers.items()}))
    log.cancel(2.0, "x4")
    log.start(4.0, "x4", 100.0, "up4", "down")
    loop.run_until(5.0)
    assert all(log.transfers[f"x{i}"].due == timers[f"x{i}"] for i in range(4))
    assert log.run() == [("y", 3.0), ("x0", 10.0), ("x1", 10.0), ("x2", 10.0), ("x3", 10.0), ("x4", 14.0)]


def test_who_has_lost_its_bottleneck_gets_all_its_links_opened_together(loop: VirtualLoop) -> None:
    """Also links that no changed transfer passes: one by one, rates are the same but for their rounding."""
    opened: list[str] = []

    class Noted(SharedLinks):
        def _fair_rates(self, open_links: dict[Link, None]) -> dict[Transfer, float]:
            opened.append(" ".join(sorted(link.name for link in open_links)))
            return super()._fair_rates(open_links)

    log = Log(loop, a=1.0, b=4.0, c=5.0, d=10.0)
    log.shared = Noted(loop)
    for name, links in {"x": "ab", "y": "bc", "z": "cd", "w": "d"}.items():
        log.start(0.0, name, 100.0, *links)
    loop.run_until(0.5)
    assert [transfer.rate_bps for transfer in log.transfers.values()] == [1.0, 2.5, 2.5, 7.5]
    opened.clear()
    log.capacity(1.0, "a", 4.0)  # x takes of b what y had, which leaves z more of c, and that w less of d
    loop.run_until(1.0)
    assert [transfer.rate_bps for transfer in log.transfers.values()] == [2.0, 2.0, 3.0, 7.0]
    assert opened == ["b", "b c d"]


# -- SharedLinks against the pure algorithm


actions = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "start", "cancel", "capacity"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.floats(0.5, 50.0),
        st.floats(0.0, 2.0),
    ),
    max_size=30,
)


@given(actions, st.lists(st.floats(0.5, 50.0), min_size=12, max_size=12))
@examples(60)
def test_partial_recomputation_gives_the_global_optimum(
    steps: list[tuple[str, int, int, float, float]], capacities_bps: list[float]
) -> None:
    """Whatever starts, ends and changes: the rates in use are max-min fair over all the transfers."""
    loop = VirtualLoop()
    shared = SharedLinks(loop)
    ups = [Link(f"up{i}", bps) for i, bps in enumerate(capacities_bps[:6])]
    downs = [Link(f"down{i}", bps) for i, bps in enumerate(capacities_bps[6:])]
    open_transfers: dict[Transfer, float] = {}

    def check() -> None:
        numbers = {link: number for number, link in enumerate(ups + downs)}
        flows = [[numbers[link] for link in transfer.links] for transfer in open_transfers]
        caps = {number: link.capacity_bps for link, number in numbers.items()}
        assert_max_min_fair(flows, caps, [transfer.rate_bps for transfer in open_transfers])

    for kind, i, j, amount, pause_s in steps:
        if kind == "start":
            transfer = shared.start(amount, (ups[i], downs[j]), open_transfers.__delitem__)
            open_transfers[transfer] = amount
        elif kind == "cancel" and open_transfers:
            transfer = list(open_transfers)[(6 * i + j) % len(open_transfers)]
            del open_transfers[transfer]
            shared.cancel(transfer)
        elif kind == "capacity":
            shared.set_capacity((ups + downs)[6 * (j % 2) + i], amount)
        loop.run_until(loop.time())
        check()
        end_s = loop.time() + pause_s
        while loop.time() < end_s:  # in small paces, to see the ends in between too
            loop.run_until(min(loop.time() + 0.25, end_s))
            check()
    loop.run_until(1e6)
    assert not open_transfers
    assert not any(link.transfers for link in ups + downs)
    loop.close()


@given(actions, st.lists(st.sampled_from([1.0, 10 / 3, 7.0, 20.0, 50.0]), min_size=12, max_size=12))
@examples(60)
def test_the_short_way_for_one_shared_link_gives_the_same_bits(
    steps: list[tuple[str, int, int, float, float]], capacities_bps: list[float]
) -> None:
    class General(SharedLinks):
        def _equal_shares(self, open_links: dict[Link, None]) -> None:
            return None

    def ends(kind: type[SharedLinks]) -> list[tuple[str, float]]:
        loop = VirtualLoop()
        names = [f"{side}{i}" for side in ("up", "down") for i in range(6)]
        log = Log(loop, **dict(zip(names, capacities_bps, strict=True)))
        log.shared, at_s = kind(loop), 0.0
        for number, (what, i, j, amount, pause_s) in enumerate(steps):
            if what == "start":
                for receiver in range(6):  # to all receivers, as a broadcast
                    log.start(at_s, f"{number}.{receiver}", amount, f"up{i}", f"down{receiver}")
            elif what == "capacity":
                log.capacity(at_s, f"up{i}" if j % 2 else f"down{i}", amount)
            at_s += pause_s
        found = log.run()
        loop.close()
        return found

    assert ends(SharedLinks) == ends(General)


def naive_ends(
    starts: list[tuple[float, float, tuple[int, int]]], caps: dict[int, float]
) -> dict[int, float]:
    """The end of each transfer, with all rates computed anew at every event."""
    waiting = sorted(range(len(starts)), key=lambda i: starts[i][0])
    left: dict[int, float] = {}
    ends: dict[int, float] = {}
    now_s = 0.0
    while waiting or left:
        rates = dict(zip(left, max_min_rates([starts[i][2] for i in left], caps), strict=True))
        end_s, first = min(((now_s + left[i] / rates[i], i) for i in left), default=(math.inf, -1))
        next_s = min(end_s, starts[waiting[0]][0] if waiting else math.inf)
        for i, rate in rates.items():
            left[i] -= rate * (next_s - now_s)
        now_s = next_s
        if end_s == next_s:
            ends[first] = next_s
            del left[first]
        else:
            left[waiting[0]] = starts[waiting[0]][1]
            waiting.pop(0)
    return ends


@given(
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.floats(1.0, 50.0), st.tuples(st.integers(0, 3), st.integers(4, 7))),
        max_size=15,
    ),
    st.lists(st.floats(0.5, 50.0), min_size=8, max_size=8),
)
@examples(60)
def test_ends_are_those_of_a_naive_simulation(
    starts: list[tuple[float, float, tuple[int, int]]], capacities_bps: list[float]
) -> None:
    loop = VirtualLoop()
    log = Log(loop, **{str(i): bps for i, bps in enumerate(capacities_bps)})
    for i, (at_s, bits, links) in enumerate(starts):
        log.start(at_s, str(i), bits, *map(str, links))
    ends = {int(name): end_s for name, end_s in log.run()}
    loop.close()
    assert ends == pytest.approx(naive_ends(starts, dict(enumerate(capacities_bps))))


def test_where_two_links_hold_up_alike_filling_decides_the_last_bit(loop: VirtualLoop) -> None:
    shared, down = SharedLinks(loop), Link("down", 10.0)
    ups = [Link("up0", 10 / 3), Link("up1", 20.0), Link("up2", 20.0)]
    rates = [shared.start(8.0, (up, down), lambda _: None) for up in ups]
    loop.run_until(0.0)
    flows, limits = (
        [(up.name, down.name) for up in ups],
        {link.name: link.capacity_bps for link in (*ups, down)},
    )
    filled = max_min_rates(flows, limits)
    assert [each.rate_bps for each in rates] == filled != [10 / 3] * 3


def test_who_else_has_changed_is_not_left_out(loop: VirtualLoop) -> None:
    shared = SharedLinks(loop)
    up, free, downs = Link("up", 8.0), Link("free", 100.0), [Link(f"d{i}", 100.0) for i in range(4)]
    transfers = [
        shared.start(1e9, (link, down), lambda _: None)
        for link, down in zip([up, up, free], downs[:3], strict=True)
    ]
    loop.run_until(0.0)
    shared.set_capacity(free, 50.0)
    shared.start(1e9, (up, downs[3]), lambda _: None)
    loop.run_until(0.0)
    assert [each.rate_bps for each in transfers] == [8 / 3, 8 / 3, 50.0]
