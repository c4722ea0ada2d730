"""The clients' devices: what computing costs on them, and when they are slow."""
