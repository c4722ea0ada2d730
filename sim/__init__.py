"""The simulator: a world in virtual time, learning in batches, and results that can be trusted."""
