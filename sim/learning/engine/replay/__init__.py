"""What goes on record of a run's numbers, and how it is put back."""
