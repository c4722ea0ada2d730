"""A number that two clients share, moved by both in steps: whatever messages are lost, each step counts once.

Each end numbers its own steps and sends those that the other end has not confirmed along with every message
about the pair. So the next message repairs what the last one left open, and nobody ever waits or holds a
lock. Both ends apply the same steps, but perhaps in another order, which matters where the number is clipped
or rounded: once they have applied the same ones, that end's number holds whose name comes first.
"""

from dataclasses import dataclass

from protocols.framework.vectors import Scalar


@dataclass(frozen=True)
class Account:
    """The state of one end of a pair, as it tells the other.

    It has made `made` steps, taken `taken` of the other's, and holds `value`. `steps`: the last that it made,
    from the first one on that it does not know the other to have taken.
    """

    made: int
    taken: int
    value: float | Scalar
    steps: tuple[Scalar, ...] = ()


@dataclass(frozen=True)
class Correction:
    """The steps that one end has to take after it got the other's account.

    `steps`: to be applied, in this order. `value`: what the number is afterwards; None: what they make of it.
    """

    steps: tuple[Scalar, ...] = ()
    value: float | Scalar | None = None


@dataclass
class Ledger:
    """The steps that one end has made and taken."""

    made: int = 0
    taken: int = 0
    unconfirmed: tuple[Scalar, ...] = ()

    @property
    def steps_in_all(self) -> int:
        """How many steps are in the number that this end holds."""
        return self.made + self.taken

    def note(self, step: Scalar) -> None:
        """This end has made a step."""
        self.made += 1
        self.unconfirmed = (*self.unconfirmed, step)

    def account(self, value: float | Scalar) -> Account:
        """The account for the other end, when this one holds `value`."""
        return Account(self.made, self.taken, value, self.unconfirmed)

    def merge(self, account: Account, *, leads: bool) -> Correction:
        """Take over what the other end's account says; returns what to do.

        leads: whether this end's name comes first, so that its number counts.

        An account that is older than what this end has taken changes nothing: it was overtaken on its way, or
        its sender has lost its ledger and will take this one over with the next account.
        """
        if account.taken > self.made:  # this end has lost its ledger: the other has taken steps of it
            self.made, self.taken, self.unconfirmed = account.taken, account.made, ()
            return Correction(value=account.value)
        if account.made < self.taken:
            return Correction()
        confirmed = account.taken - (self.made - len(self.unconfirmed))
        self.unconfirmed = self.unconfirmed[max(0, confirmed) :]
        missed = account.made - self.taken
        steps = account.steps[-missed:] if missed else ()
        self.taken = account.made
        holds = account.taken == self.made and (not leads or missed > len(steps))
        return Correction(steps, account.value if holds else None)
