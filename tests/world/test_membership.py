"""MembershipView: what a client believes about its neighbors, and from what it learns."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.membership.view import AnnouncedView, Goodbye, Hello, MembershipView
from sim.world.membership.directory import Directory, DirectoryView

NAMES = ["a", "b", "c", "d"]


@dataclass(frozen=True)
class Model:
    """A message that is not about membership."""


class Post:
    """Delivers messages on the spot, as a client's actor would, unless the receiver is down."""

    def __init__(self, members: dict[str, MembershipView]) -> None:
        self.members = members
        self.down: set[str] = set()
        self.log: list[tuple[str, str, object]] = []

    def send(self, sender: str, peer: str, message: object) -> None:
        self.log.append((sender, peer, message))
        if peer not in self.down:
            self.members[peer].received_from(sender)
            self.members[peer].on_message(message, sender)

    def join(self, name: str) -> None:
        self.down.discard(name)
        self.members[name].join(lambda peer, message: self.send(name, peer, message))

    def leave(self, name: str) -> None:
        self.members[name].leave(lambda peer, message: self.send(name, peer, message))
        self.down.add(name)

    def crash(self, name: str) -> None:
        self.members[name].crash()
        self.down.add(name)

    def views(self) -> dict[str, str]:
        return {name: "".join(member.peers) for name, member in self.members.items()}


def others(name: str) -> list[str]:
    return [other for other in NAMES if other != name]


def announced() -> Post:
    return Post({name: AnnouncedView(name, others(name)) for name in NAMES})


def all_knowing(up: str) -> Post:
    directory = Directory(up)
    post = Post({name: DirectoryView(name, others(name), directory) for name in NAMES})
    post.down = {name for name in NAMES if name not in up}
    return post


def no_tell(peer: str, message: object) -> None:
    raise AssertionError(f"{message} was sent to {peer}")


# --- both kinds ---


@pytest.mark.parametrize("make", [announced, lambda: all_knowing("abcd")])
def test_peers_are_sorted_and_a_list_that_was_read_stays_as_it_is(make: Callable[[], Post]) -> None:
    post = make()
    member = post.members["b"]
    before = member.peers
    assert member.peers is before  # reading costs nothing
    post.leave("a")
    assert (before, member.peers) == (["a", "c", "d"], ["c", "d"])
    post.join("a")
    assert member.peers == ["a", "c", "d"]


def test_neighbours_are_sorted_and_named_once() -> None:
    assert AnnouncedView("c", ["d", "a", "d"]).neighbours == ("a", "d")
    with pytest.raises(ValueError, match="a cannot be its own neighbor"):
        AnnouncedView("a", ["a", "b"])


@pytest.mark.parametrize("make", [announced, lambda: all_knowing("abcd")])
def test_changes_are_reported_one_by_one(make: Callable[[], Post]) -> None:
    post = make()
    log: list[tuple[str, bool, list[str]]] = []
    member = post.members["b"]
    member.on_change = lambda peer, up: log.append((peer, up, member.peers))
    post.leave("c")
    post.leave("a")
    post.join("c")
    assert log == [("c", False, ["a", "d"]), ("a", False, ["d"]), ("c", True, ["c", "d"])]


def test_who_comes_back_reports_what_it_believes_otherwise_than_before() -> None:
    member = AnnouncedView("a", ["b", "c"])
    member.suspect("b")
    log: list[tuple[str, bool]] = []
    member.on_change = lambda peer, up: log.append((peer, up))
    member.join(lambda peer, message: None)
    assert log == [("b", True)]


# --- announce ---


def test_hello_and_goodbye_are_messages_to_the_topology_neighbours() -> None:
    members: dict[str, MembershipView] = {
        "a": AnnouncedView("a", ["b", "c"]),
        "b": AnnouncedView("b", ["a"]),
        "c": AnnouncedView("c", ["a"]),
        "d": AnnouncedView("d", []),
    }
    post = Post(members)
    members["a"].suspect("c")  # wrongly: it is told all the same
    post.leave("a")
    post.join("a")
    assert post.log == [
        ("a", "b", Goodbye()),
        ("a", "c", Goodbye()),
        ("a", "b", Hello()),
        ("a", "c", Hello()),
    ]


def test_membership_messages_are_consumed() -> None:
    member = AnnouncedView("a", ["b"])
    assert member.on_message(Goodbye(), "b")
    assert member.peers == []
    assert member.on_message(Hello(), "b")
    assert member.peers == ["b"]


def test_a_crash_is_silent_until_somebody_suspects_it() -> None:
    post = announced()
    post.crash("d")
    assert (post.log, post.views()) == ([], {"a": "bcd", "b": "acd", "c": "abd", "d": "abc"})
    post.members["a"].suspect("d")
    assert post.views() == {"a": "bc", "b": "acd", "c": "abd", "d": "abc"}


def test_any_message_clears_a_suspicion() -> None:
    member = AnnouncedView("a", ["b", "c"])
    member.suspect("b")
    member.suspect("b")
    member.received_from("c")
    assert member.peers == ["c"]
    member.received_from("b")
    assert member.peers == ["b", "c"]


def test_strangers_never_become_peers() -> None:
    member = AnnouncedView("a", ["b"])
    member.received_from("x")
    assert member.on_message(Hello(), "x")
    assert member.on_message(Goodbye(), "x")
    member.suspect("x")
    member.received_from("x")
    assert member.peers == ["b"]


def test_a_newcomer_believes_all_its_neighbours_and_learns_by_timeouts() -> None:
    post = announced()
    post.down = {"c", "d"}
    for name in "ab":
        for absent in "cd":
            post.members[name].suspect(absent)
    post.join("c")
    assert post.views() == {"a": "bc", "b": "ac", "c": "abd", "d": "abc"}
    post.members["c"].suspect("d")
    post.crash("c")
    post.join("c")  # what it knew is out of date
    assert post.views()["c"] == "abd"


# --- all-knowing ---


def test_everybody_knows_at_once_and_nothing_is_sent() -> None:
    post = all_knowing("abc")
    assert post.views() == {"a": "bc", "b": "ac", "c": "ab", "d": "abc"}
    post.join("d")
    assert post.views() == {"a": "bcd", "b": "acd", "c": "abd", "d": "abc"}
    post.crash("b")
    post.leave("c")
    assert (post.views()["a"], post.views()["d"]) == ("d", "a")
    post.join("b")
    assert post.views() | {"c": ""} == {"a": "bd", "b": "ad", "c": "", "d": "ab"}
    assert post.log == []


def test_suspicions_and_late_messages_change_nothing() -> None:
    post = all_knowing("abc")
    member = post.members["a"]
    member.suspect("b")
    member.received_from("d")
    assert not member.on_message(Hello(), "d")
    assert member.peers == ["b", "c"]


def test_only_neighbours_become_peers() -> None:
    directory = Directory(["a", "b"])
    member = DirectoryView("a", ["b"], directory)
    far = DirectoryView("c", ["b"], directory)
    far.join(no_tell)
    far.leave(no_tell)
    assert member.peers == ["b"]


def test_a_member_that_is_down_hears_nothing_and_looks_everything_up_when_it_is_back() -> None:
    post = all_knowing("abcd")
    log: list[tuple[str, bool]] = []
    post.members["a"].on_change = lambda peer, up: log.append((peer, up))
    post.crash("a")
    post.leave("b")
    post.crash("c")
    post.join("b")
    assert log == []
    post.join("a")
    assert post.members["a"].peers == ["b", "d"]
    assert log == [("c", False)]


def test_a_new_member_of_the_same_name_takes_the_place_of_the_old_one() -> None:
    directory = Directory("ab")
    old = DirectoryView("a", "b", directory)
    new = DirectoryView("a", "b", directory)
    directory.went_down("b")
    assert (old.peers, new.peers) == (["b"], [])


def test_news_that_is_none_changes_nothing() -> None:
    directory = Directory("ab")
    member = DirectoryView("a", "b", directory)
    log: list[tuple[str, bool]] = []
    member.on_change = lambda peer, up: log.append((peer, up))
    directory.came_up("b")
    directory.went_down("b")
    directory.went_down("b")
    directory.came_up("b")
    assert log == [("b", False), ("b", True)]
    assert "b" in directory


happenings = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "crash"]), st.sampled_from(NAMES)), max_size=20
)


@given(happenings, st.booleans())
def test_views_after_any_history(happenings: list[tuple[str, str]], directory: bool) -> None:
    """Members that are up see exactly who is up with a directory, and all of them, maybe more, without."""
    post = all_knowing("abcd") if directory else announced()
    up = set(NAMES)
    for happening, name in happenings:
        if (happening == "join") == (name in up):
            continue
        getattr(post, happening)(name)
        up ^= {name}
        for member in sorted(up):
            seen = set(post.members[member].peers)
            truth = up - {member}
            assert (seen == truth) if directory else (seen >= truth)
