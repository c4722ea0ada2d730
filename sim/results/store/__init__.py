"""Files of a run: locations, writing, reading and checks."""
