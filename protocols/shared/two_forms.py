"""Methods in two forms: in rounds, and with nobody waiting for anybody."""

from __future__ import annotations

from protocols.framework.client import Client


class TwoForms(Client):
    """A client whose setting `mode` says which of the two an iteration is."""

    @property
    def in_rounds(self) -> bool:
        """Whether it waits for others."""
        return getattr(self.settings, "mode", "") == "synchronous"

    async def step(self) -> None:
        if self.in_rounds:
            await self.take_round()
        else:
            await self.iterate()

    async def take_round(self) -> None:
        """One round."""
        raise NotImplementedError(f"{type(self).__name__} has no rounds")

    async def iterate(self) -> None:
        """One iteration without rounds."""
        raise NotImplementedError(f"{type(self).__name__} has no form without rounds")
