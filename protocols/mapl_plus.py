"""MAPL+: as MAPL, for clients with the same backbone, which they share and mix, too.

Mukherjee, Simonetto and Jamali-Rad, "MAPL: Model agnostic peer-to-peer learning" (2024), appendix B.
"""

from __future__ import annotations

from protocols.mapl import MAPL


class MaplPlus(MAPL):
    """xi_i and theta_i <- w_ii (own) + sum_j w_ij (j's)."""

    heterogeneous = False
    mixed = ("prototypes", "backbone")
