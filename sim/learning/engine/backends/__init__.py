"""How a level of the graph is computed, for many clients at once."""
