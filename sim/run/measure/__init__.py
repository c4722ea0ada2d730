"""What is measured of a run, from outside."""
