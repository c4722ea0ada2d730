"""Number that two clients share and both change in steps: whatever messages are lost, each step counts once.

Each end numbers its own steps. With every message about the pair, it sends the steps that the other end has
not confirmed. The next message thus repairs the loss of the last one, and neither end ever waits or holds a
lock. Both ends apply the same steps, possibly in another order, which matters if the number is clipped or
rounded: once they have applied the same ones, the number of the end whose name sorts first is valid.
"""

from dataclasses import dataclass

from protocols.framework.vectors import Scalar


@dataclass(frozen=True)
class Account:
    """State of one end of a pair, as sent to the other.

    This end has made `made` steps, taken `taken` steps of the other end, and holds `value`. `steps`: its last
    steps, from the first step that the other end has not confirmed.
    """

    made: int
    taken: int
    value: float | Scalar
    steps: tuple[Scalar, ...] = ()


@dataclass(frozen=True)
class Correction:
    """Steps that one end has to take after it has received the other end's account.

    `steps`: to be applied, in this order. `value`: the number afterwards; None if it is the result of these
    steps.
    """

    steps: tuple[Scalar, ...] = ()
    value: float | Scalar | None = None


@dataclass
class PairStepLedger:
    """Steps of one end of a pair: `made` by this end itself, and `taken` over from the other end."""

    made: int = 0
    taken: int = 0
    unconfirmed: tuple[Scalar, ...] = ()

    @property
    def steps_in_all(self) -> int:
        """Number of steps in the number that this end holds."""
        return self.made + self.taken

    def record(self, step: Scalar) -> None:
        """Record a step that this end made."""
        self.made += 1
        self.unconfirmed = (*self.unconfirmed, step)

    def account(self, value: float | Scalar) -> Account:
        """Return the account for the other end, when this one holds `value`."""
        return Account(self.made, self.taken, value, self.unconfirmed)

    def merge(self, account: Account, *, leads: bool) -> Correction:
        """Merge the other end's account; return the correction to apply.

        leads: whether this end's name comes first, so that its number counts.

        An account that is older than the steps taken here changes nothing. Either a newer message overtook
        the account, or the other end has lost its ledger and will adopt this one with the next account.
        """
        if account.taken > self.made:  # this end has lost its ledger: the other has taken steps from it
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
