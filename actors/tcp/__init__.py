"""Actors in several processes: a transport over TCP that takes nothing from strangers."""
