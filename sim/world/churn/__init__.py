"""Churn: single joins, departures and crashes of clients, and processes that draw sessions."""
