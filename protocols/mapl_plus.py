"""MAPL+: as MAPL, for clients with the same backbone, which they share and mix, too.

Mukherjee, Simonetto and Jamali-Rad, "MAPL: Model agnostic peer-to-peer learning" (2024), appendix B.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocols.framework.learner import ProtocolSettings
from protocols.framework.member import Requirement, common_start
from protocols.mapl import MAPL


class MaplPlus(MAPL):
    """xi_i and theta_i <- w_ii (own) + sum_j w_ij (j's)."""

    heterogeneous = False
    mixed = ("prototypes", "backbone")

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (common_start("shared-backbone", "shared"),)
