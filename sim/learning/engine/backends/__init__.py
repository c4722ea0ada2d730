"""Backends, which compute a level of the graph for many clients at once."""
