"""What is written of a run, and how far it is."""
