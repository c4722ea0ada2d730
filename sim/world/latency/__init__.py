"""Latency of messages."""
