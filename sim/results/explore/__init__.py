"""A page on which a run is walked through in time."""
