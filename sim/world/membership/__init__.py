"""Membership: knowledge of which clients are up. `kinds` lists the choices of a scenario."""
