"""Measurements that take too long for tests: speed, and fidelity to the papers."""
