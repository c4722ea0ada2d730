"""The composition root: from a validated scenario to everything that a run consists of.

One module for each part of a scenario; `sim.build.simulation` puts the parts together.
"""
