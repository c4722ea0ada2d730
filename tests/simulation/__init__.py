"""Whole runs, end to end: what users rely on, shown on small scenarios."""
