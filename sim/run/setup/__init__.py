"""Setup of a run, before its first event."""
