"""Modules that processes of a live run are forked with, exempt from garbage collection."""

import gc

import sim.live.worker  # noqa: F401

gc.collect()
gc.freeze()
