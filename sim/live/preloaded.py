"""What processes of a live run are forked with: all that they import, at which no collection looks again."""

import gc

import sim.live.worker  # noqa: F401

gc.collect()
gc.freeze()
