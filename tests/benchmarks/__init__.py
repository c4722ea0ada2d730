"""Tests of what the benchmarks measure, not of how fast it is."""
