"""Modules that are loaded before the processes of a live run are forked, exempt from garbage collection."""

import gc

import sim.live.worker  # noqa: F401

gc.collect()
gc.freeze()
