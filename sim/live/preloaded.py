"""Loads modules before live processes are forked, and exempts their objects from garbage collection."""

import gc

import sim.live.worker  # noqa: F401

gc.collect()
gc.freeze()
