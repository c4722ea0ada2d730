"""MAPL+: MAPL for clients with the same backbone; clients also share and mix their backbones.

Mukherjee, Simonetto and Jamali-Rad, "MAPL: Model agnostic peer-to-peer learning" (2024), appendix B.

If devices differ, set `half_life`. Otherwise, while a client that is 20 times slower trains, the others mix
in its old backbone again and again; in bad weather, this harms them more than collaboration helps
(docs/weather.md). Without rounds, `safeguard` protects the slow client itself (`MAPLAsynchronous`).
"""

from collections.abc import Sequence
from typing import final

from protocols.framework.requirements import ProtocolSettings, Requirement, common_start_requirement
from protocols.mapl.method import MAPL, MAPLAsynchronous


@final
class MaplPlusAsynchronous(MAPLAsynchronous):
    """MAPL+ without rounds."""

    mixed = ("prototypes", "backbone")


@final
class MaplPlus(MAPL):
    """MAPL+ in rounds: xi_i <- w_ii xi_i + sum_j w_ij xi_j.

    Client i mixes its prototypes xi_i with those of its neighbors j by the weights w_ij, and its backbone
    theta_i likewise.
    """

    heterogeneous = False
    mixed = MaplPlusAsynchronous.mixed
    asynchronous = MaplPlusAsynchronous

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (*super().requirements(settings), common_start_requirement("shared-backbone", "shared"))
