"""What a run is made of, before its first event."""
