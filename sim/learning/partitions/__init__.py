"""Partitions: which client owns which samples, a class for each kind of heterogeneity."""
