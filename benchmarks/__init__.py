"""Measurements that are too long for tests: speed, and fidelity to the papers."""
