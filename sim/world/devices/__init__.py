"""Devices of the clients: costs of computation, and slow times."""
