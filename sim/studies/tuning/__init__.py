"""Tuning of methods: trials, samplers, scores and results of `coterie tune`."""
