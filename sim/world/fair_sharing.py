"""Max-min fair sharing of links by concurrent fluid transfers.

A transfer is a fluid that passes all its links at one rate. Rates are max-min fair: no rate can be raised
without lowering a rate that is no larger (Bertsekas and Gallager, Data Networks, 2nd edition, section 6.5.2).
Rates change only when a transfer starts or ends, or when a capacity changes. The end times of transfers are
therefore exact, without time steps. Units are bits, bits per second and seconds of virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from sim.kernel.timers import NEVER

if TYPE_CHECKING:
    from sim.kernel.clock import VirtualLoop

L = TypeVar("L", bound=Hashable)

_NEARLY_ONE = 1 - 1e-12  # a sum of rates may differ from a capacity by rounding


def max_min_rates(flows: Sequence[Sequence[L]], capacities: Mapping[L, float]) -> list[float]:
    """Return the max-min fair rate of each flow, by progressive filling, in the unit of the capacities.

    flows: flows[i] lists the links that flow i passes, each at most once. capacities: 0 or more, maybe
    infinite. The rate of a flow without a finite link is `math.inf`.
    """
    rates = [math.inf] * len(flows)
    users: dict[L, list[int]] = {}
    for flow, links in enumerate(flows):
        for link in links:
            if capacities[link] < math.inf:
                users.setdefault(link, []).append(flow)
    left = {link: capacities[link] for link in users}
    waiting = {link: len(flow_ids) for link, flow_ids in users.items()}
    # The position breaks ties: links need no order, and the result is reproducible.
    heap = [(left[link] / waiting[link], position, link) for position, link in enumerate(users)]
    heapify(heap)
    flows_left = len(set[int]().union(*users.values()))
    while flows_left:
        share, position, link = heappop(heap)
        if not waiting[link]:
            continue
        current = left[link] / waiting[link]
        if current > share:  # outdated entry: shares grow as slower transfers are fixed
            heappush(heap, (current, position, link))
            continue
        flows_left -= waiting[link]
        for flow in users[link]:
            if rates[flow] == math.inf:
                rates[flow] = current
                if flows_left:  # unused capacity after the last flows is not needed
                    for passed in flows[flow]:
                        if passed in waiting:
                            left[passed] -= current
                            waiting[passed] -= 1
    return rates


@dataclass(slots=True, eq=False, repr=False)
class Link:
    """One direction of an actor's access to the network, with the transfers that share it now.

    transfers: in the order of their starts.
    """

    name: str
    capacity_bps: float = math.inf
    transfers: dict[Transfer, None] = field(default_factory=dict)
    binding: bool = False

    def __repr__(self) -> str:
        return f"<Link {self.name} {self.capacity_bps:g} bit/s, {len(self.transfers)} transfers>"

    def can_bind(self) -> bool:
        """Return True if the transfers of this link could exceed its capacity.

        The slowest of a transfer's links limits its rate, so a single transfer never exceeds the capacity.
        """
        if self.capacity_bps == math.inf or len(self.transfers) < 2:
            return False
        demand_bps = 0.0
        for transfer in self.transfers:
            demand_bps += transfer.ceiling_bps
            if demand_bps > self.capacity_bps:
                return True
        return False


@dataclass(slots=True, eq=False, repr=False)
class Transfer:
    """Bits that pass through links, and the timer of their end. `SharedLinks` starts it and sets the rate.

    number: in order of starts. bits_left: at since_s. ceiling_bps: the smallest capacity of its links.
    """

    number: int
    bits_left: float
    links: tuple[Link, ...]
    done: Callable[[Transfer], None]
    since_s: float
    shared: SharedLinks
    rate_bps: float = 0.0
    due: int = NEVER
    ceiling_bps: float = math.inf

    def find_ceiling(self) -> None:
        """Set the ceiling from the current capacities."""
        ceiling_bps = math.inf
        for link in self.links:
            if link.capacity_bps < ceiling_bps:
                ceiling_bps = link.capacity_bps
        self.ceiling_bps = ceiling_bps

    def __repr__(self) -> str:
        return f"<Transfer {' '.join(link.name for link in self.links)} {self.rate_bps:g} bit/s>"

    def fire(self) -> None:
        """End the transfer, unless it was canceled or rescheduled at this virtual time."""
        if self.due == NEVER and self in self.links[0].transfers:
            self.shared.remove(self)
            self.done(self)


class SharedLinks:
    """Running transfers, each at its max-min fair rate. Each calls `done(transfer)` at its exact end.

    Rates are recomputed once at the end of a virtual time at which anything changed. A recomputation starts
    with the transfers on the changed links, and keeps all other rates. It includes further links only if a
    transfer would be left without a bottleneck, so the cost depends on the reach of the change. A link
    *binds* if its transfers could use more than its capacity; other links pass no change on.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.due = NEVER  # number of the timer that recomputes rates
        self._loop = loop
        self._changed_links: dict[Link, None] = {}
        self._changed_transfers: dict[Transfer, None] = {}
        self._scheduled = False
        self._started = 0

    def start(self, bits: float, links: tuple[Link, ...], done: Callable[[Transfer], None]) -> Transfer:
        """Start a transfer of `bits` > 0 through one or more links. `done(transfer)` is called at its end."""
        self._started += 1
        transfer = Transfer(self._started, bits, links, done, self._loop.now_s, self)
        transfer.find_ceiling()
        binds = False
        for link in links:
            link.transfers[transfer] = None
            binds = binds or link.binding or (len(link.transfers) > 1 and link.can_bind())
        if binds:
            self._changed_transfers[transfer] = None
            for link in links:
                self._touch(link)
        else:  # no link binds: full rate, no effect on other transfers
            self._pace(transfer, transfer.ceiling_bps, transfer.since_s)
        return transfer

    def cancel(self, transfer: Transfer) -> None:
        """End a running transfer without calling `done`. Other transfers get its share from now on."""
        self._loop.withdraw(transfer)
        self.remove(transfer)

    def set_capacity(self, link: Link, capacity_bps: float) -> None:
        """Change the capacity of a link and of its running transfers. 0: transfers wait; `math.inf`:
        unlimited."""
        link.capacity_bps = capacity_bps
        for transfer in link.transfers:
            transfer.find_ceiling()
            self._changed_transfers[transfer] = None
            for passed in transfer.links:  # its use of its other links may change
                self._touch(passed)

    def remove(self, transfer: Transfer) -> None:
        """Give the share of an ended transfer to the other transfers."""
        for link in transfer.links:
            del link.transfers[transfer]
        self._changed_transfers.pop(transfer, None)
        for link in transfer.links:
            if link.binding:
                self._touch(link)

    def _touch(self, link: Link) -> None:
        self._changed_links[link] = None
        if not self._scheduled:
            self._scheduled = True
            # A timer fires after those that are due already at this virtual time; call_soon would not.
            self._loop.schedule(self._loop.now_s, self)

    def fire(self) -> None:
        """Set the fair rates and the timers of all affected transfers."""
        self._scheduled = False
        open_links: dict[Link, None] = {}
        for link in self._changed_links:
            was_binding, link.binding = link.binding, link.can_bind()
            if was_binding or link.binding:
                open_links[link] = None
        rates_bps = self._equal_shares(open_links) or self._settled_rates(open_links)
        self._changed_links.clear()
        self._changed_transfers.clear()
        now_s = self._loop.now_s
        for transfer, rate_bps in rates_bps.items():
            if rate_bps != transfer.rate_bps:  # otherwise keep the timer: no further rounding
                self._pace(transfer, rate_bps, now_s)

    def _equal_shares(self, open_links: dict[Link, None]) -> dict[Transfer, float] | None:
        """Return the rates of transfers that only one open link limits, to the same bits as `_settled_rates`.

        None if it is not so simple. Messages to many receivers share only the sender's uplink.
        """
        if len(open_links) != 1:
            return None
        [link] = open_links
        transfers = link.transfers
        if not transfers or not self._changed_transfers.keys() <= transfers.keys():
            return None
        share_bps = link.capacity_bps / len(transfers)
        for transfer in transfers:
            for other in transfer.links:
                if other is not link and (len(other.transfers) > 1 or other.capacity_bps <= share_bps):
                    return None
        return dict.fromkeys(transfers, share_bps)

    def _settled_rates(self, open_links: dict[Link, None]) -> dict[Transfer, float]:
        """Return the fair rates of all affected transfers; adds further affected links to `open_links`."""
        while True:
            rates_bps, closed_links = self._fair_rates(open_links)
            unsettled = self._unsettled_links(rates_bps, closed_links, open_links) if closed_links else ()
            if not unsettled:
                return rates_bps
            open_links.update(dict.fromkeys(unsettled))

    def _fair_rates(self, open_links: dict[Link, None]) -> tuple[dict[Transfer, float], list[Link]]:
        """Return the fair rates of changed transfers and of all transfers on open links, in starting order.

        Other transfers keep their rates. Also returns the other binding links that these transfers pass.
        """
        members = dict(self._changed_transfers)
        for link in open_links:
            members.update(link.transfers)
        if not members:
            return {}, []
        transfers = sorted(members, key=attrgetter("number"))
        room_bps: dict[Link, float] = {}
        closed_links: list[Link] = []
        for transfer in transfers:
            for link in transfer.links:
                if link in room_bps:
                    continue
                room_bps[link] = link.capacity_bps
                if link.binding and link not in open_links:
                    closed_links.append(link)
                    room_bps[link] -= sum(other.rate_bps for other in link.transfers if other not in members)
        rates_bps = max_min_rates([transfer.links for transfer in transfers], room_bps)
        return dict(zip(transfers, rates_bps, strict=True)), closed_links

    def _unsettled_links(
        self, rates_bps: dict[Transfer, float], closed_links: list[Link], open_links: dict[Link, None]
    ) -> list[Link]:
        """Return the links of transfers without a bottleneck at these rates; these links must be opened, too.

        Rates are max-min fair if and only if each transfer has a bottleneck: a full link on which no transfer
        is faster. Only transfers on a closed link, on which some rates are new and others are not, can lack
        one.
        """
        tops_bps: dict[Link, float] = {}
        unsettled: list[Link] = []
        for transfer in dict.fromkeys(transfer for link in closed_links for transfer in link.transfers):
            rate_bps = rates_bps.get(transfer, transfer.rate_bps)
            for link in transfer.links:
                if link not in tops_bps:
                    tops_bps[link] = _fastest_rate_if_full(link, rates_bps)
                if rate_bps >= tops_bps[link] * _NEARLY_ONE:
                    break
            else:
                unsettled += [link for link in transfer.links if link.binding and link not in open_links]
        return unsettled

    def _pace(self, transfer: Transfer, rate_bps: float, now_s: float) -> None:
        self._loop.withdraw(transfer)
        if now_s > transfer.since_s:  # avoids infinity times 0
            moved_bits = transfer.rate_bps * (now_s - transfer.since_s)
            transfer.bits_left = max(0.0, transfer.bits_left - moved_bits)  # rounding may overshoot the end
            transfer.since_s = now_s
        transfer.rate_bps = rate_bps
        if rate_bps:
            self._loop.schedule(now_s + transfer.bits_left / rate_bps, transfer)


def _fastest_rate_if_full(link: Link, rates_bps: dict[Transfer, float]) -> float:
    """Return the fastest of the new rates on a link, or infinity if the link is not full."""
    rates = [rates_bps.get(transfer, transfer.rate_bps) for transfer in link.transfers]
    return max(rates) if sum(rates) >= link.capacity_bps * _NEARLY_ONE else math.inf
