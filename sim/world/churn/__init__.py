"""Clients that come, leave, crash and come back: single events, and processes that draw sessions."""
