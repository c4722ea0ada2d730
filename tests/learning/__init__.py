"""Tests of sim.learning."""
