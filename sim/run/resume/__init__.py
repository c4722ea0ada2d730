"""Resuming from a checkpoint, and replaying a run."""
