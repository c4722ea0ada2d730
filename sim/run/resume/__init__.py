"""Going on from a checkpoint, and going through a run again."""
