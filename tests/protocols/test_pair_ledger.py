"""Two ends of a pair that lose, repeat and reorder messages: each step counts once, and they agree again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocols.shared.pair_ledger import Account, PairStepLedger


@dataclass
class End:
    """Holds a number, moved by steps and clipped to `most`, and what it has been sent."""

    leads: bool
    most: float
    value: float = 0.0
    ledger: PairStepLedger = field(init=False)
    inbox: list[Account] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = PairStepLedger()

    def move(self, step: Any) -> None:
        self.value = min(self.most, max(-self.most, self.value + step))

    def step(self, step: Any) -> None:
        self.move(step)
        self.ledger.record(step)

    def send(self, other: End) -> None:
        other.inbox.append(self.ledger.account(self.value))

    def receive(self, account: Account) -> None:
        correction = self.ledger.merge(account, leads=self.leads)
        if correction.value is not None:
            assert isinstance(correction.value, float)
            self.value = correction.value
        else:
            for step in correction.steps:
                self.move(step)


# What happens: an end (0 or 1) makes a step of so much, sends an account, or receives one of those sent to
# it, old ones and the same one again included. What is never received was lost.
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 1), st.integers(-8, 8).map(lambda number: number / 4)),
        st.tuples(st.just("send"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("receive"), st.integers(0, 1), st.integers(0, 100)),
    ),
    max_size=60,
)


def played(events: list[tuple[str, int, Any]], most: float) -> tuple[End, End]:
    ends = End(leads=True, most=most), End(leads=False, most=most)
    for what, number, value in events:
        end, other = ends[number], ends[1 - number]
        if what == "step":
            end.step(value)
        elif what == "send":
            end.send(other)
        elif end.inbox:
            end.receive(end.inbox[value % len(end.inbox)])
    return ends


@given(EVENTS)
def test_each_step_counts_once_whatever_was_lost_repeated_or_reordered(
    events: list[tuple[str, int, Any]],
) -> None:
    first, second = played(events, most=1e9)
    first.receive(second.ledger.account(second.value))
    second.receive(first.ledger.account(first.value))
    steps = [value for what, _, value in events if what == "step"]
    assert first.value == second.value == sum(steps)  # quarters: exact in any order
    assert first.ledger.steps_in_all == second.ledger.steps_in_all == len(steps)
    assert second.ledger.unconfirmed == ()


@given(EVENTS)
def test_ends_that_clip_agree_after_one_exchange(events: list[tuple[str, int, Any]]) -> None:
    first, second = played(events, most=1.0)
    first.receive(second.ledger.account(second.value))
    second.receive(first.ledger.account(first.value))
    assert first.value == second.value


@given(EVENTS, st.integers(0, 1))
def test_an_end_that_lost_its_books_takes_over_the_others(
    events: list[tuple[str, int, Any]], loser: int
) -> None:
    ends = played(events, most=1.0)
    lost, other = ends[loser], ends[1 - loser]
    if other.ledger.taken == 0:
        return  # nothing of it is known to the other
    lost.value, lost.ledger = 0.0, PairStepLedger()
    lost.receive(other.ledger.account(other.value))
    assert lost.value == other.value
    assert lost.ledger.steps_in_all == other.ledger.steps_in_all
    lost.step(0.25)
    other.receive(lost.ledger.account(lost.value))
    lost.receive(other.ledger.account(other.value))
    assert lost.value == other.value


def test_only_what_is_not_confirmed_travels() -> None:
    first, second = PairStepLedger(), PairStepLedger()
    for step in (1.0, 2.0, 3.0):
        first.record(step)  # type: ignore[arg-type]
    assert first.account(6.0).steps == (1.0, 2.0, 3.0)
    assert second.merge(first.account(6.0), leads=False).steps == (1.0, 2.0, 3.0)
    first.merge(second.account(6.0), leads=True)
    assert first.account(6.0).steps == ()
    first.record(4.0)  # type: ignore[arg-type]
    assert second.merge(first.account(10.0), leads=False).steps == (4.0,)
