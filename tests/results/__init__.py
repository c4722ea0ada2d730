"""Tests of sim.results."""
