"""Runs: from the setup of a simulation to its result directory.

`running` runs a scenario: `setup` builds the simulation, `resume` continues from a checkpoint, `summary`
summarizes the results, and `save` writes them and shows progress. `interrupts` handles signals.
`code_warnings`, `foreign_draws`, `swallowed`, `unawaited` and `wall_clock` warn about errors in the user's
code.
"""
