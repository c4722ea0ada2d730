"""Comparison of a CUDA device with the CPU: results, speed, launches and waits."""
