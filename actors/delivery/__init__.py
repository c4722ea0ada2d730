"""Reliable delivery: questions and messages of rounds are sent again, and handled once."""
