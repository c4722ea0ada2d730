"""Tests of virtual time and of random numbers."""
