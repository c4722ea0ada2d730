"""Partitions of samples among clients, a class for each kind of heterogeneity."""
