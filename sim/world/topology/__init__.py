"""Topology: the links between clients."""
