"""Engines of several runs that compute together what their runs wait for."""
