"""Tests of what goes on around a run: progress, signals, provenance."""
