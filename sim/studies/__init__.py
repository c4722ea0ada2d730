"""Studies: many runs of one scenario file, and their comparison."""
