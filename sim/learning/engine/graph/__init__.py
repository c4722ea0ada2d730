"""Graph of pending computations."""
