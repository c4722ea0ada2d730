"""Results of a run, and its progress."""
