"""Actors in several processes: a transport over TCP that accepts only authenticated connections."""
