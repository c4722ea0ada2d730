"""The mailbox: order, bounds, and selective receive."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from weakref import finalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.codec import size
from actors.mailbox import Mailbox
from actors.message import Envelope


@dataclass(frozen=True)
class Note:
    number: int


@dataclass(frozen=True)
class Data:
    content: bytes


@dataclass(frozen=True)
class Kept(Data):
    pass


@dataclass(frozen=True)
class Model:
    round: int


def note(number: int, sender: str = "a") -> Envelope:
    return Envelope(sender, "me", Note(number))


def model(sender: str, round_: int) -> Envelope:
    return Envelope(sender, "me", Model(round_))


def of_round(round_: int) -> Callable[[Envelope], bool]:
    return lambda envelope: envelope.message == Model(round_)


@pytest.mark.asyncio
async def test_first_in_first_out() -> None:
    box = Mailbox(10)
    for number in range(3):
        assert box.put(note(number))
    assert len(box) == 3
    assert [box.arrived.pop(0), await box.get(), await box.get()] == [note(0), note(1), note(2)]
    assert not box.arrived


@pytest.mark.asyncio
async def test_get_waits_for_the_next_message() -> None:
    box = Mailbox(10)
    getting = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.put(note(1))
    box.put(note(2))
    assert await getting == note(1)
    assert list(box.arrived) == [note(2)]


@pytest.mark.asyncio
async def test_a_cancelled_get_takes_nothing() -> None:
    box = Mailbox(10)
    getting = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.put(note(1))
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting
    assert await box.get() == note(1)


def test_overflow_is_refused_and_counted_over_both_kinds() -> None:
    box = Mailbox(2, (Model,))
    assert box.put(note(1))
    assert box.put(model("a", 1))
    assert not box.put(note(2))
    assert not box.put(model("a", 2))
    assert (len(box), box.overflows) == (2, 2)
    box.arrived.pop(0)
    assert box.put(model("a", 3))
    assert (len(box), box.overflows) == (2, 2)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_mailbox_has_room(capacity: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Mailbox(capacity)


@pytest.mark.asyncio
async def test_a_mailbox_of_few_bytes_holds_few_messages() -> None:
    notes = [Envelope("a", "b", Data(bytes(1_000))) for _ in range(20)]
    one = size(notes[0])

    mailbox = Mailbox(100, (Kept,), limit_bytes=18.5 * one)
    kept = Envelope("a", "b", Kept(bytes(1_000)))
    assert [mailbox.put(each) for each in (*notes[:17], kept, *notes[17:])] == [True] * 18 + [False] * 3
    assert (len(mailbox), mailbox.overflows) == (18, 3)
    assert await mailbox.get() is notes[0]
    assert [mailbox.put(each) for each in notes[:5]] == [True] + [False] * 4
    mailbox.clear()
    large = Envelope("a", "b", Data(bytes(9_000)))
    assert [mailbox.put(large) for _ in range(18)] == [True] * 16 + [False] * 2  # few may be larger


@pytest.mark.asyncio
@given(st.lists(st.integers(0, 60), max_size=90), st.integers(0, 3_000))
async def test_bytes_are_counted_anew_only_when_something_was_taken(steps: list[int], limit: int) -> None:
    """As with a count of all that waits at every message; 0 to 9 takes so many."""

    mailbox, waiting = Mailbox(1_000, limit_bytes=limit), list[Envelope]()
    for step in steps:
        if step < 10:
            for _ in range(min(step, len(waiting))):
                assert await mailbox.get() is waiting.pop(0)
            continue
        note = Envelope("a", "b", Data(bytes(step)))
        fits = len(waiting) < 16 or sum(map(size, waiting)) + size(note) <= limit
        assert mailbox.put(note) is fits
        waiting += [note] * fits


@pytest.mark.asyncio
async def test_collect_takes_early_messages_and_waits_for_the_rest() -> None:
    box = Mailbox(10, (Model,))
    box.put(model("b", 1))
    collecting = asyncio.create_task(box.collect(Model, ["a", "b", "c"]))
    await asyncio.sleep(0)
    assert box.waits() == ["Model from a, c"]
    box.put(note(1))
    box.put(model("c", 1))
    box.put(model("x", 1))
    assert box.waits() == ["Model from a"]
    assert not collecting.done()
    box.put(model("a", 1))
    found = await collecting
    assert list(found.items()) == [(peer, model(peer, 1)) for peer in "abc"]
    assert box.waits() == []
    assert len(box) == 2  # the note, and the model of x, whom nobody asked for


@pytest.mark.asyncio
async def test_collect_leaves_other_rounds_in_order() -> None:
    box = Mailbox(10, (Model,))
    for round_ in (3, 1, 2):
        box.put(model("a", round_))
    assert await box.collect(Model, ["a"], where=of_round(2)) == {"a": model("a", 2)}
    assert await box.collect(Model, ["a"]) == {"a": model("a", 3)}
    assert await box.collect(Model, ["a"]) == {"a": model("a", 1)}
    assert await box.collect(Model, []) == {}


@pytest.mark.asyncio
async def test_collect_returns_after_its_timeout_what_came() -> None:
    box = Mailbox(10, (Model,))
    box.put(model("b", 1))
    assert await box.collect(Model, ["a", "b"], timeout=0.001) == {"b": model("b", 1)}
    box.put(model("a", 1))
    assert len(box) == 1  # nobody collects any more
    assert await box.collect(Model, ["a"], timeout=0) == {"a": model("a", 1)}
    assert await box.collect(Model, ["a"], timeout=0) == {}


@pytest.mark.asyncio
async def test_two_collections_share_what_comes() -> None:
    box = Mailbox(10, (Model,))
    first = asyncio.create_task(box.collect(Model, ["a"], where=of_round(1)))
    second = asyncio.create_task(box.collect(Model, ["a"]))
    await asyncio.sleep(0)
    box.put(model("a", 2))
    box.put(model("a", 1))
    assert [await first, await second] == [{"a": model("a", 1)}, {"a": model("a", 2)}]


@pytest.mark.asyncio
async def test_a_cancelled_collection_takes_no_more() -> None:
    box = Mailbox(10, (Model,))
    collecting = asyncio.create_task(box.collect(Model, ["a"]))
    await asyncio.sleep(0)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    box.put(model("a", 1))
    assert (len(box), box.waits()) == (1, [])


@pytest.mark.asyncio
@pytest.mark.parametrize("early", [True, False])
async def test_an_error_in_where_is_the_collectors_and_loses_no_message(early: bool) -> None:
    def broken(envelope: Envelope) -> bool:
        raise ZeroDivisionError

    box = Mailbox(10, (Model,))
    collecting = asyncio.create_task(box.collect(Model, ["a"], where=broken))
    if early:
        assert box.put(model("a", 1))
    await asyncio.sleep(0)
    if not early:
        assert box.put(model("a", 1))
    with pytest.raises(ZeroDivisionError):
        await collecting
    assert (len(box), box.waits()) == (1, [])


def test_discard() -> None:
    box = Mailbox(10, (Model,))
    box.put(note(1))
    for round_ in (1, 2, 3):
        box.put(model("a", round_))
    assert box.discard(Model, lambda envelope: envelope.message != Model(3)) == 2
    assert len(box) == 2
    assert box.discard(Model) == 1
    assert len(box) == 1
    assert box.discard(Model) == 0


def test_clear_drops_everything() -> None:
    box = Mailbox(2, (Model,))
    box.put(note(1))
    box.put(model("a", 1))
    box.clear()
    assert (len(box), len(box.arrived), box.discard(Model)) == (0, 0, 0)
    assert box.put(note(1))


@pytest.mark.asyncio
async def test_long_waits_are_abridged() -> None:
    box = Mailbox(10, (Model,))
    collecting = asyncio.create_task(box.collect(Model, [f"c{index}" for index in range(10)]))
    await asyncio.sleep(0)
    assert box.waits() == ["Model from c0, c1, c2, c3, c4, c5, c6, c7 and 2 more"]
    collecting.cancel()


@pytest.mark.asyncio
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans()), max_size=20),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=10),
)
async def test_nothing_is_lost_but_overflow(
    capacity: int, arrivals: list[tuple[str, int, bool]], collects: list[tuple[str, int]]
) -> None:
    """Messages taken, waiting and refused add up, and each taker gets the earliest match."""

    box = Mailbox(capacity, (Model,))
    accepted = [
        (sender, number, is_model)
        for sender, number, is_model in arrivals
        if box.put(model(sender, number) if is_model else note(number, sender))
    ]
    assert len(accepted) + box.overflows == len(arrivals)
    assert len(accepted) == min(capacity, len(arrivals)) == len(box)
    kept = [(sender, number) for sender, number, is_model in accepted if is_model]
    for sender, number in collects:
        found = await box.collect(Model, [sender], timeout=0, where=of_round(number))
        assert found == ({sender: model(sender, number)} if (sender, number) in kept else {})
        if found:
            kept.remove((sender, number))
    notes = [await box.get() for _ in range(len(box) - len(kept))]
    assert notes == [note(number, sender) for sender, number, is_model in accepted if not is_model]
    assert len(box) == len(kept) == box.discard(Model)


def test_what_is_cleared_goes_in_the_order_in_which_it_came() -> None:
    """With messages go the vectors in them; in another order, others would be computed in their places."""
    box, gone = Mailbox(10), list[int]()
    for number in range(3):
        envelope = note(number)
        finalize(envelope.message, gone.append, number)
        box.put(envelope)
    del envelope
    box.clear()
    assert (len(box), gone) == (0, [0, 1, 2])
