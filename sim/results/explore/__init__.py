"""A page in which a reader steps through a run in virtual time."""
