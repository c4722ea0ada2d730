"""A run: a simulation from its first event to its result directory.

`running` is the whole of it. `simulation` holds the clients' lives and the observer, `clients` a client over
all its lives, `compute` and `budget` what it may compute. `alone`, `divergence`, `milestones` and `summary`
say what came of it, `saving` and `provenance` write that down; `progress`, `interrupts` and `unawaited` are
for those who look on.
"""
