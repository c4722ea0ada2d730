"""Studies: many runs of one scenario file, and what they come to together."""
